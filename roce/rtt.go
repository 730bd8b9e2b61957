package roce

import "time"

// roundTrips is a smoothed round-trip time with its mean deviation, as defined by RFC
// 6298. A sample is the time from a packet that requests an acknowledgement to the first
// response that covers it. Retransmitted packets give no samples (Karn's rule).
type roundTrips struct {
	smoothed, deviation int64
	sampled             bool
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
		*t = roundTrips{smoothed: rtt, deviation: rtt / 2, sampled: true}
		return
	}
	t.deviation += (max(t.smoothed-rtt, rtt-t.smoothed) - t.deviation) / 4
	t.smoothed += (rtt - t.smoothed) / 8
}

// timeout returns the time to wait for a response before a probe is sent.
func (t *roundTrips) timeout() int64 { return t.smoothed + max(4*t.deviation, leastMargin) }

// roundTrip returns the smoothed round-trip time.
func (r *requester) roundTrip() int64 { return max(r.rtt.smoothed, 1) }

// Probes per full timeout: at least leastProbes, and up to probeParts if the round trip
// is short.
const (
	leastProbes = 4
	probeParts  = 16
)

// probeAfter returns the time of the next probe. A peer of another implementation gets fewer
// probes, because it may answer each with all the rest of a READ. A peer of this one gets more
// after a full timeout in which nothing came from it: on a line that loses bursts of packets in
// both directions, more probes are more chances.
func (q *QP) probeAfter() int64 {
	r := &q.req
	timeout := int64(AckTimeout(q.send.Timeout))
	standard := !q.recv.Selective
	pto := r.rtt.timeout()
	if timeout != 0 && !standard && r.retries < q.send.RetryCount {
		return r.probeFrom + min(pto, timeout/probeParts)
	}
	limit := int64(time.Second)
	if timeout != 0 {
		limit = timeout / probeParts
		if !r.rtt.sampled || standard {
			limit = timeout / leastProbes // the round trip may be long
		}
		pto = min(pto, timeout/leastProbes)
	}
	return r.probeFrom + max(pto, min(pto<<min(r.backoff, 16), limit))
}
