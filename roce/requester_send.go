package roce

import "github.com/softmkey/softmkey/internal/base/wire"

// turnBytes limits the bytes that one QP sends before the next QP has its turn. A message
// of 64 KiB in packets of 4 KiB fits one turn.
const turnBytes = 72 << 10

// buildRequests adds requests to b until the turn ends or nothing more can be sent. It
// reports whether the QP needs another turn, which is the case only if the end of the
// turn stopped it.
func (q *QP) buildRequests(b *builder, now int64) (more bool) {
	r := &q.req
	if q.state != StateRTS || r.waiting {
		return false
	}
	r.blocked, r.paceAt = false, 0
	if q.recv.Selective && (q.grantMore(now) || len(r.ask) > 0 || r.withdraw) && !q.putAsk(b) {
		return true
	}
	// The limit is read once: putData sets the acknowledge-request bit on the last
	// packet that fits the limit, so the limit must not change during the turn.
	limit := q.peer.out.limit.Load()
	budget := int64(turnBytes)
	if r.probing && !q.putProbe(b, now) {
		return true
	}
	if stop, more := q.buildMissing(b, now, &budget); stop {
		return more
	}
	for {
		w := r.cur
		if w == nil {
			if w = q.begin(); w == nil {
				return false
			}
		}
		if w.progress.failed {
			return false // the packets of w before this one must be acknowledged first
		}
		if budget <= 0 {
			return true
		}
		i := w.index(r.tx)
		j := i + 1
		if w.Op == OpRead {
			j = w.progress.count
		}
		if w.answered() && r.reads >= q.send.MaxRdAtomic {
			return false
		}
		out, in := q.cost(w, i, j)
		grant := uint32(0)
		if w.Op == OpRead && q.recv.Selective {
			// The request itself needs no room in the window. Its responses
			// are granted as room appears.
			grant = q.firstGrant(w, i)
			_, in = q.cost(w, i, i+grant)
		}
		if !r.probe && (w.Op != OpRead || !q.recv.Selective) && !q.room(out, in, limit) {
			r.blocked = true
			return false
		}
		if !r.probe && !q.paced(now, out+in) || psnDiff(r.tx, r.una) >= maxScoreboard || r.tx == r.high && !q.roomOnBoard(int(j-i)) {
			return false
		}
		var ok bool
		switch {
		case w.Op == OpRead:
			ok = q.putRead(b, w, i, j, r.tx, grantMark(q.recv.Selective, grant, j-i))
		case w.answered():
			ok = q.putAtomic(b, w, r.tx)
		default:
			ok = q.putData(b, w, i, r.tx, min(budget, limit-q.peer.out.used.Load()))
		}
		if !ok {
			return q.notPut(w)
		}
		r.probe = false
		if r.tx == r.una {
			r.deadline = 0            // it was the deadline of waiting for room
			r.since += now - r.paused // nothing was in flight since r.paused
			r.probeFrom = now
		}
		if w.Op == OpRead && q.recv.Selective {
			r.grantEnd = psnAdd(r.tx, int(j-i))
			if grant > 0 {
				r.granted = psnAdd(r.tx, int(grant))
			}
		}
		q.peer.out.used.Add(out)
		q.peer.in.used.Add(in)
		r.out += out
		r.in += in
		alone := r.reads == 0 // no responses of other requests come first
		if w.answered() {
			r.reads++
		}
		if psnDiff(r.tx, r.high) < 0 {
			r.repeated = true
			r.tried(r.tx)
			q.noteAgain(w, r.tx, j-i)
		} else if r.rttStart == 0 && r.unasked == 0 && alone && (w.Op != OpRead || in > 0) {
			r.rttStart, r.rttPSN, r.doubt = now, r.tx, false
		}
		if r.tx == r.high {
			q.noteSent(r.tx, int(j-i), now)
		}
		r.tx = psnAdd(r.tx, int(j-i))
		if psnDiff(r.tx, r.high) > 0 {
			r.high = r.tx
		}
		if j == w.progress.count {
			r.cur = w.progress.next
			for r.cur != nil && r.cur.progress.count == 0 {
				r.cur = r.cur.progress.next
			}
		}
		budget -= max(out, packetCost)
	}
}

// noteAgain records that n packets of w from psn on are sent again.
func (q *QP) noteAgain(w *Work, psn, n uint32) {
	w.progress.again += n
	q.port.n.Retransmitted.Add(1)
	if h, ok := q.h.(TraceHandler); ok {
		h.Retransmitted(psn, n)
	}
}

