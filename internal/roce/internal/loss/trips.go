package loss

import "time"

// trips measures round-trip times and smooths them, with their mean deviation, as RFC 6298 does. A sample is the time
// from a packet that requests an acknowledgement to the first response that covers it. One packet is measured at a time,
// and none that was sent again (Karn's rule), except after two questions without an answer: the round trip is probably
// longer than the estimate then, and the time since the first transmission is at least the round trip.
type trips struct {
	smoothed, deviation int64
	sampled             bool

	psn   uint32 // packet that is measured
	start int64  // time at which it was sent; 0: none is measured
	doubt bool   // it was sent again
}

// Values before the first sample: a short round trip of high uncertainty.
const (
	firstTrip      = int64(500 * time.Microsecond)
	firstDeviation = int64(500 * time.Microsecond)
)

// leastMargin is the smallest margin over the round trip before a question is sent. Peers answer late while other
// programs use their processor.
const leastMargin = int64(time.Millisecond)

func newTrips() trips { return trips{smoothed: firstTrip, deviation: firstDeviation} }

func (t *trips) add(trip int64) {
	if !t.sampled {
		t.smoothed, t.deviation, t.sampled = trip, trip/2, true
		return
	}
	t.deviation += (max(t.smoothed-trip, trip-t.smoothed) - t.deviation) / 4
	t.smoothed += (trip - t.smoothed) / 8
}

// timeout returns the time to wait for a response before a question is sent.
func (t *trips) timeout() int64 { return t.smoothed + max(4*t.deviation, leastMargin) }

// acknowledged ends the measurement if the packet is before una, and returns the sample, or 0.
func (t *trips) acknowledged(una uint32, questions uint8, now int64) (sample int64) {
	if t.start == 0 || Diff(una, t.psn) <= 0 {
		return 0
	}
	if !t.doubt || questions >= 2 {
		sample = max(now-t.start, 1)
		t.add(sample)
	}
	t.start = 0
	return sample
}
