package roce

import "time"

// roundTrips is a smoothed round-trip time with its mean deviation, as RFC 6298 defines
// them. A sample is the time from sending a packet that asks for an acknowledgement to
// the first response that covers it; a packet that was sent again gives none (Karn's
// rule).
type roundTrips struct {
	smoothed, deviation int64
	sampled             bool
}

// Before the first sample, the round trip counts as short and uncertain.
const (
	firstRTT       = int64(500 * time.Microsecond)
	firstDeviation = int64(500 * time.Microsecond)
)

// leastMargin is the least time beyond the round trip after which a probe is sent. Peers
// answer late when other programs use their processor.
const leastMargin = int64(time.Millisecond)

func (t *roundTrips) init() { *t = roundTrips{smoothed: firstRTT, deviation: firstDeviation} }

// add takes a sample.
func (t *roundTrips) add(rtt int64) {
	if !t.sampled {
		*t = roundTrips{smoothed: rtt, deviation: rtt / 2, sampled: true}
		return
	}
	t.deviation += (max(t.smoothed-rtt, rtt-t.smoothed) - t.deviation) / 4
	t.smoothed += (rtt - t.smoothed) / 8
}

// timeout returns how long to wait for an answer before a probe is sent.
func (t *roundTrips) timeout() int64 { return t.smoothed + max(4*t.deviation, leastMargin) }

// roundTrip returns the smoothed round-trip time.
func (r *requester) roundTrip() int64 { return max(r.rtt.smoothed, 1) }

// A full timeout has room for leastProbes at least, and for probeParts if the round trip
// is short.
const (
	leastProbes = 4
	probeParts  = 16
)

// probeAfter returns the time for the next probe. timeout is the full timeout, 0 for
// none. A standard peer gets fewer probes: it may send the whole rest of a READ for each.
func (r *requester) probeAfter(timeout int64, standard bool) int64 {
	pto := r.rtt.timeout()
	limit := int64(time.Second)
	if timeout != 0 {
		limit = timeout / probeParts
		if !r.rtt.sampled || standard {
			limit = timeout / leastProbes // the path may be a long one
		}
		pto = min(pto, timeout/leastProbes)
	}
	return r.probeFrom + max(pto, min(pto<<min(r.backoff, 16), limit))
}
