package roce

import (
	"fmt"

	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/rdma"
)

// response handles a packet from the peer's responder. raw is the whole packet; it is nil
// if the packet comes from the early buffer.
func (q *QP) response(k *packet, raw []byte, now int64) {
	r := &q.req
	if q.state != rdma.StateRTS {
		q.port.n.WrongState.Add(1)
		return
	}
	// Packets before una were answered before. Packets from high on were never sent,
	// so this is a response to nothing (a "ghost", section 9.9.2.3).
	stale := psnDiff(k.PSN, r.una) < 0
	ghost := psnDiff(k.PSN, r.high) >= 0
	if raw != nil {
		r.retries.note(k, now)
		if k.isReadResponse() && !ghost {
			r.retries.readAnswered(now)
		}
	}
	if stale || ghost {
		q.port.n.StaleResponses.Add(1)
		if stale {
			q.recovery.stale(k.BTH, now)
		}
		return
	}
	r.mayBuild()
	// What a packet from the early buffer shows was seen when it arrived. It is old now.
	shows := raw != nil && q.recovery.responseArrived(k.BTH, now)
	switch {
	case k.Opcode == wire.Acknowledge:
		q.acknowledge(k, now)
	case k.Opcode == wire.AtomicAcknowledge:
		q.atomicResponse(k, raw, now)
	default:
		q.readResponse(k, raw, now)
	}
	if shows {
		q.recovery.findLost(now)
	}
}

// acknowledge handles an ACK or a NAK.
func (q *QP) acknowledge(k *packet, now int64) {
	r := &q.req
	aeth, _, _ := wire.ParseAETH(k.ext)
	switch aeth.Syndrome.Kind() {
	case wire.KindACK:
		// The peer has executed this request and all before it, and it sent their
		// READ and atomic responses before this ACK. If one of those is missing,
		// it was lost.
		reached := q.advance(psnAdd(k.PSN, 1), now)
		q.recovery.ackArrived(k.PSN, reached, now)
	case wire.KindRNR:
		for n := range q.counting {
			n.RNRReceived.Add(1)
		}
		if !q.advance(k.PSN, now) {
			q.recovery.reportedLost(now)
			return
		}
		if r.head == nil || r.waiting {
			return
		}
		if !r.retries.notReady(now) {
			q.failHead(rdma.StatusRNRRetryExcErr, fmt.Errorf("the peer had no receive request for PSN %#x, after %d retries", k.PSN, q.send.RNRRetry))
			return
		}
		q.goBack(now)
		q.rest(now + int64(RNRTimer(aeth.Syndrome.Value())))
	case wire.KindNAK:
		q.nak(k, aeth.Syndrome, now)
	default:
		q.port.n.Malformed.Add(1)
	}
}

// nak handles a NAK other than RNR. It acknowledges everything before its PSN.
func (q *QP) nak(k *packet, s wire.Syndrome, now int64) {
	var st rdma.Status
	switch s {
	case wire.NAKSequence:
		for n := range q.counting {
			n.SequenceNAKsReceived.Add(1)
		}
		reached := q.advance(k.PSN, now)
		q.recovery.sequenceNAK(k.PSN, reached, now)
		return
	case wire.NAKInvalidRequest:
		st = rdma.StatusRemInvReqErr
	case wire.NAKRemoteAccess:
		st = rdma.StatusRemAccessErr
	case wire.NAKRemoteOperational:
		st = rdma.StatusRemOpErr
	default:
		q.port.n.Malformed.Add(1)
		return
	}
	q.port.n.ErrorNAKsReceived.Add(1)
	if !q.advance(k.PSN, now) {
		q.recovery.reportedLost(now)
		return
	}
	if q.req.head != nil {
		q.failHead(st, fmt.Errorf("the peer answered PSN %#x with a NAK: %v", k.PSN, st))
	}
}

// readResponse handles a packet of READ data. Its PSN gives its position in the READ.
func (q *QP) readResponse(k *packet, raw []byte, now int64) {
	r := &q.req
	if !q.advance(k.PSN, now) {
		q.holdResponse(k, raw, now)
		return
	}
	w := r.head
	if w == nil {
		return // advance failed the QP
	}
	i := w.index(k.PSN)
	if w.Op != rdma.WRRead || !q.fitsRead(k, w, i) {
		q.failHead(rdma.StatusBadRespErr, fmt.Errorf("%v of %d bytes, PSN %#x: it fits no request", k.Opcode, len(k.payload), k.PSN))
		return
	}
	if len(k.payload) > 0 {
		if err := k.deliver(w.Dst); err != nil {
			q.failHead(localStatus(err), err)
			return
		}
	}
	last := i+1 == w.progress.count
	q.consume(w, i, last, raw == nil, now)
}

