package roce

import (
	"encoding/binary"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/internal/roce/internal/congestion"
	"github.com/softmkey/softmkey/rdma"
)

// buildResponses adds the responder's packets to b until the turn ends. It reports
// whether the QP needs another turn.
func (q *QP) buildResponses(b *builder) (more bool) {
	s := &q.resp
	if q.state < rdma.StateRTR || q.state > rdma.StateRTS {
		return false
	}
	if s.cnp.due {
		if !q.putCNP(b) {
			return true
		}
		s.cnp.sent()
		q.port.n.CNPSent.Add(1)
	}
	budget := turnBytes
	for s.open > 0 {
		if budget <= 0 {
			return true
		}
		e := s.oldest()
		n := q.putResponse(b, e)
		if n == 0 {
			return true
		}
		budget -= n
	}
	switch {
	case s.nak != 0:
		if !q.putACK(b, s.nak, s.msn, s.nakPSN) {
			return true
		}
		switch {
		case s.nak == wire.NAKSequence:
			q.port.n.SequenceNAKsSent.Add(1)
		case s.nak.Kind() == wire.KindRNR:
			q.count(func(n *counters) { n.RNRSent.Add(1) })
		default:
			q.port.n.ErrorNAKsSent.Add(1)
		}
		s.nak, s.ack = 0, false
	case s.ack:
		if !q.putACK(b, wire.ACKNoCredits, s.msn, s.done) {
			return true
		}
		s.ack = false
	}
	if s.dying != nil {
		q.failRest(*s.dying)
	}
	return false
}

// answers reports whether buildResponses has something to send.
func (s *responder) answers() bool {
	return s.open > 0 || s.nak != 0 || s.ack || s.cnp.due
}

// oldest returns the first pending resource. The caller knows that there is one.
func (s *responder) oldest() *resource {
	i := int(s.next)
	for !s.ring[i].pending {
		i = (i + 1) % len(s.ring)
	}
	return &s.ring[i]
}

// putResponse adds the next response of e to b. It returns the bytes to charge to the
// turn, or 0 if the trains are full.
func (q *QP) putResponse(b *builder, e *resource) int {
	psn := psnAdd(e.first, int(e.cur))
	if e.kind != wire.ReadRequest {
		n := q.putAtomicResponse(b, e, q.resp.msn)
		if n > 0 {
			e.sent = 1
			q.resp.closeRead(e, q.h)
			q.resp.answeredUpTo(psn)
		}
		return n
	}
	src := e.src
	if at := uint64(e.skip) + uint64(e.cur)*uint64(q.mtu()); e.kept.has(at) {
		src = e.kept
	}
	n, err := q.putReadResponse(b, e, src, e.cur, q.resp.msn, readOps[position(e.cur-e.start, e.end-e.start)])
	switch {
	case err != nil:
		q.refuseRead(e, psn, remoteNAK(err), err)
		return congestion.PacketCost
	case n == 0:
		return 0
	}
	e.cur++
	e.sent = max(e.sent, e.cur)
	if e.cur == e.end {
		q.resp.closeRead(e, q.h)
	}
	q.resp.answeredUpTo(psn)
	return n
}

// putAtomicResponse adds the result of an atomic operation to b. It returns the bytes to
// charge to the turn, or 0 if the trains are full.
func (q *endpoint) putAtomicResponse(b *builder, e *resource, msn uint32) int {
	const size = wire.BTHLen + wire.AETHLen + wire.AtomicAckETHLen + wire.ICRCLen
	way := q.path()
	p, id := b.add(&way, size)
	if p == nil {
		return 0
	}
	q.putBTH(p, wire.AtomicAcknowledge, 0, e.first)
	wire.PutAETH(p[wire.BTHLen:], &wire.AETH{Syndrome: wire.ACKNoCredits, MSN: msn})
	binary.BigEndian.PutUint64(p[wire.BTHLen+wire.AETHLen:], e.orig)
	q.finish(p, id)
	return congestion.PacketCost
}

// putReadResponse adds response i of e to b, with data from src. It returns the bytes to
// charge to the turn, 0 if the trains are full, or the error of src.
func (q *endpoint) putReadResponse(b *builder, e *resource, src Source, i, msn uint32, op wire.Opcode) (int, error) {
	mtu := uint64(q.mtu())
	off := uint64(i) * mtu
	n := int(min(off+mtu, uint64(e.length)) - min(off, uint64(e.length)))
	head := op.HeaderLen()
	size := head + n + pads(n) + wire.ICRCLen
	way := q.path()
	p, id := b.add(&way, size)
	if p == nil {
		return 0, nil
	}
	at := uint64(e.skip) + off
	payload := view(src, at, n)
	if payload == nil && n > 0 {
		if err := src.ReadAt(p[head:head+n], at); err != nil {
			b.undo(size)
			return 0, err
		}
	}
	q.putBTH(p, op, pads(n), psnAdd(e.first, int(i)))
	if op != wire.ReadResponseMiddle {
		wire.PutAETH(p[wire.BTHLen:], &wire.AETH{Syndrome: wire.ACKNoCredits, MSN: msn})
	}
	q.seal(p, id, head, n, payload)
	return n + congestion.PacketCost, nil
}

// readOps holds the opcodes of READ responses by position.
var readOps = [4]wire.Opcode{
	first: wire.ReadResponseFirst, middle: wire.ReadResponseMiddle,
	last: wire.ReadResponseLast, only: wire.ReadResponseOnly,
}

// answeredUpTo records that a response for psn is sent. It acknowledges everything before
// psn, so no separate ACK is needed for that.
func (s *responder) answeredUpTo(psn uint32) {
	if psnDiff(s.done, psn) <= 0 {
		s.ack = false
	}
}

// putACK adds an ACK or a NAK for psn to b.
func (q *endpoint) putACK(b *builder, syn wire.Syndrome, msn, psn uint32) bool {
	const size = wire.BTHLen + wire.AETHLen + wire.ICRCLen
	way := q.path()
	p, id := b.add(&way, size)
	if p == nil {
		return false
	}
	q.putBTH(p, wire.Acknowledge, 0, psn)
	wire.PutAETH(p[wire.BTHLen:], &wire.AETH{Syndrome: syn, MSN: msn})
	q.finish(p, id)
	return true
}

// putCNP adds a congestion notification packet to b.
func (q *endpoint) putCNP(b *builder) bool {
	way := q.path()
	p, id := b.add(&way, wire.CNPLen)
	if p == nil {
		return false
	}
	wire.PutCNP(p, q.recv.DestQPN)
	q.finish(p, id)
	return true
}

// putBTH writes the base transport header of a response.
func (q *endpoint) putBTH(p []byte, op wire.Opcode, pad int, psn uint32) {
	wire.PutBTH(p, &wire.BTH{
		Opcode: op.With(q.service), MigReq: true, Pad: uint8(pad), PKey: wire.DefaultPKey,
		DestQP: q.recv.DestQPN, PSN: psn,
	})
}