// noteStall reports to the TraceHandler why nothing is sent, if the reason changed.
func (q *QP) noteStall() {
	why := StallNone
	switch r := &q.req; {
	case r.waiting:
		why = StallRNR
	case r.blocked:
		why = StallWindow
	}
	if why == q.req.stall {
		return
	}
	q.req.stall = why
	if h, ok := q.h.(TraceHandler); ok {
		h.Stalled(why)
	}
}

// probedResponses is the number of responses that a probe asks for.
const probedResponses = 4

// putProbe retransmits the oldest unacknowledged packet, or asks for the first missing
// responses.
func (q *QP) putProbe(b *builder, now int64) bool {
	r := &q.req
	w := r.head
	for w != nil && w.progress.count == 0 {
		w = w.progress.next
	}
	if w == nil || r.una == r.tx || w.progress.failed {
		r.probing = false
		return true
	}
	i := w.index(r.una)
	if q.recv.Selective && w.answered() && psnDiff(r.done, w.progress.first) > 0 {
		// The peer has the request, so only responses are missing.
		r.ask = r.ask[:0]
		q.missingResponses(r.una, psnAdd(r.una, probedResponses), true, now)
		r.sounding, r.soundMark, r.soundHigh = true, r.askMark, psnAdd(r.granted, reorderPackets)
		r.probing = false
		return q.putAsk(b)
	}
	if r.board.on {
		q.probeOnBoard(w, i, now)
	}
	if !q.putAgain(b, w, i, r.una) {
		if q.notPut(w) {
			return false
		}
		r.probing = false
		return true
	}
	r.probing = false
	r.probed, r.probedPSN = true, r.una
	r.doubt = r.doubt || r.rttPSN == r.una
	return true
}

// room reports whether the windows have room. If not, it makes the QP wait for it.
func (q *QP) room(out, in, limit int64) bool {
	for w := &q.peer.out; out != 0; limit = w.limit.Load() {
		if used := w.used.Load(); used <= 0 || used+out <= limit {
			break
		}
		if w.wait(q, out, &q.waitsOut) {
			return false
		}
	}
	for w := &q.peer.in; in != 0 && !w.room(in); {
		if w.wait(q, in, &q.waitsIn) {
			return false
		}
	}
	return true
}

// dataOps holds the opcodes of SEND and WRITE by the position of the packet in its
// message.
var dataOps = [...][4]wire.Opcode{
	OpWrite:    {wire.WriteFirst, wire.WriteMiddle, wire.WriteLast, wire.WriteOnly},
	OpWriteImm: {wire.WriteFirst, wire.WriteMiddle, wire.WriteLastImm, wire.WriteOnlyImm},
	OpSend:     {wire.SendFirst, wire.SendMiddle, wire.SendLast, wire.SendOnly},
	OpSendImm:  {wire.SendFirst, wire.SendMiddle, wire.SendLastImm, wire.SendOnlyImm},
	OpSendInv:  {wire.SendFirst, wire.SendMiddle, wire.SendLastInv, wire.SendOnlyInv},
}

// Positions of a packet in its message.
const (
	first = iota
	middle
	last
	only
)

// position returns the position of packet i in a message of n packets.
func position(i, n uint32) int {
	switch {
	case n == 1:
		return only
	case i == 0:
		return first
	case i == n-1:
		return last
	}
	return middle
}

// paced reports whether pacing allows sending n bytes now. If not, it sets the time of
// the next attempt.
func (q *QP) paced(now, n int64) bool {
	r := &q.req
	rtt := r.roundTrip()
	if rtt < longRTT {
		return true
	}
	if wait := q.peer.out.pace(now, rtt, n); wait > 0 {
		r.paceAt = now + wait
		return false
	}
	return true
}

