package roce

import (
	"encoding/binary"
	"fmt"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/internal/roce/internal/loss"
	"github.com/softmkey/softmkey/rdma"
)

// response handles a packet from the peer's responder.
func (q *QP) response(k *packet, now int64) {
	r := &q.req
	if q.state != rdma.StateRTS {
		q.port.n.WrongState.Add(1)
		return
	}
	// Packets before una were answered before. Packets from high on were never sent,
	// so this is a response to nothing (a "ghost", section 9.9.2.3).
	stale := psnDiff(k.PSN, r.una) < 0
	ghost := psnDiff(k.PSN, r.high) >= 0
	r.note(k, now)
	if stale || ghost {
		q.port.n.StaleResponses.Add(1)
		if stale && k.isReadResponse() {
			r.loss.Waits(now) // the peer answers a READ that was requested more than once
		}
		return
	}
	r.mayBuild()
	switch {
	case k.Opcode == wire.Acknowledge:
		q.acknowledge(k, now)
	case !q.advance(k.PSN, now):
		q.implied(now)
	case r.head == nil: // advance failed the QP
	case k.Opcode == wire.AtomicAcknowledge:
		q.atomicResponse(r.head, k, now)
	default:
		q.readResponse(r.head, k, now)
	}
}

// note records which PSN a response shows, for the text of an error.
func (r *requester) note(k *packet, now int64) {
	switch {
	case k.isReadResponse():
		r.loss.Answered(loss.Answer{PSN: k.PSN, Data: true}, now)
	case k.Opcode == wire.Acknowledge:
		aeth := wire.ParseAETH(k.ext)
		switch {
		case aeth.Syndrome.Kind() == wire.KindACK:
			r.loss.Answered(loss.Answer{PSN: psnAdd(k.PSN, 1)}, now)
		case aeth.Syndrome == wire.NAKSequence:
			r.loss.Answered(loss.Answer{PSN: k.PSN}, now)
		}
	}
}

// acknowledge handles an ACK or a NAK.
func (q *QP) acknowledge(k *packet, now int64) {
	r := &q.req
	aeth := wire.ParseAETH(k.ext)
	switch aeth.Syndrome.Kind() {
	case wire.KindACK:
		// The peer has executed this request and all before it, and it sent their
		// READ and atomic responses before this ACK. If one of those is missing,
		// it was lost.
		if !q.advance(psnAdd(k.PSN, 1), now) {
			q.implied(now)
		}
	case wire.KindRNR:
		q.count(func(n *counters) { n.RNRReceived.Add(1) })
		if !q.advance(k.PSN, now) {
			q.implied(now)
			return
		}
		if r.head == nil || r.waiting {
			return
		}
		if r.loss.NotReady(now) == loss.Fail {
			q.failHead(rdma.StatusRNRRetryExcErr, fmt.Errorf("the peer had no receive request for PSN %#x, after %d retries", k.PSN, q.send.RNRRetry))
			return
		}
		q.goBack(now)
		r.rest(now + int64(RNRTimer(aeth.Syndrome.Value())))
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
		q.count(func(n *counters) { n.SequenceNAKsReceived.Add(1) })
		q.advance(k.PSN, now)
		q.lost(now)
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
		q.implied(now)
		return
	}
	if q.req.head != nil {
		q.failHead(st, fmt.Errorf("the peer answered PSN %#x with a NAK: %v", k.PSN, st))
	}
}

