package roce

import (
	"fmt"

	"github.com/softmkey/softmkey/internal/base/wire"
)

// response handles a packet from the peer's responder. raw is the whole packet; it is nil
// if the packet comes from the early buffer.
func (q *QP) response(k *packet, raw []byte, now int64) {
	r := &q.req
	if q.state != StateRTS {
		q.port.n.WrongState.Add(1)
		return
	}
	// Packets before una were answered before. Packets from high on were never sent,
	// so this is a response to nothing (a "ghost", section 9.9.2.3).
	stale := psnDiff(k.PSN, r.una) < 0
	ghost := psnDiff(k.PSN, r.high) >= 0
	if raw != nil {
		r.noteAnswer(k, now)
		if k.isReadResponse() && !ghost {
			q.readAnswered(now)
		}
	}
	if stale || ghost {
		q.port.n.StaleResponses.Add(1)
		if stale {
			q.answeringCopy(k, now)
		}
		return
	}
	r.again = true
	if q.recv.Selective {
		q.seeMark(k)
	}
	switch {
	case k.Opcode == wire.Acknowledge:
		q.acknowledge(k, now)
	case k.Opcode == wire.AtomicAcknowledge:
		q.atomicResponse(k, raw, now)
	default:
		q.readResponse(k, raw, now)
	}
}

// answeringCopy puts off the next probe if a standard peer is still sending the responses of
// a READ that was requested more than once. It executes the copies one after the other.
// Another copy would only come after them, and if probes are faster than the peer, it would never
// come to a request that counts. A copy of the READ that is outstanding puts the probe off
// only while it arrives without gaps, and for a short time: if packets are lost, the response of
// una may be one of them.
func (q *QP) answeringCopy(k *packet, now int64) {
	r := &q.req
	if k.Opcode == wire.Acknowledge || q.recv.Selective {
		return
	}
	if r.head == nil || psnDiff(k.PSN, r.head.progress.first) < 0 {
		r.probeFrom = now
	} else if k.PSN == psnAdd(r.copied, 1) {
		wait := q.probeAfter() - r.probeFrom
		r.probeFrom = max(r.probeFrom, now-wait+wait/copyParts)
	}
	r.copied = k.PSN
}

// copyParts is the part of the time to the next probe, as a divisor, in which a copy counts as
// still arriving after its last packet.
const copyParts = 16

// acknowledge handles an ACK or a NAK.
func (q *QP) acknowledge(k *packet, now int64) {
	r := &q.req
	aeth, _, _ := wire.ParseAETH(k.ext)
	switch aeth.Syndrome.Kind() {
	case wire.KindACK:
		// The peer has executed this request and all before it, and it sent their
		// READ and atomic responses before this ACK. If one of those is missing,
		// it was lost.
		if !q.advance(psnAdd(k.PSN, 1), now) {
			q.overtaken(k.PSN, now)
		}
		q.findLost(now)
	case wire.KindRNR:
		q.port.n.RNRReceived.Add(1)
		if !q.advance(k.PSN, now) {
			q.lost(now)
			return
		}
		if r.head == nil || r.waiting {
			return
		}
		q.renew(now) // the peer has received una; RNRRetry limits how often it may refuse it
		if q.send.RNRRetry != 7 {
			if r.rnrRetries == 0 {
				q.failHead(StatusRNRRetryExcErr, fmt.Errorf("the peer had no receive request for PSN %#x, after %d retries", k.PSN, q.send.RNRRetry))
				return
			}
			r.rnrRetries--
		}
		r.board.drop(&q.port.recovery)
		q.goBack(now)
		r.waiting = true
		r.deadline = now + int64(RNRTimer(aeth.Syndrome.Value()))
	case wire.KindNAK:
		q.nak(k, aeth.Syndrome, now)
	default:
		q.port.n.Malformed.Add(1)
	}
}