// putData adds packet i of a SEND or WRITE, with PSN psn, to b. room is the number of
// bytes that the turn and the send window allow for this packet and the next.
func (q *QP) putData(b *builder, w *Work, i, psn uint32, room int64) bool {
	r := &q.req
	mtu := q.recv.MTU
	off := uint64(i) * uint64(mtu)
	n := int(min(uint64(mtu), uint64(w.Length)-off))
	pos := position(i, w.progress.count)
	op := dataOps[w.Op][pos].With(q.service)
	head := op.HeaderLen()
	size := head + n + pads(n) + wire.ICRCLen
	p, id := b.add(q.link, q.recv.Peer, size)
	if p == nil {
		return false
	}
	payload := view(w.Src, off, n)
	if payload == nil && n > 0 {
		if err := w.Src.ReadAt(p[head:head+n], off); err != nil {
			b.undo(size)
			q.failSource(w, err)
			return false
		}
	}
	bth := wire.BTH{
		Opcode: op, MigReq: true, Pad: uint8(pads(n)), PKey: wire.DefaultPKey,
		DestQP: q.recv.DestQPN, PSN: psn,
	}
	if q.recv.Selective {
		bth.Mark = wire.OutstandingMark(r.reads)
	}
	// Acknowledgements are requested for the last packet of a message and for the
	// last packet before a pause. Without the second, a full window might never
	// empty.
	switch {
	case pos == last || pos == only:
		bth.AckReq = q.acknowledged()
		bth.Solicited = w.Solicited
	case q.acknowledged():
		two, _ := q.cost(w, i, i+2)
		bth.AckReq = two > room || !b.fits(q.link, q.recv.Peer, wire.BTHLen+wire.ImmDtLen+mtu+wire.ICRCLen) ||
			r.unasked >= q.peer.out.limit.Load()/ackParts
	}
	if r.unasked += int64(n) + packetCost; bth.AckReq {
		r.unasked = 0
	}
	wire.PutBTH(p, &bth)
	ext := q.putXRCETH(p[wire.BTHLen:], w)
	layout := op.Layout()
	if layout&wire.HasRETH != 0 {
		wire.PutRETH(ext, &wire.RETH{VA: w.RemoteAddr, RKey: w.RKey, Length: w.Length})
		ext = ext[wire.RETHLen:]
	}
	if layout&wire.HasImmDt != 0 {
		wire.PutImmDt(ext, &wire.ImmDt{Imm: w.Imm})
	}
	if layout&wire.HasIETH != 0 {
		wire.PutIETH(ext, &wire.IETH{RKey: w.InvKey})
	}
	q.seal(p, id, head, n, payload)
	return true
}

// ackParts is the smallest number of acknowledgements requested per window.
const ackParts = 8

// putRead adds a READ request for responses [i, j) of w to b; psn is the PSN of the
// first.
func (q *QP) putRead(b *builder, w *Work, i, j, psn uint32, mark uint8) bool {
	op := wire.ReadRequest.With(q.service)
	size := op.HeaderLen() + wire.ICRCLen
	p, id := b.add(q.link, q.recv.Peer, size)
	if p == nil {
		return false
	}
	wire.PutBTH(p, &wire.BTH{
		Opcode: op, MigReq: true, PKey: wire.DefaultPKey,
		DestQP: q.recv.DestQPN, PSN: psn, AckReq: true, Mark: mark,
	})
	wire.PutRETH(q.putXRCETH(p[wire.BTHLen:], w), &wire.RETH{
		VA:     w.RemoteAddr + uint64(i)*uint64(q.recv.MTU),
		RKey:   w.RKey,
		Length: uint32(q.bytes(w, i, j)),
	})
	q.flow.Front(size).WithID(id).PutICRC(p)
	q.req.expect(j - i)
	return true
}

// putAtomic adds an atomic request with PSN psn to b.
func (q *QP) putAtomic(b *builder, w *Work, psn uint32) bool {
	op := wire.FetchAdd.With(q.service)
	size := op.HeaderLen() + wire.ICRCLen
	p, id := b.add(q.link, q.recv.Peer, size)
	if p == nil {
		return false
	}
	bth := wire.BTH{
		Opcode: op, MigReq: true, PKey: wire.DefaultPKey,
		DestQP: q.recv.DestQPN, PSN: psn, AckReq: true,
	}
	eth := wire.AtomicETH{VA: w.RemoteAddr, RKey: w.RKey, SwapAdd: w.CompareAdd}
	if w.Op == OpCmpSwap {
		bth.Opcode = wire.CompareSwap.With(q.service)
		eth.SwapAdd, eth.Compare = w.Swap, w.CompareAdd
	}
	wire.PutBTH(p, &bth)
	wire.PutAtomicETH(q.putXRCETH(p[wire.BTHLen:], w), &eth)
	q.flow.Front(size).WithID(id).PutICRC(p)
	return true
}

// putXRCETH writes the header that names the peer's shared receive queue, if the service
// is XRC. It returns the bytes of ext after that header.
func (q *QP) putXRCETH(ext []byte, w *Work) []byte {
	if q.service != wire.ServiceXRC {
		return ext
	}
	wire.PutXRCETH(ext, &wire.XRCETH{SRQ: w.SRQ})
	return ext[wire.XRCETHLen:]
}

// notPut is called after a packet of w could not be added to the trains. It reports whether
// the trains are full. Otherwise w's Source failed, and notPut completes w if it is the head
// of the list; w must not be used after that.
func (q *QP) notPut(w *Work) (full bool) {
	if !w.progress.failed {
		return true
	}
	q.completeHead()
	return false
}

// failSource marks w to fail with err, which its Source returned, once all Work before it
// has completed. No more Work is begun.
func (q *QP) failSource(w *Work, err error) {
	w.progress.failed = true
	w.progress.status = localStatus(err)
	q.failure = err
	q.req.stopped = true
}
