package roce

import (
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/rdma"
)

// selective is the recovery of two ends that both have selective repeat: both keep what arrives early, and only what
// is missing is sent again. The package comment describes its protocol, and [recovery] those methods that have no
// comment here.
type selective struct{ *QP }

// divides: the windows grant the responses of a READ of any length.
func (q selective) divides(*Work) bool { return false }

// grants: the request of a READ itself needs no room in the window. Its responses are granted as room appears.
func (q selective) grants(w *Work, i uint32) (n uint32, waits bool) { return q.firstGrant(w, i), false }

func (q selective) requests(w *Work, n, grant uint32) {
	if r := &q.req; w.Op == rdma.WRRead {
		r.reads.sentRead(r.next, psnAdd(r.next, int(n)), int(grant))
	}
}

func (q selective) requestMark() uint8 { return wire.OutstandingMark(int(q.req.inFlight)) }

// probedResponses is the number of responses that a probe asks for. probedPackets is the number of
// packets that it retransmits, if the peer repeats selectively and did not answer the probe before.
const (
	probedResponses = 4
	probedPackets   = 4
)

// probe retransmits the oldest unacknowledged packets, or asks for the first missing responses.
//
// A line that loses bursts may lose a small window as a whole, and then the single packets that
// follow it, with the acknowledgements of those that arrive. So only the first probe is a
// single packet.
func (q selective) probe(b *builder, w *Work, now int64) bool {
	r := &q.req
	if w.hasResponses() && psnDiff(r.executedUpTo, w.progress.first) > 0 {
		// The peer has the request, so only responses are missing.
		if w.Op == rdma.WRRead && psnDiff(r.reads.granted, r.una) <= 0 && r.reads.ungranted() {
			q.grantOne(w)
			r.rtt.probed = now
			r.probes.done()
			if !q.putRepeatResponses(b) {
				r.reads.grantLost()
				return false
			}
			return true
		}
		r.reads.forget()
		end := psnAdd(r.una, probedResponses)
		if n := psnDiff(r.reads.granted, r.una); n > 0 && n < probedResponses {
			end = r.reads.granted // others would not be kept, and could overflow a queue with each probe
		}
		q.askForMissing(r.una, end, true, now)
		r.reads.probed()
		r.rtt.probed = now
		r.probes.done()
		return q.putRepeatResponses(b)
	}
	// The scoreboard, which knows the packets behind una that have arrived, needs all packets to be in flight.
	several := r.probes.backoff > 1 && !r.probes.single() && r.allSent() && q.openBoard()
	if !q.putProbed(b, w, r.una, now) {
		if q.notPut(w) {
			return false
		}
		r.probes.done()
		return true
	}
	r.probes.put(r.una)
	return !several || q.putMoreProbes(b, now)
}

// putMoreProbes retransmits the packets after una, until the probe has probedPackets, or a packet has
// arrived or is known to be missing. It reports whether the trains had room.
func (q selective) putMoreProbes(b *builder, now int64) bool {
	r := &q.req
	for n := 1; n < probedPackets; n++ {
		psn := psnAdd(r.una, n)
		if psnDiff(psn, r.next) >= 0 {
			return true
		}
		w := r.holding(psn)
		if w == nil || w.hasResponses() || w.progress.failed || r.board.at(psn).state != flying {
			return true
		}
		if !q.putProbed(b, w, psn, now) {
			return !q.notPut(w)
		}
	}
	return true
}

// putProbed retransmits packet psn of w as a part of a probe. It reports whether it did.
func (q selective) putProbed(b *builder, w *Work, psn uint32, now int64) bool {
	r, i := &q.req, w.index(psn)
	if r.board != nil && r.board.noteProbe(psn, now) {
		out, _ := q.cost(w, i, i+1)
		q.peer.sent(&r.flight, out, 0)
	}
	if !q.putAgain(b, w, i, psn) {
		return false
	}
	r.rtt.retransmitted(psn)
	r.rtt.probed = now
	return true
}

func (q selective) probeAfter() int64 {
	return q.req.probes.after(&q.req.rtt, q.fullTimeout(), q.req.retries.late())
}

func (q selective) stale(h wire.BTH, _ int64) { q.req.reads.reordering.arrivedAgain(h.PSN) }

// responseArrived sees the mark of the response. findGaps finds the responses that it shows to be lost, after the batch.
func (q selective) responseArrived(h wire.BTH, _ int64) bool {
	q.req.reads.seeMark(h.Mark)
	return false
}

func (q selective) findLost(int64) {} // responseArrived never reports true

func (q selective) ackArrived(_ uint32, _ bool, now int64) { q.findOvertaken(now) }

// sequenceNAK and reportedLost do nothing: the scoreboard and the marks of responses show what was lost.
func (q selective) sequenceNAK(uint32, bool, int64) {}

func (q selective) reportedLost(int64) {}

// onlyProbeArrived takes the packets that were sent before the probe for lost when a probe was acknowledged alone twice in
// a row. The first such acknowledgement may answer the original packet, which was only late. By the second one,
// two probe timeouts have passed, and the peer has answered only the probes.
func (q selective) onlyProbeArrived(psn uint32, _ int64) {
	if r := &q.req; r.probes.alone >= 2 && r.board != nil {
		r.board.overtakenBy(psn)
	}
}

func (q selective) fits(w *Work, i uint32, end bool) bool { return end == (i+1 == w.progress.count) }

// expects is true only for responses that were granted: the peer sends no others.
func (q selective) expects(w *Work, psn uint32) bool {
	return w.Op != rdma.WRRead || psnDiff(psn, q.req.reads.granted) < 0
}

func (q selective) completes() {
	if r := &q.req; r.reads.completed(r.una != r.next) {
		q.port.ready.push(q.QP)
	}
}

func (q selective) packet(b []byte, now int64) bool {
	body, ok := wire.ParseSelective(b)
	if !ok {
		return false
	}
	bth, _, _ := wire.ParseBTH(b)
	if bth.PKey&0x7fff != wire.DefaultPKey&0x7fff {
		q.port.n.BadPKey.Add(1)
		return true
	}
	if bth.Opcode == wire.SelectiveAck {
		q.selectiveAck(bth.PSN, bth.Mark, body, now)
	} else {
		q.repeatSpans(bth.PSN, bth.Mark, body)
	}
	return true
}

func (q selective) requestMarked(mark uint8) { q.retire(int(mark) - 1) }

func (q selective) opens(e *resource, _ resource, mark uint8) { q.allow(e, mark) }

func (q selective) requestedAgain(e *resource, i uint32, mark uint8) bool {
	q.resp.ack = true // the peer does not know that its request has arrived
	if n := grantOf(mark, e.count-i); n > 0 {
		e.allowed = max(e.allowed, i+n)
	}
	return true
}