// nak handles a NAK other than RNR. It acknowledges everything before its PSN.
func (q *QP) nak(k *packet, s wire.Syndrome, now int64) {
	var st Status
	switch s {
	case wire.NAKSequence:
		q.port.n.SequenceNAKsReceived.Add(1)
		q.advance(k.PSN, now)
		q.lost(now)
		return
	case wire.NAKInvalidRequest:
		st = StatusRemInvReqErr
	case wire.NAKRemoteAccess:
		st = StatusRemAccessErr
	case wire.NAKRemoteOperational:
		st = StatusRemOpErr
	default:
		q.port.n.Malformed.Add(1)
		return
	}
	q.port.n.ErrorNAKsReceived.Add(1)
	if !q.advance(k.PSN, now) {
		q.lost(now)
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
		q.overtaken(k.PSN, now)
		return
	}
	w := r.head
	if w == nil {
		return // advance failed the QP
	}
	i := w.index(k.PSN)
	if w.Op != OpRead || !q.fitsRead(k, w, i) {
		q.failHead(StatusBadRespErr, fmt.Errorf("%v of %d bytes, PSN %#x: it fits no request", k.Opcode, len(k.payload), k.PSN))
		return
	}
	if len(k.payload) > 0 {
		if err := k.deliver(w.Dst); err != nil {
			q.failHead(localStatus(err), err)
			return
		}
	}
	last := i+1 == w.progress.count
	q.took(w, i, last, raw == nil, now)
}

// fitsRead reports whether k can be response i of READ w, by its length, its position and
// its syndrome. A READ can be requested again from any response to its end, so a first
// response may be at any position, but a last one only at the end.
func (q *QP) fitsRead(k *packet, w *Work, i uint32) bool {
	end := k.layout&(wire.IsLast|wire.IsOnly) != 0
	return int64(len(k.payload)) == q.bytes(w, i, i+1) && end == (i+1 == w.progress.count) && ackSyndrome(k)
}

// atomicResponse handles the result of an atomic operation.
func (q *QP) atomicResponse(k *packet, raw []byte, now int64) {
	if !q.advance(k.PSN, now) {
		q.holdResponse(k, raw, now)
		q.overtaken(k.PSN, now)
		return
	}
	w := q.req.head
	if w == nil {
		return // advance failed the QP
	}
	if w.Op != OpCmpSwap && w.Op != OpFetchAdd || !ackSyndrome(k) {
		q.failHead(StatusBadRespErr, fmt.Errorf("%v, PSN %#x: it fits no request", k.Opcode, k.PSN))
		return
	}
	h, _, _ := wire.ParseAtomicAckETH(k.ext[wire.AETHLen:])
	w.Orig = h.Orig
	q.took(w, 0, true, raw == nil, now)
}

// ackSyndrome reports whether a response has no AETH, or one that acknowledges.
func ackSyndrome(k *packet) bool {
	if k.layout&wire.HasAETH == 0 {
		return true
	}
	h, _, _ := wire.ParseAETH(k.ext)
	return h.Syndrome.Kind() == wire.KindACK
}

// took moves una past packet i of w, the head of the list, because the response for it
// arrived. last means that the request has no further responses. held means that the
// response comes from the early buffer and was removed from the window when it arrived.
func (q *QP) took(w *Work, i uint32, last, held bool, now int64) {
	r := &q.req
	q.executed(psnAdd(w.progress.first, 1))
	if psnDiff(r.una, r.tx) < 0 {
		out, in := q.cost(w, i, i+1)
		if r.board.on {
			out = q.passed(&r.board, w, i, 1, now)
		}
		if held {
			in = 0
		}
		q.giveBack(out, min(in, r.in), now)
		if last {
			r.reads--
		}
	}
	if r.asks != nil {
		*r.asked(r.una) = 0
	}
	r.una = psnAdd(r.una, 1)
	q.progressed(now)
	if i+1 == w.progress.count {
		if r.repeated && q.recv.Selective {
			// The peer may still hold RepeatResponses for this READ. They are
			// withdrawn before the application sees the completion, so every
			// message that it then sends, on any QP, leaves after the
			// withdrawal.
			r.withdraw, r.repeated = true, r.una != r.tx
			q.port.ready.push(q)
		}
		q.complete(w, StatusSuccess)
		q.completeHead()
	}
	q.catchUp()
	if psnDiff(r.done, r.una) > 0 {
		q.advance(r.done, now)
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
		if w.answered() {
			ok = false
			break
		}
		i := w.index(r.una)
		n := min(w.progress.count-i, uint32(psnDiff(to, r.una)))
		if r.board.on {
			out += q.passed(&r.board, w, i, n, now)
		} else if sent := psnDiff(r.tx, r.una); sent > 0 {
			c, _ := q.cost(w, i, i+min(n, uint32(sent)))
			out += c
		}
		r.una = psnAdd(r.una, int(n))
		moved = true
		if i+n == w.progress.count {
			q.complete(w, StatusSuccess)
			q.completeHead()
		}
	}
	if moved {
		q.giveBack(min(out, r.out), 0, now)
		probed := r.probed && r.una == psnAdd(r.probedPSN, 1) && from == r.probedPSN
		q.progressed(now)
		q.catchUp()
		if probed && !q.recv.Selective && r.una != r.tx {
			// The peer acknowledged the probe alone: the packets after it
			// were lost.
			q.lost(now)
		}
	}
	return ok
}

