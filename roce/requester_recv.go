package roce

import (
	"fmt"

	"github.com/softmkey/softmkey/internal/base/wire"
)

// response takes a packet from the peer's responder. raw is the whole packet, nil if it
// was kept already.
func (q *QP) response(k *packet, raw []byte, now int64) {
	r := &q.req
	if q.state != StateRTS {
		q.port.n.WrongState.Add(1)
		return
	}
	// What is older than una was answered before; what was never sent cannot be
	// answered (a "ghost", section 9.9.2.3).
	if psnDiff(k.PSN, r.una) < 0 || psnDiff(k.PSN, r.high) >= 0 {
		q.port.n.StaleResponses.Add(1)
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

// acknowledge takes an ACK or NAK.
func (q *QP) acknowledge(k *packet, now int64) {
	r := &q.req
	aeth, _, _ := wire.ParseAETH(k.ext)
	switch aeth.Syndrome.Kind() {
	case wire.KindACK:
		// Everything up to and with this packet has been done, and its responses
		// were sent before this one.
		if !q.advance(psnAdd(k.PSN, 1), now) {
			q.lost(now)
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
		if q.send.RNRRetry != 7 {
			if r.rnrRetries == 0 {
				q.failHead(StatusRNRRetryExcErr, fmt.Errorf("the peer had no receive request for PSN %#x, after %d retries", k.PSN, q.send.RNRRetry))
				return
			}
			r.rnrRetries--
		}
		r.board.on = false
		q.goBack()
		r.waiting = true
		r.deadline = now + int64(RNRTimer(aeth.Syndrome.Value()))
	case wire.KindNAK:
		q.nak(k, aeth.Syndrome, now)
	default:
		q.port.n.Malformed.Add(1)
	}
}

// nak takes a NAK: everything before its packet has been done.
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

// readResponse takes a packet of READ data.
//
// Its sequence number says where in its READ it belongs.
func (q *QP) readResponse(k *packet, raw []byte, now int64) {
	r := &q.req
	if !q.advance(k.PSN, now) {
		q.holdResponse(k, raw, now)
		q.lost(now)
		return
	}
	w := r.head
	if w == nil {
		return // the QP failed on the way
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

// fitsRead reports whether k can be response i of READ w: its length, its position and
// its syndrome. A READ is requested again from any packet to its end, so that a first
// response may come anywhere, and a last one only at the end.
func (q *QP) fitsRead(k *packet, w *Work, i uint32) bool {
	end := k.layout&(wire.IsLast|wire.IsOnly) != 0
	return int64(len(k.payload)) == q.bytes(w, i, i+1) && end == (i+1 == w.progress.count) && ackSyndrome(k)
}

// atomicResponse takes the result of an atomic operation.
func (q *QP) atomicResponse(k *packet, raw []byte, now int64) {
	if !q.advance(k.PSN, now) {
		q.holdResponse(k, raw, now)
		q.lost(now)
		return
	}
	w := q.req.head
	if w == nil {
		return // the QP failed on the way
	}
	if w.Op != OpCmpSwap && w.Op != OpFetchAdd || !ackSyndrome(k) {
		q.failHead(StatusBadRespErr, fmt.Errorf("%v, PSN %#x: it fits no request", k.Opcode, k.PSN))
		return
	}
	h, _, _ := wire.ParseAtomicAckETH(k.ext[wire.AETHLen:])
	w.Orig = h.Orig
	q.took(w, 0, true, raw == nil, now)
}

// ackSyndrome reports whether a response has no AETH or one that acknowledges.
func ackSyndrome(k *packet) bool {
	if k.layout&wire.HasAETH == 0 {
		return true
	}
	h, _, _ := wire.ParseAETH(k.ext)
	return h.Syndrome.Kind() == wire.KindACK
}

// took moves una past packet i of w, the head, for which the response came;
// last says that no other response belongs to the same request.
// held says that the response was kept, and taken off the window when it came.
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
	r.una = psnAdd(r.una, 1)
	q.progressed(now)
	if i+1 == w.progress.count {
		if r.repeated && q.recv.Selective {
			// The peer may still have requests to repeat these responses. They are withdrawn
			// before the application hears of the completion: a message to the peer, on any
			// QP, then leaves after the withdrawal.
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

// advance moves una up to PSN to: everything before it has been acknowledged,
// if only by the response to something behind it. It stops at a READ or atomic
// whose own response has not come, and reports whether it got by without.
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
			// The peer took the probe and had none of the packets behind it.
			q.lost(now)
		}
	}
	return ok
}

// progressed notes that una moved: the peer is there.
func (q *QP) progressed(now int64) {
	r := &q.req
	q.peer.heard.Store(now)
	r.retries, r.rnrRetries = q.send.RetryCount, q.send.RNRRetry
	r.gap, r.probed = false, false
	r.waiting = false
	r.deadline = 0 // set again when the batch of packets is done
	if r.rttStart != 0 && psnDiff(r.una, r.rttPSN) > 0 {
		// After several probes the round trip is probably longer than thought. The
		// time since the first transmission is not too short in any case.
		if !r.doubt || r.backoff >= 2 {
			r.rtt.add(now - r.rttStart)
		}
		r.rttStart = 0
	}
	r.since, r.probeFrom, r.backoff = now, now, 0
}

// catchUp moves tx up to una, if a response came for what was about to be sent
// again.
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

// giveBack takes bytes that arrived off the windows and lets those grow.
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

// inPackets returns about how many packets n bytes of a window are.
func (q *QP) inPackets(n int64) int64 { return max(1, n/int64(q.recv.MTU+packetCost)) }

// lost goes back to una: a response reported a loss from there on. It does so once for
// each loss, because the packets in flight behind it report the same one, and once again
// for each round trip, because a retransmission may be lost, too. With selective repeat
// it does nothing: the scoreboard finds losses.
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
	q.goBack()
}

// cut tells the windows that everything in flight is sent again.
func (q *QP) cut(now int64) {
	if q.req.in > 0 {
		q.peer.in.cut(now, q.req.roundTrip(), q.inPackets(q.req.in))
	}
	if q.req.out > 0 {
		q.peer.out.cut(now, q.req.roundTrip(), q.inPackets(q.req.out))
	}
}

// goBack makes una the next to send.
func (q *QP) goBack() {
	r := &q.req
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

// releaseWindows takes everything off the windows that lies between una and tx.
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

// timeout is called when the deadline has passed.
func (q *QP) timeout(now int64) {
	r := &q.req
	r.deadline = 0
	if r.paceAt != 0 && r.paceAt <= now {
		r.paceAt = 0 // the caller lets the QP send
	}
	if r.waiting {
		r.waiting = false
		return
	}
	full := int64(AckTimeout(q.send.Timeout))
	// Where others keep the window full with packets to a peer that is no
	// longer there, waiting for room must come to an end, too.
	if r.una == r.tx {
		if r.blocked {
			r.probe = now-q.peer.heard.Load() >= full
		}
		return
	}
	if full != 0 && now >= max(r.since, q.heard)+full {
		q.port.n.Timeouts.Add(1)
		if r.retries == 0 {
			q.failHead(StatusRetryExcErr, fmt.Errorf("no answer from %v QP %#x to PSN %#x, after %d retries of %v",
				q.recv.Peer, q.recv.DestQPN, r.una, q.send.RetryCount, AckTimeout(q.send.Timeout)))
			return
		}
		r.retries--
		r.since, r.probeFrom = now, now
		r.probe = true
		q.cut(now)
		r.board.on = false
		q.goBack()
		r.gap = false
		return
	}
	if now >= r.probeAfter(full, !q.recv.Selective) {
		q.port.n.Probes.Add(1)
		r.probeFrom = now
		r.backoff++
		r.probing = true
	}
}

// complete takes w, the head, out of the list and gives it back.
func (q *QP) complete(w *Work, st Status) {
	r := &q.req
	r.head = w.progress.next
	if r.head == nil {
		r.tail = nil
	}
	w.progress.next = nil
	// Completed may hand w out again, so nothing of w is read after it. The Handler knows
	// best why it fails a Work that succeeded here; Failure has its status in words.
	if got := q.h.Completed(w, st); got != StatusSuccess {
		q.failRest(Failure{Status: got, Err: got.Err()})
	}
}

// completeHead completes what needs no more acknowledgement: local work at the
// head of the list, and what is to fail there.
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

// reason returns err, or the status in words if nobody gave a reason.
func reason(err error, st Status) error {
	if err == nil {
		return st.Err()
	}
	return err
}

// failHead ends the first Work with st and puts the QP in the error state.
func (q *QP) failHead(st Status, err error) {
	r := &q.req
	w := r.head
	r.head = w.progress.next
	w.progress.next = nil
	err = reason(err, st)
	w.Err = err
	q.h.Completed(w, st) // which may use w again
	q.failRest(Failure{Status: st, Err: err})
}
