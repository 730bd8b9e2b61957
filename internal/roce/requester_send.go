package roce

import (
	"encoding/binary"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/internal/roce/internal/congestion"
	"github.com/softmkey/softmkey/rdma"
)

// turnBytes limits the bytes that one QP sends before the next QP has its turn. A message
// of 64 KiB in packets of 4 KiB fits one turn.
const turnBytes = 72 << 10

// buildRequests adds requests to b until the turn ends or nothing more can be sent. It
// reports whether the QP needs another turn, which is the case only if the end of the
// turn stopped it.
func (q *QP) buildRequests(b *builder, now int64) (more bool) {
	r := &q.req
	if q.state != rdma.StateRTS || r.waiting {
		return false
	}
	r.flight.begin()
	if q.dci != nil {
		if ready, more := q.dci.arrange(b, now); !ready {
			return more
		}
	}
	// The limit is read once: putData sets the acknowledge-request bit on the last
	// packet that fits the limit, so the limit must not change during the turn.
	limit := q.peer.out.limit.Load()
	if r.asks && !q.putQuestion(b, now) {
		return true
	}
	budget := int64(turnBytes)
	for {
		w := r.cur
		if w == nil {
			if w = q.begin(); w == nil {
				return false
			}
		}
		if w.progress.failed {
			return false // w must wait until the packets before it are acknowledged
		}
		if budget <= 0 {
			return true
		}
		if q.dci != nil && !q.dci.allows(r, w) {
			return false // it is sent when the requests before it have completed
		}
		i := w.index(r.next)
		j := i + 1
		if w.Op == ibv.WRRead {
			j = w.progress.count
		}
		if w.hasResponses() && int(r.inFlight) >= q.maxReads() {
			return false
		}
		out, in := q.cost(w, i, j)
		if !r.flight.forced && !q.peer.room(q, out, in, limit) || psnDiff(r.next, r.una) >= maxOutstanding {
			return false
		}
		var ok bool
		switch {
		case w.Op == ibv.WRRead:
			ok = q.putRead(b, w, i, j, r.next)
		case w.hasResponses():
			ok = q.putAtomic(b, w, r.next)
		default:
			ok = q.putData(b, w, i, r.next, min(budget, limit-q.peer.out.used.Load()))
		}
		if !ok {
			return q.notPut(w)
		}
		q.sent(w, i, j, out, in, now)
		budget -= max(out, congestion.PacketCost)
	}
}

// maxReads returns the largest number of READs and atomics that may be outstanding.
func (q *endpoint) maxReads() int {
	if q.dci != nil {
		return q.dci.reads
	}
	return int(q.send.MaxRdAtomic)
}

// sent records that packets [i, j) of w were sent, which are next in order. out and in are the bytes in the windows.
func (q *QP) sent(w *Work, i, j uint32, out, in, now int64) {
	r := &q.req
	r.flight.forced = false
	starts, again := r.next == r.una, psnDiff(r.next, r.high) < 0
	if starts {
		r.deadline = 0 // the deadline was for room in the window, and there is room
	}
	// Responses of other requests come first, so that no round trip begins while READs are in flight.
	r.loss.Sent(r.next, starts, r.unasked == 0 && r.inFlight == 0, again, now)
	q.peer.sent(&r.flight, out, in)
	if again {
		q.sentAgain(w, r.next, j-i)
	}
	r.workList.sent(w, int(j-i), j == w.progress.count)
}

// sentAgain records that n packets of w from psn on were retransmitted. For a READ they are
// the responses that were requested.
func (q *QP) sentAgain(w *Work, psn, n uint32) {
	w.progress.again += n
	q.count(func(n *counters) { n.Retransmitted.Add(1) })
	q.h.Retransmitted(psn, n)
}

// putQuestion sends packet una once more, or asks for its response. It reports whether the trains had room.
func (q *QP) putQuestion(b *builder, now int64) bool {
	r := &q.req
	w := r.head.sendable()
	if w == nil || r.una == r.next || w.progress.failed {
		r.asks = false
		return true
	}
	i, n, ok := w.index(r.una), uint32(1), false
	switch {
	case w.Op == ibv.WRRead:
		n = w.progress.count - i
		ok = q.putRead(b, w, i, i+n, r.una)
	case w.hasResponses():
		ok = q.putAtomic(b, w, r.una)
	default:
		ok = q.putData(b, w, i, r.una, 0)
	}
	if !ok && q.notPut(w) {
		return false
	}
	if r.asks = false; ok {
		r.loss.Sent(r.una, false, false, true, now)
		q.sentAgain(w, r.una, n)
	}
	return true
}