// holdResponse keeps a response that arrived before an earlier one.
func (q *QP) holdResponse(k *packet, raw []byte, now int64) {
	r := &q.req
	w := r.holding(k.PSN)
	d := psnDiff(k.PSN, r.una)
	if w == nil || d <= 0 || raw == nil {
		return
	}
	if r.reads.early.has(k.PSN) {
		r.reads.reordering.arrivedAgain(k.PSN)
		return
	}
	if psnDiff(k.PSN, r.next) >= 0 || !q.recovery.expects(w, k.PSN) {
		return // a response to a request that is about to be retransmitted
	}
	q.executed(psnAdd(w.progress.first, 1))
	if r.reads.early.put(k.PSN, d, raw, &q.port.recovery) {
		q.port.n.EarlyPackets.Add(1)
		r.reads.arrived(k.PSN, r.una, r.rtt.typical(), now)
		_, in := q.cost(w, w.index(k.PSN), w.index(k.PSN)+1)
		q.giveBack(0, min(in, r.flight.in), now)
	}
	r.reads.seen(k.PSN, r.una)
}

// takeEarly handles the early responses that are next in order.
func (q *QP) takeEarly(now int64) {
	r := &q.req
	for r.reads.early.len() > 0 && q.state == rdma.StateRTS {
		b := r.reads.early.remove(r.una)
		if b == nil {
			return
		}
		q.early.Lend(b)
		var k packet
		k.parseUpTo(b, len(b)) // it was checked when it arrived
		una := r.una
		q.response(&k, nil, now)
		if r.una == una {
			return
		}
	}
}

// fitsRead reports whether k can be response i of READ w, by its length, its position and
// its syndrome. A READ can be requested again from any response on, so a first response may be at any
// position.
func (q *QP) fitsRead(k *packet, w *Work, i uint32) bool {
	end := k.layout&(wire.IsLast|wire.IsOnly) != 0
	return q.recovery.fits(w, i, end) && int64(len(k.payload)) == q.bytes(w, i, i+1) && ackSyndrome(k)
}

// atomicResponse handles the result of an atomic operation.
func (q *QP) atomicResponse(k *packet, raw []byte, now int64) {
	if !q.advance(k.PSN, now) {
		q.holdResponse(k, raw, now)
		return
	}
	w := q.req.head
	if w == nil {
		return // advance failed the QP
	}
	if !w.Op.Atomic() || !ackSyndrome(k) {
		q.failHead(rdma.StatusBadRespErr, fmt.Errorf("%v, PSN %#x: it fits no request", k.Opcode, k.PSN))
		return
	}
	h, _, _ := wire.ParseAtomicAckETH(k.ext[wire.AETHLen:])
	w.Orig = h.Orig
	q.consume(w, 0, true, raw == nil, now)
}

// ackSyndrome reports whether a response has no AETH, or one that acknowledges.
func ackSyndrome(k *packet) bool {
	if k.layout&wire.HasAETH == 0 {
		return true
	}
	h, _, _ := wire.ParseAETH(k.ext)
	return h.Syndrome.Kind() == wire.KindACK
}

// consume moves una past packet i of w, the head of the list, because the response for it
// arrived. last means that the request has no further responses. held means that the
// response comes from the early buffer and was removed from the window when it arrived.
func (q *QP) consume(w *Work, i uint32, last, held bool, now int64) {
	r := &q.req
	q.executed(psnAdd(w.progress.first, 1))
	if psnDiff(r.una, r.next) < 0 {
		out, in := q.cost(w, i, i+1)
		if r.board != nil {
			out = q.passed(w, i, 1, now)
		}
		if held {
			in = 0
		}
		q.giveBack(out, min(in, r.flight.in), now)
		if last {
			r.answeredLast()
		}
	}
	if !held {
		r.reads.arrived(r.una, r.una, r.rtt.typical(), now)
	}
	r.reads.forgetAsk(r.una)
	r.pass(1)
	q.progressed(psnAdd(r.una, -1), now)
	if i+1 == w.progress.count {
		q.recovery.completes()
		q.complete(w, rdma.StatusSuccess)
		q.completeHead()
	}
	r.catchUp()
	if psnDiff(r.executedUpTo, r.una) > 0 {
		q.advance(r.executedUpTo, now)
	}
}

// advance moves una up to PSN to, because the peer acknowledged everything before it,
// possibly by a later response. It stops at a READ or atomic whose own response has not
// arrived, and returns false if it does.
func (q *QP) advance(to uint32, now int64) bool {
	r := &q.req
	var out int64
	moved, ok := false, true
	q.executed(to)
	from := r.una
	for w := r.head; w != nil && psnDiff(to, r.una) > 0; w = r.head {
		if w.hasResponses() {
			ok = false
			break
		}
		i := w.index(r.una)
		n := min(w.progress.count-i, uint32(psnDiff(to, r.una)))
		if r.board != nil {
			out += q.passed(w, i, n, now)
		} else if sent := psnDiff(r.next, r.una); sent > 0 {
			c, _ := q.cost(w, i, i+min(n, uint32(sent)))
			out += c
		}
		r.pass(int(n))
		moved = true
		if i+n == w.progress.count {
			q.complete(w, rdma.StatusSuccess)
			q.completeHead()
		}
	}
	if moved {
		q.giveBack(min(out, r.flight.out), 0, now)
		alone := q.progressed(from, now)
		r.catchUp()
		if alone && r.una != r.next {
			q.recovery.onlyProbeArrived(from, now)
		}
	}
	return ok
}