// readResponse handles a packet of READ data, for the first Work w. Its PSN gives its position in the READ.
func (q *QP) readResponse(w *Work, k *packet, now int64) {
	i := w.index(k.PSN)
	if w.Op != ibv.WRRead || !q.fitsRead(k, w, i) {
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
	q.consume(w, i, last, now)
}

// fitsRead reports whether k can be response i of READ w, by its length, its position and
// its syndrome. A READ can be requested again from any response on, so a first response may be at any
// position.
func (q *endpoint) fitsRead(k *packet, w *Work, i uint32) bool {
	end := k.layout&(wire.IsLast|wire.IsOnly) != 0
	return end == (i+1 == w.progress.count) && int64(len(k.payload)) == q.bytes(w, i, i+1) && ackSyndrome(k)
}

// atomicResponse handles the result of an atomic operation, for the first Work w.
func (q *QP) atomicResponse(w *Work, k *packet, now int64) {
	if !w.Op.Atomic() || !ackSyndrome(k) {
		q.failHead(rdma.StatusBadRespErr, fmt.Errorf("%v, PSN %#x: it fits no request", k.Opcode, k.PSN))
		return
	}
	w.Orig = binary.BigEndian.Uint64(k.ext[wire.AETHLen:])
	q.consume(w, 0, true, now)
}

// ackSyndrome reports whether a response has no AETH, or one that acknowledges.
func ackSyndrome(k *packet) bool {
	if k.layout&wire.HasAETH == 0 {
		return true
	}
	return wire.ParseAETH(k.ext).Syndrome.Kind() == wire.KindACK
}

// consume moves una past packet i of w, the head of the list, because the response for it
// arrived. last means that the request has no further responses.
func (q *QP) consume(w *Work, i uint32, last bool, now int64) {
	r := &q.req
	if psnDiff(r.una, r.next) < 0 {
		out, in := q.cost(w, i, i+1)
		q.giveBack(out, min(in, r.flight.in))
		if last {
			r.answeredLast()
		}
	}
	before := r.una
	r.pass(1)
	q.progressed(before, false, now)
	if last {
		q.complete(w, rdma.StatusSuccess)
		q.completeHead()
	}
	r.catchUp()
}

// advance moves una up to PSN to, because the peer acknowledged everything before it,
// possibly by a later response. It stops at a READ or atomic whose own response has not
// arrived, and returns false if it does.
func (q *QP) advance(to uint32, now int64) bool {
	r := &q.req
	var out int64
	ok, from := true, r.una
	for w := r.head; w != nil && psnDiff(to, r.una) > 0; w = r.head {
		if w.hasResponses() {
			ok = false
			break
		}
		i := w.index(r.una)
		n := min(w.progress.count-i, uint32(psnDiff(to, r.una)))
		if sent := psnDiff(r.next, r.una); sent > 0 {
			c, _ := q.cost(w, i, i+min(n, uint32(sent)))
			out += c
		}
		r.pass(int(n))
		if i+n == w.progress.count {
			q.complete(w, rdma.StatusSuccess)
			q.completeHead()
		}
	}
	if r.una != from {
		q.giveBack(min(out, r.flight.out), 0)
		resend := q.progressed(from, psnDiff(r.una, r.next) < 0, now)
		r.catchUp() // after the completions, which change the list
		if resend {
			q.backTo(now)
		}
	}
	return ok
}

// progressed records that una advanced. more says that requests without responses are in flight behind it. It reports
// whether these were lost.
func (q *QP) progressed(before uint32, more bool, now int64) (resend bool) {
	r := &q.req
	q.peer.heard.Store(now)
	r.disarm()
	sample, do := r.loss.Acknowledged(before, r.una, more, now)
	if sample != 0 {
		q.peer.out.measured(sample)
		q.peer.in.measured(sample)
	}
	return do == loss.Resend
}

// implied handles an answer of the peer to a later request, which shows that the response of una was lost.
func (q *QP) implied(now int64) {
	if q.lost(now) {
		q.count(func(n *counters) { n.ImpliedNAKs.Add(1) })
	}
}

// lost goes back to una, because a response reported a loss there. It reports whether it did.
func (q *QP) lost(now int64) bool {
	r := &q.req
	if q.state != rdma.StateRTS || r.head == nil || r.waiting || r.una == r.next || r.loss.Gap(now) == loss.Nothing {
		return false
	}
	q.backTo(now)
	return true
}

// backTo goes back to una, and counts what was in flight as lost.
func (q *QP) backTo(now int64) {
	r := &q.req
	if r.head == nil || q.state != rdma.StateRTS {
		return
	}
	q.port.n.Losses.Add(1)
	q.port.n.LostPackets.Add(uint64(max(0, psnDiff(r.next, r.una))))
	trip, _ := r.loss.Trip()
	q.peer.lostAll(&r.flight, trip, now)
	q.goBack(now)
}

// giveBack removes bytes that arrived from the windows, and lets the windows grow.
func (q *QP) giveBack(out, in int64) {
	q.port.ready.release(q.peer.arrived(&q.req.flight, out, in, q.fullCost()))
}

// goBack makes una the next packet to send.
func (q *QP) goBack(now int64) {
	r := &q.req
	if r.next != r.una {
		r.loss.Stopped(now)
	}
	r.goBack()
	r.mayBuild()
	q.port.ready.release(q.peer.release(&r.flight))
}

// complete removes w, the head of the list, and passes it to Handler.Completed, unless it is a part
// of a READ whose other parts are missing.
func (q *QP) complete(w *Work, st rdma.Status) {
	q.req.pop()
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
