package roce

import "time"

// roundTrips measures round-trip times and smooths them, with their mean deviation, as
// defined by RFC 6298. A sample is the time from a packet that requests an acknowledgement
// to the first response that covers it. One packet is measured at a time.
type roundTrips struct {
	smoothed, deviation int64
	certain             int64 // time of the last sample that belongs to one copy of a packet
	sampled             bool
	guessed             bool  // the last sample was held
	row                 uint8 // held samples since the last certain one

	doubt bool   // packet psn was retransmitted: the response may belong to either copy
	held  bool   // the response may have waited for an older packet, which was lost
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

// add adds a sample that certainly belongs to one copy of a packet. If the estimate comes from
// samples that were held and is much longer, it was wrong.
func (t *roundTrips) add(rtt, now int64) {
	if t.guessed && rtt < t.smoothed/2 {
		t.sampled = false
	}
	t.certain, t.guessed, t.row = now, false, 0
	t.smooth(rtt)
}

func (t *roundTrips) smooth(rtt int64) {
	if !t.sampled {
		t.smoothed, t.deviation, t.sampled = rtt, rtt/2, true
		return
	}
	t.deviation += (max(t.smoothed-rtt, rtt-t.smoothed) - t.deviation) / 4
	t.smoothed += (rtt - t.smoothed) / 8
}

// probeAnswered adds the time between a probe and its answer, if it is shorter than the estimate.
func (t *roundTrips) probeAnswered(rtt, now int64) {
	if rtt < t.smoothed {
		t.add(rtt, now)
	}
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
		t.psn, t.start, t.doubt, t.held = psn, now, false, false
	}
}

// cancel gives up the measurement, because packets were lost.
func (t *roundTrips) cancel() { t.start = 0 }

// retransmitted records that packet psn was sent again.
func (t *roundTrips) retransmitted(psn uint32) { t.doubt = t.doubt || t.psn == psn }

// probed records that the oldest packet was sent again, because no answer came. If the line lost
// that packet, a peer that keeps later ones acknowledges them together with it.
func (t *roundTrips) probed() { t.held = true }

// requestedAgain records that responses were requested again, perhaps the one that is measured.
func (t *roundTrips) requestedAgain() { t.doubt = true }

// acknowledged ends the measurement if the packet is before una, and returns the sample, or 0.
// probes is the number of probes since una last advanced.
//
// Karn's rule drops the sample of a retransmitted packet. After several probes, however, the
// round trip is probably longer than the estimate, and the time since the first transmission
// is at least the round trip.
//
// The same holds after a probe to a peer that keeps later packets. If the round trip has become
// longer, all samples are of this kind. A certain sample a short time ago shows that it has not: the
// line lost packets, and the time is that of the waits for probes. It must not count, because the
// next probe would wait even longer. The same goes for the first few samples of this kind.
func (t *roundTrips) acknowledged(una uint32, probes uint8, now int64) (sample int64) {
	if t.start == 0 || psnDiff(una, t.psn) <= 0 {
		return 0
	}
	trip := now - t.start
	t.start = 0
	if t.held {
		t.row = min(t.row+1, heldRow)
	}
	switch {
	case t.held && t.sampled && (t.row < heldRow || now-t.certain <= certainFor*trip), t.doubt && probes < 2:
		return 0
	case t.held || t.doubt:
		t.guessed = t.held
		t.smooth(trip)
	default:
		t.add(trip, now)
	}
	return trip
}

// certainFor is the time, in the round trips to judge, for which a certain sample excludes them.
// heldRow is the number of held samples in a row of which the last one counts.
const (
	certainFor = 4
	heldRow    = 4
)
