package roce

import "time"

// roundTrips measures round-trip times and smooths them, with their mean deviation, as
// defined by RFC 6298. A sample is the time from a packet that requests an acknowledgement
// to the first response that covers it. One packet is measured at a time.
type roundTrips struct {
	smoothed, deviation int64
	sampled             bool

	doubt bool   // packet psn was retransmitted: the response may belong to either copy
	psn   uint32 // packet that is measured
	start int64  // time at which it was sent; 0: none is measured
}

// Values before the first sample: a short round trip of high uncertainty.
const (
	firstRTT       = int64(500 * time.Microsecond)
	firstDeviation = int64(500 * time.Microsecond)
)

// leastMargin is the smallest margin over the round trip before a probe is sent. Peers
// answer late while other programs use their processor.
const leastMargin = int64(time.Millisecond)

func (t *roundTrips) init() { *t = roundTrips{smoothed: firstRTT, deviation: firstDeviation} }

// add adds a sample.
func (t *roundTrips) add(rtt int64) {
	if !t.sampled {
		t.smoothed, t.deviation, t.sampled = rtt, rtt/2, true
		return
	}
	t.deviation += (max(t.smoothed-rtt, rtt-t.smoothed) - t.deviation) / 4
	t.smoothed += (rtt - t.smoothed) / 8
}

// timeout returns the time to wait for a response before a probe is sent.
func (t *roundTrips) timeout() int64 { return t.smoothed + max(4*t.deviation, leastMargin) }

// witness returns the round trip that tells whether an arrival belongs to the latest copy of a
// packet that was sent more than once. Before the first sample, a round trip may take as long as
// the packet that is measured has been under way.
func (t *roundTrips) witness(now int64) int64 {
	if !t.sampled && t.start != 0 {
		return max(t.smoothed, now-t.start)
	}
	return t.typical()
}

// typical returns the smoothed round-trip time, at least 1.
func (t *roundTrips) typical() int64 { return max(t.smoothed, 1) }

// measure starts to measure packet psn, unless another one is being measured.
func (t *roundTrips) measure(psn uint32, now int64) {
	if t.start == 0 {
		t.psn, t.start, t.doubt = psn, now, false
	}
}

// cancel gives up the measurement, because packets were lost.
func (t *roundTrips) cancel() { t.start = 0 }

// retransmitted records that packet psn was sent again.
func (t *roundTrips) retransmitted(psn uint32) { t.doubt = t.doubt || t.psn == psn }

// requestedAgain records that responses were requested again, perhaps the one that is measured.
func (t *roundTrips) requestedAgain() { t.doubt = true }

// acknowledged ends the measurement if the packet is before una, and returns the sample, or 0.
// probes is the number of probes since una last advanced.
//
// Karn's rule drops the sample of a retransmitted packet. After several probes, however, the
// round trip is probably longer than the estimate, and the time since the first transmission
// is at least the round trip.
func (t *roundTrips) acknowledged(una uint32, probes uint8, now int64) (sample int64) {
	if t.start == 0 || psnDiff(una, t.psn) <= 0 {
		return 0
	}
	if !t.doubt || probes >= 2 {
		sample = now - t.start
		t.add(sample)
	}
	t.start = 0
	return sample
}
