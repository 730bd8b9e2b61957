package roce

import "github.com/softmkey/softmkey/internal/net/wire"

// standard is the recovery that the InfiniBand specification defines (sections 9.7.5 and 9.9.2), and every adapter
// has. The responder executes requests in order, drops those that follow a lost one, and reports the loss once. The
// requester then sends again everything from the lost request on. It asks again for missing responses of READs and
// atomics (see [repeatedRequests]), and keeps the responses that have arrived. It sends long READs in parts (see divides).
type standard struct{ *QP }

// grants lets the peer send all responses: a standard peer knows no other way.
func (q standard) grants(w *Work, i uint32) (n uint32, waits bool) {
	return w.progress.count - i, true
}

func (q standard) requests(*Work, uint32, uint32) {
	r := &q.req
	if r.inFlight != 0 {
		return
	}
	// No responses of other requests come first.
	if r.repeatedRequests == nil {
		r.repeatedRequests = new(repeatedRequests)
	}
	r.repeatedRequests.restart(r.next)
}

func (q standard) requestMark() uint8 { return 0 }

func (q standard) putAsks(*builder, int64) bool { return true }

func (q standard) retransmit(b *builder, now, budget int64) (left int64, stop, more bool) {
	full := !q.putRepeatedRequests(b, now)
	return budget, full, full
}

func (q standard) probe(b *builder, w *Work, now int64) bool {
	if w.hasResponses() {
		return q.probeResponses(b, w, now)
	}
	r := &q.req
	if !q.putData(b, w, w.index(r.una), r.una, 0) {
		if q.notPut(w) {
			return false
		}
		r.probes.done()
		return true
	}
	q.sentAgain(w, r.una, 1)
	r.rtt.retransmitted(r.una)
	r.probes.put(r.una)
	return true
}

func (q standard) probeAfter() int64 {
	return q.req.probes.after(&q.req.rtt, q.fullTimeout(), false)
}

// stale handles a copy of a response: the peer may be answering a READ that was requested more than once.
func (q standard) stale(h wire.BTH, now int64) {
	r := &q.req
	if h.Opcode == wire.Acknowledge {
		return
	}
	older := r.head == nil || psnDiff(h.PSN, r.head.progress.first) < 0
	r.probes.copyArrived(older, r.repeatedRequests.copied(h.PSN), q.probeAfter(), now)
}

func (q standard) responseArrived(h wire.BTH, now int64) bool {
	r, psn := &q.req, h.PSN
	if h.Opcode == wire.Acknowledge || psnDiff(psn, r.next) >= 0 {
		return false
	}
	if r.reads.early.has(psn) {
		r.repeatedRequests.copied(psn)
		return false
	}
	w := r.holding(psn)
	if w == nil || !w.hasResponses() {
		return false
	}
	r.probes.wait(now)
	// In the middle of the READ, the first or last response of an answer belongs to a repeated request.
	i, p, layout := w.index(psn), w.progress.repeatedRequest, h.Opcode.Layout()
	repeated := i > 0 && layout&(wire.IsFirst|wire.IsOnly) != 0 || i+1 < w.progress.count && layout&(wire.IsLast|wire.IsOnly) != 0
	if repeated && p != nil && layout&(wire.IsFirst|wire.IsOnly) != 0 {
		q.measureRepeatedRequest(p.roundTrip(i, now), now)
	}
	q.lostResponses(r.repeatedRequests.resolve(psn, repeated && p != nil && p.early), now)
	return r.repeatedRequests.answered(w, psn, repeated, q.peer.out.trip.Load(), now) && (psn != r.una || r.repeatedRequests.any())
}

func (q standard) ackArrived(psn uint32, reached bool, now int64) {
	if !reached {
		// The peer sent the responses to the READs and atomics before this packet first. If one is
		// missing, it was lost.
		q.req.repeatedRequests.executed(psn)
		q.findLost(now)
	}
}

func (q standard) sequenceNAK(psn uint32, reached bool, now int64) {
	if reached {
		q.lost(now)
		return
	}
	// The peer has executed the requests before this one, and sent their responses before this NAK.
	q.requestLost(psn, now)
	q.ackArrived(psn, false, now)
}