// progressed records that una advanced. It renews the retries and restarts the timers.
func (q *QP) progressed(now int64) {
	r := &q.req
	q.peer.heard.Store(now)
	q.renew(now)
	r.rnrRetries, r.tries = q.send.RNRRetry, 0
	if psnDiff(r.una, r.sackHigh) > 0 {
		r.sackHigh = r.una
	}
	r.gap, r.probed = false, false
	r.waiting = false
	r.deadline = 0 // settle sets it again after the batch of packets
	if r.rttStart != 0 && psnDiff(r.una, r.rttPSN) > 0 {
		// Karn's rule drops the sample of a retransmitted packet. After several
		// probes, however, the round trip is probably longer than the estimate,
		// and the time since the first transmission is at least the round trip.
		if !r.doubt || r.backoff >= 2 {
			r.rtt.add(now - r.rttStart)
		}
		r.rttStart = 0
	}
	r.probeFrom, r.backoff = now, 0
}

// catchUp moves tx up to una, if packets that were about to be retransmitted have been
// acknowledged.
func (q *QP) catchUp() {
	r := &q.req
	if psnDiff(r.una, r.tx) > 0 {
		r.tx = r.una
		r.cur = r.head
		for r.cur != nil && r.cur.progress.count == 0 {
			r.cur = r.cur.progress.next
		}
	}
}

// giveBack removes bytes that arrived from the windows, and lets the windows grow.
func (q *QP) giveBack(out, in, now int64) {
	r := &q.req
	r.out -= out
	r.in -= in
	if out != 0 {
		q.peer.out.grow(now, r.roundTrip(), out, q.inPackets(out))
		q.port.ready.push(q.peer.out.give(out))
	}
	if in != 0 {
		q.peer.in.grow(now, r.roundTrip(), in, q.inPackets(in))
		q.port.ready.push(q.peer.in.give(in))
	}
}

// inPackets returns the approximate number of packets for n bytes of a window.
func (q *QP) inPackets(n int64) int64 { return max(1, n/int64(q.recv.MTU+packetCost)) }

// overtaken handles a response psn that came before that of una, which is one of a READ or
// atomic: the response of una was lost. Only that READ is requested again, from una to its
// end. The responses after it are kept.
//
// Peers answer in the order of the requests. All responses that were requested before una
// was requested again come first, and a READ may have thousands. So una is lost once more
// only if the PSNs start again without it. With selective repeat, findGaps finds losses.
func (q *QP) overtaken(psn uint32, now int64) {
	r := &q.req
	if r.head == nil || r.waiting || q.recv.Selective {
		return
	}
	if r.gap && r.gapPSN == r.una {
		r.restarted = r.restarted || psnDiff(psn, r.gapHigh) <= 0
		r.gapHigh = psn
		if !r.restarted || now-r.gapTime < r.rtt.timeout() {
			return
		}
	}
	r.gap, r.gapPSN, r.gapTime = true, r.una, now
	r.gapHigh, r.restarted = psn, false
	missing := uint64(min(psnDiff(psn, r.una), int(r.head.progress.count-r.head.index(r.una))))
	q.port.n.Losses.Add(1)
	q.port.n.LostPackets.Add(missing)
	q.peer.in.cut(now, r.roundTrip(), int64(missing))
	r.probing = true
	r.rttStart = 0
}

// lost goes back to una, because a response reported a loss there. It does so once per
// loss, as all packets in flight after it report the same loss, and once more per round
// trip, as the retransmission may be lost too. With selective repeat it does nothing,
// because the scoreboard finds losses.
func (q *QP) lost(now int64) {
	r := &q.req
	if r.head == nil || r.waiting || q.recv.Selective {
		return
	}
	if r.gap && r.gapPSN == r.una && now-r.gapTime < r.rtt.timeout() {
		return
	}
	q.port.n.Losses.Add(1)
	q.port.n.LostPackets.Add(uint64(psnDiff(r.tx, r.una)))
	r.gap, r.gapPSN, r.gapTime = true, r.una, now
	q.cut(now)
	q.goBack(now)
}