// dataOps holds the opcodes of SEND and WRITE by the position of the packet in its
// message.
var dataOps = [...][4]wire.Opcode{
	ibv.WRWrite:    {wire.WriteFirst, wire.WriteMiddle, wire.WriteLast, wire.WriteOnly},
	ibv.WRWriteImm: {wire.WriteFirst, wire.WriteMiddle, wire.WriteLastImm, wire.WriteOnlyImm},
	ibv.WRSend:     {wire.SendFirst, wire.SendMiddle, wire.SendLast, wire.SendOnly},
	ibv.WRSendImm:  {wire.SendFirst, wire.SendMiddle, wire.SendLastImm, wire.SendOnlyImm},
	ibv.WRSendInv:  {wire.SendFirst, wire.SendMiddle, wire.SendLastInv, wire.SendOnlyInv},
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

// putData adds packet i of a SEND or WRITE, with PSN psn, to b. room is the number of
// bytes that the turn and the send window allow for this packet and the next.
func (q *QP) putData(b *builder, w *Work, i, psn uint32, room int64) bool {
	r := &q.req
	mtu := q.mtuOf(w)
	off := uint64(i) * uint64(mtu)
	n := int(min(uint64(mtu), uint64(w.Length)-off))
	pos := position(i, w.progress.count)
	op := dataOps[w.Op][pos].With(q.service)
	head := op.HeaderLen()
	size := head + n + pads(n) + wire.ICRCLen
	way := q.path()
	p, id := b.add(&way, size)
	if p == nil {
		return false
	}
	payload := view(w.Src, off, n)
	if payload == nil && n > 0 {
		if err := w.Src.ReadAt(p[head:head+n], off); err != nil {
			b.undo(size)
			q.req.failSource(w, err)
			return false
		}
	}
	bth := wire.BTH{
		Opcode: op, MigReq: true, Pad: uint8(pads(n)), PKey: wire.DefaultPKey,
		DestQP: q.recv.DestQPN, PSN: psn,
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
		bth.AckReq = two > room || !b.fits(&way, wire.BTHLen+wire.ImmDtLen+mtu+wire.ICRCLen) ||
			r.unasked >= q.peer.out.limit.Load()/ackParts
	}
	if r.unasked += int64(n) + congestion.PacketCost; bth.AckReq {
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
		binary.BigEndian.PutUint32(ext, w.Imm)
	}
	if layout&wire.HasIETH != 0 {
		binary.BigEndian.PutUint32(ext, w.InvKey)
	}
	q.seal(p, id, head, n, payload)
	return true
}

// ackParts is the smallest number of acknowledgements requested per window.
const ackParts = 8

// putRead adds a READ request for responses [i, j) of w to b; psn is the PSN of the
// first.
func (q *endpoint) putRead(b *builder, w *Work, i, j, psn uint32) bool {
	op := wire.ReadRequest.With(q.service)
	size := op.HeaderLen() + wire.ICRCLen
	way := q.path()
	p, id := b.add(&way, size)
	if p == nil {
		return false
	}
	mark := uint8(0)
	if w.progress.continues() {
		mark = wire.ReadContinues
	}
	wire.PutBTH(p, &wire.BTH{
		Opcode: op, MigReq: true, PKey: wire.DefaultPKey,
		DestQP: q.recv.DestQPN, PSN: psn, AckReq: true, Mark: mark,
	})
	wire.PutRETH(q.putXRCETH(p[wire.BTHLen:], w), &wire.RETH{
		VA:     w.RemoteAddr + uint64(i)*uint64(q.mtu()),
		RKey:   w.RKey,
		Length: uint32(q.bytes(w, i, j)),
	})
	q.finish(p, id)
	return true
}

// putXRCETH writes the header that names the peer's shared receive queue, if the service
// is XRC. It returns the bytes of ext after that header.
func (q *endpoint) putXRCETH(ext []byte, w *Work) []byte {
	if q.service != wire.ServiceXRC {
		return ext
	}
	binary.BigEndian.PutUint32(ext, w.SRQ&psnMask)
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
func (l *workList) failSource(w *Work, err error) {
	w.progress.failed = true
	w.progress.status = localStatus(err)
	w.Err = err
	l.stop()
}