func (q standard) reportedLost(now int64) { q.lost(now) }

// onlyProbeArrived goes back to una: the packets after the probe were lost.
func (q standard) onlyProbeArrived(_ uint32, now int64) { q.lost(now) }

// fits: a last response may be before the end of a READ only if a part of the READ was requested again.
func (q standard) fits(w *Work, i uint32, end bool) bool {
	if w.progress.again > 0 {
		return end || i+1 != w.progress.count
	}
	return end == (i+1 == w.progress.count)
}

func (q standard) expects(*Work, uint32) bool { return true }

func (q standard) completes() {}

func (q standard) findGaps(int64) {}

func (q standard) packet([]byte, int64) bool { return false }

// lost goes back to una, because a response reported a loss there.
func (q standard) lost(now int64) {
	r := &q.req
	if r.head == nil || r.waiting || !r.gap.reported(r.una, r.rtt.timeout(), now) {
		return
	}
	q.countLoss(int64(psnDiff(r.next, r.una)))
	q.peer.lostAll(&r.flight, q.fullCost(), r.rtt.known(), now)
	q.goBack(now)
}

// requestLost goes back to the request with PSN psn, which was lost, while responses of requests
// before it are missing.
func (q standard) requestLost(psn uint32, now int64) {
	r := &q.req
	if psnDiff(psn, r.executedUpTo) < 0 {
		return // the report is late: the peer has executed the request since
	}
	if r.waiting || psnDiff(psn, r.next) >= 0 || !r.repeatedRequests.refused(psn, q.peer.out.trip.Load(), r.rtt.timeout(), now) {
		return
	}
	var to *Work
	var out, in int64
	inFlight := int32(0)
	for w := r.head.sendable(); w != nil && psnDiff(w.progress.first, r.next) < 0; w = w.progress.next.sendable() {
		i := max(0, psnDiff(psn, w.progress.first))
		n := min(int(w.progress.count), psnDiff(r.next, w.progress.first))
		switch {
		case i >= n:
			if w.hasResponses() {
				r.repeatedRequests.resent(w, psn)
				inFlight++
			}
			continue
		case i > 0 && w.hasResponses():
			return // no request has this PSN
		case to == nil:
			to = w
		}
		r.repeatedRequests.drop(w)
		o, a := q.cost(w, uint32(i), uint32(n))
		out, in = out+o, in+a
	}
	if to == nil {
		return
	}
	q.countLoss(int64(psnDiff(r.next, psn)))
	r.next, r.cur, r.inFlight = psn, to, inFlight
	r.rtt.cancel()
	q.takeBack(out, in)
}

// measureRepeatedRequest records the round trip of a repeated request. Its response may have waited for those of
// other requests, so that it is only of use if nothing shorter is known.
func (q standard) measureRepeatedRequest(rtt, now int64) {
	t := &q.req.rtt
	if rtt != 0 && (!t.sampled || rtt < t.smoothed) && t.add(rtt, now) {
		q.measured(rtt, now)
	}
}

// requestAhead reports that a packet was lost, with one NAK. It sends another only if the peer has
// gone back, which shows in a PSN no later than the last one seen, and the expected packet was lost
// again.
func (q standard) requestAhead(_ wire.BTH, _ []byte, d int, now int64) {
	s := &q.resp
	again := d <= int(s.silentHigh) && now-s.silentTime > int64(nakInterval)
	s.silentHigh = int32(d)
	if s.silent && !again {
		return
	}
	s.silent = true
	s.silentTime = now
	s.nak, s.nakPSN = wire.NAKSequence, s.psn
}

// nakInterval is the shortest time between two NAKs for one lost packet.
const nakInterval = 200e3 // ns

func (q standard) requestMarked(uint8) {}

func (q standard) opens(e *resource, before resource, mark uint8) {
	if mark == wire.ReadContinues {
		e.continues(before)
	}
}

func (q standard) requestedAgain(*resource, uint32, uint8) bool { return false }
