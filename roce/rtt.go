package roce

import "time"

// roundTrips measures round-trip times and smooths them, with their mean deviation, as
// defined by RFC 6298. A sample is the time from a packet that requests an acknowledgement
// to the first response that covers it. One packet is measured at a time.
//
// Karn's rule drops the sample of a packet that was sent twice, because its response may belong to
// either copy. Towards a peer that keeps later packets, a probe makes the samples of other packets
// uncertain, too: if the line lost the oldest packet, the acknowledgement of a later one waits for the
// probe. The estimate of the round trip would then contain the wait for the probe, and the next probe,
// which waits for as long as the estimate says, would come later still. Uncertain samples cannot all be
// dropped, however: if the round trip has become longer than the wait for a probe, there are no others.
// An uncertain sample therefore counts only if it is the first sample, or the last of uncertainRow in a
// row without a loss. If a certain sample is much shorter then, the estimate starts anew from that one.
type roundTrips struct {
	smoothed, deviation int64
	probed              int64 // time of the last probe to a peer that keeps later packets
	sampled             bool
	uncertain           bool  // the last sample that counted was uncertain
	row                 uint8 // uncertain samples since the last certain one or loss

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

// uncertainRow is the number of uncertain samples in a row of which the last one counts.
const uncertainRow = 8

// add adds the sample of a packet whose response arrived now, if it counts. It reports whether it does.
func (t *roundTrips) add(rtt, now int64) bool {
	uncertain := now-rtt <= t.probed
	if uncertain {
		if t.row++; t.row < uncertainRow && t.sampled {
			return false
		}
	} else if t.uncertain && rtt < t.smoothed/2 {
		t.sampled = false
	}
	t.uncertain, t.row = uncertain, 0
	t.smooth(rtt)
	return true
}

func (t *roundTrips) smooth(rtt int64) {
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

// known returns the smoothed round-trip time, or 0 before the first sample.
func (t *roundTrips) known() int64 {
	if !t.sampled {
		return 0
	}
	return t.typical()
}

// measure starts to measure packet psn, unless another one is being measured.
func (t *roundTrips) measure(psn uint32, now int64) {
	if t.start == 0 {
		t.psn, t.start, t.doubt = psn, now, false
	}
}

// cancel gives up the measurement, because packets were lost.
func (t *roundTrips) cancel() { t.start, t.row = 0, 0 }

// sentAt returns the time at which packet psn was sent if it is being measured, or 0.
func (t *roundTrips) sentAt(psn uint32) int64 {
	if t.psn != psn || t.doubt {
		return 0
	}
	return t.start
}

// retransmitted records that packet psn was sent again.
func (t *roundTrips) retransmitted(psn uint32) { t.doubt = t.doubt || t.psn == psn }

// requestedAgain records that responses were requested again, perhaps the one that is measured.
func (t *roundTrips) requestedAgain() { t.doubt = true }

// acknowledged ends the measurement if the packet is before una, and returns the sample if it
// counts, or 0. probes is the number of probes since una last advanced.
//
// After several probes Karn's rule does not hold: the round trip is probably longer than the estimate,
// and the time since the first transmission is at least the round trip. If the peer keeps later packets,
// the sample is one of the uncertain ones then, even after one probe.
func (t *roundTrips) acknowledged(una uint32, probes uint8, now int64) (sample int64) {
	if t.start == 0 || psnDiff(una, t.psn) <= 0 {
		return 0
	}
	sample = now - t.start
	dropped := t.doubt && probes < 2 && t.start > t.probed
	t.start = 0
	if dropped || !t.add(sample, now) {
		return 0
	}
	return sample
}