// executed records that the peer has executed every request before psn.
func (q *QP) executed(psn uint32) { raise(&q.req.executedUpTo, psn) }

// progressed records that una advanced. It reports whether exactly a probe was acknowledged.
func (q *QP) progressed(before uint32, now int64) (alone bool) {
	r := &q.req
	q.peer.heard.Store(now)
	r.retries.progressed(r.una, now)
	r.gap.close()
	q.disarm()
	if sample := r.rtt.acknowledged(r.una, r.probes.backoff, now); sample != 0 {
		q.measured(sample, now)
	}
	return r.probes.progressed(before, r.una, now)
}

// measured records a round trip in the windows.
func (q *QP) measured(rtt, now int64) {
	q.peer.out.measured(now, rtt)
	q.peer.in.measured(now, rtt)
}

// giveBack removes bytes that arrived from the windows, and lets the windows grow.
func (q *QP) giveBack(out, in, now int64) {
	q.releaseWaiters(q.peer.arrived(&q.req.flight, out, in, q.fullCost(), q.req.rtt.known(), now))
}

// takeBack removes bytes that are to be sent again from the windows.
func (q *QP) takeBack(out, in int64) {
	q.releaseWaiters(q.peer.takenBack(&q.req.flight, out, in))
}

// releaseWaiters queues the QPs that waited for a window and may now send.
func (q *QP) releaseWaiters(qs released) {
	q.port.ready.push(qs[0])
	q.port.ready.push(qs[1])
}

// countLoss counts packets that a response reported as lost.
func (q *QP) countLoss(packets int64) {
	q.port.n.Losses.Add(1)
	q.port.n.LostPackets.Add(uint64(packets))
}

// goBack makes una the next packet to send.
func (q *QP) goBack(now int64) {
	r := &q.req
	if r.next != r.una {
		r.retries.stops(now)
	}
	for w := r.head; r.repeatedRequests.any() && w != nil; w = w.progress.next {
		r.repeatedRequests.drop(w)
	}
	r.repeatedRequests.restart(r.una)
	r.goBack()
	r.rtt.cancel()
	q.releaseWaiters(q.peer.release(&r.flight))
	q.closeBoard()
	r.reads.goBack(r.una)
}

// complete removes w, the head of the list, and passes it to Handler.Completed, unless it is a part
// of a READ whose other parts are missing.
func (q *QP) complete(w *Work, st rdma.Status) {
	q.req.pop()
	q.req.repeatedRequests.drop(w)
	if w = q.req.ended(w); w == nil {
		return
	}
	// Completed may reuse w, so w is not read after it. If Completed changes a
	// success to a failure, the reason in words is not known here; Failure describes
	// its status.
	if got := q.h.Completed(w, st); got != rdma.StatusSuccess {
		q.failRest(Failure{Status: got, Err: got.Err()})
	}
}

// completeHead completes Work at the head of the list that waits for no acknowledgement:
// local work, and Work that is marked to fail.
func (q *QP) completeHead() {
	r := &q.req
	for w := r.head; w != nil; w = r.head {
		if w.progress.failed {
			q.failHead(w.progress.status, w.Err)
			return
		}
		if w.progress.count != 0 {
			return
		}
		if st := w.progress.status; st != rdma.StatusSuccess {
			q.failHead(st, w.Err)
			return
		}
		q.complete(w, rdma.StatusSuccess)
	}
}

// reason returns err, or st as an error if err is nil.
func reason(err error, st rdma.Status) error {
	if err == nil {
		return st.Err()
	}
	return err
}

// failHead completes the first Work with st. A QP with acknowledgements enters the error state. Of others only the Work
// that was begun is flushed, because they still receive (SQE, IBTA volume 1, section 10.3.1); the Handler gives the next
// Work when the send queue may go on.
func (q *QP) failHead(st rdma.Status, err error) {
	w := q.req.popWhole()
	err = reason(err, st)
	if w.Op.Masked() && (st == rdma.StatusRetryExcErr || st == rdma.StatusRemInvReqErr) {
		err = fmt.Errorf("%w; the request is a masked atomic, opcode %#x: the specification has none, and only devices of softmkey know it", err, uint8(atomicOps[w.Op].With(q.service)))
	}
	w.Err = err
	q.h.Completed(w, st) // may reuse w
	if q.acknowledged() {
		q.failRest(Failure{Status: st, Err: err})
		return
	}
	r := &q.req
	r.leave()
	for w := r.popWhole(); w != nil; w = r.popWhole() {
		q.h.Completed(w, rdma.StatusWRFlushErr)
	}
	r.workList.init(r.una)
	q.port.ready.push(q)
}