// cut reports to the windows that everything in flight was lost.
func (q *QP) cut(now int64) {
	if q.req.in > 0 {
		q.peer.in.cut(now, q.req.roundTrip(), q.inPackets(q.req.in))
	}
	if q.req.out > 0 {
		q.peer.out.cut(now, q.req.roundTrip(), q.inPackets(q.req.out))
	}
}

// goBack makes una the next packet to send.
func (q *QP) goBack(now int64) {
	r := &q.req
	if r.tx != r.una {
		r.paused = now
	}
	r.tx = r.una
	r.cur = r.head
	for r.cur != nil && r.cur.progress.count == 0 {
		r.cur = r.cur.progress.next
	}
	r.reads = 0
	r.rttStart = 0
	q.releaseWindows()
	r.granted, r.grantEnd = r.una, r.una
	r.early.clear()
}

// releaseWindows removes the packets between una and tx from the windows.
func (q *QP) releaseWindows() {
	r := &q.req
	if r.out != 0 {
		q.port.ready.push(q.peer.out.give(r.out))
	}
	if r.in != 0 {
		q.port.ready.push(q.peer.in.give(r.in))
	}
	r.out, r.in = 0, 0
}

// timeout handles an expired deadline.
func (q *QP) timeout(now int64) {
	r := &q.req
	late := now - r.deadline
	r.deadline = 0
	if r.paceAt != 0 && r.paceAt <= now {
		r.paceAt = 0 // the caller queues the QP for sending
	}
	if r.waiting {
		r.waiting = false
		return
	}
	full := int64(AckTimeout(q.send.Timeout))
	// The QP waits for room in a window. If other QPs fill the window with packets to
	// a peer that is gone, room never appears, so this QP sends one packet without
	// room to find out.
	if r.una == r.tx {
		if r.blocked {
			r.probe = now-q.peer.heard.Load() >= full
		}
		return
	}
	if full != 0 && now >= r.since+full {
		if late > full/lateParts && !r.starved {
			// This process did not run for a while. Answers may wait in the
			// socket, and the timer must not count before they are read.
			r.starved = true
			r.since = now - full + min(late, full)
			return
		}
		r.starved = false
		q.port.n.Timeouts.Add(1)
		if r.retries == 0 {
			q.failHead(StatusRetryExcErr, q.noProgress())
			return
		}
		r.retries--
		r.since, r.probeFrom = now, now
		r.probe = true
		q.cut(now)
		r.board.drop(&q.port.recovery)
		q.goBack(now)
		r.gap = false
		return
	}
	if now >= q.probeAfter() {
		q.port.n.Probes.Add(1)
		r.probeFrom = now
		r.backoff++
		r.probing = true
	}
}

// lateParts is the part of a full timeout by which a timer may be late before that counts as
// a sign that the process did not run.
const lateParts = 8

// complete removes w, the head of the list, and passes it to Handler.Completed.
func (q *QP) complete(w *Work, st Status) {
	r := &q.req
	r.head = w.progress.next
	if r.head == nil {
		r.tail = nil
	}
	w.progress.next = nil
	// Completed may reuse w, so w is not read after it. If Completed changes a
	// success to a failure, the reason in words is not known here; Failure describes
	// its status.
	if got := q.h.Completed(w, st); got != StatusSuccess {
		q.failRest(Failure{Status: got, Err: got.Err()})
	}
}

// completeHead completes Work at the head of the list that waits for no acknowledgement:
// local work, and Work that is marked to fail.
func (q *QP) completeHead() {
	r := &q.req
	for w := r.head; w != nil; w = r.head {
		if w.progress.failed {
			q.failHead(w.progress.status, q.failure)
			return
		}
		if w.progress.count != 0 {
			return
		}
		if st := w.progress.status; st != StatusSuccess {
			q.failHead(st, w.Err)
			return
		}
		q.complete(w, StatusSuccess)
	}
}

// reason returns err, or st as an error if err is nil.
func reason(err error, st Status) error {
	if err == nil {
		return st.Err()
	}
	return err
}

// failHead completes the first Work with st and puts the QP in the error state.
func (q *QP) failHead(st Status, err error) {
	r := &q.req
	w := r.head
	r.head = w.progress.next
	w.progress.next = nil
	err = reason(err, st)
	w.Err = err
	q.h.Completed(w, st) // may reuse w
	q.failRest(Failure{Status: st, Err: err})
}
