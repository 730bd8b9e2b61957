package roce

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/internal/roce/internal/loss"
	"github.com/softmkey/softmkey/rdma"
)

// Kind of the message that is being received.
const (
	idle = iota
	sending
	writing
)

// responder is the receiving half of a QP: it executes the peer's requests and sends
// responses.
//
// Responses are sent in the order of the requests. READs and atomics have entries in the
// ring of resources, from which they can be answered again. Of the acknowledgements only
// the latest matters; it waits until all resources before it are answered.
type responder struct {
	psn   uint32 // next expected PSN
	batch uint32 // value of psn before the current batch of packets
	msn   uint32 // message sequence number: messages completed

	// The message that is being received.
	length uint32 // length of a WRITE, from its first packet
	got    uint32 // bytes received
	kind   uint8
	taken  bool // BeginRecv took a receive request that has not completed

	established bool // a request has come in RTR
	sink        Sink

	// Acknowledgement to send. done is the last executed packet. READs do not
	// count, because their responses acknowledge them.
	ack    bool          // an ACK for done is to be sent
	nak    wire.Syndrome // NAK to send; 0: none
	done   uint32
	nakPSN uint32

	order loss.Receiver
	dying *Failure // reason for which the responder fails after sending nak, or ack; nil: it does not

	// READs and atomics: a ring of MaxDestRdAtomic entries, allocated for the first.
	ring []resource
	next uint8 // index of the next entry, one after the latest
	open uint8 // number of pending entries
	kept int   // bytes of all storedRead of the ring

	cnp notifier
}

func (s *responder) init(c *RecvConfig) { *s = responder{psn: c.PSN, done: psnAdd(c.PSN, -1)} }

// request handles a packet from the peer's requester.
func (q *QP) request(k *packet, now int64) {
	s := &q.resp
	if s.dying != nil && psnDiff(k.PSN, s.psn) >= 0 {
		return
	}
	switch s.order.Arrived(k.PSN, s.psn, now) {
	case loss.Drop:
		q.count(func(n *counters) { n.OutOfSequence.Add(1) })
	case loss.NAK:
		q.count(func(n *counters) { n.OutOfSequence.Add(1) })
		s.nak, s.nakPSN = wire.NAKSequence, s.psn
	case loss.Repeat:
		q.count(func(n *counters) { n.DuplicateRequests.Add(1) })
		q.duplicate(k)
	case loss.Execute:
		s.nak = 0
		if q.state == rdma.StateRTR && !s.established {
			s.established = true
			q.h.Established()
		}
		q.inSequence(k, now)
	}
}

// inSequence executes the expected request.
func (q *QP) inSequence(k *packet, now int64) {
	if q.resp.open > 0 && k.Opcode != wire.ReadRequest && !q.keepReads(now) {
		return
	}
	switch {
	case k.layout&wire.IsSend != 0:
		q.recvSend(k, now)
	case k.layout&wire.IsWrite != 0:
		q.recvWrite(k, now)
	case k.Opcode == wire.ReadRequest:
		q.recvRead(k)
	default:
		q.recvAtomic(k)
	}
}

// refuse rejects the expected packet with a NAK; see refuseAt.
func (q *QP) refuse(n NAK, err error) { q.refuseAt(q.resp.psn, n, err) }

// refuseAt rejects packet psn with a NAK. Later packets get no response, and the QP
// enters the error state once the NAK is sent. READs before psn are answered first.
func (q *QP) refuseAt(psn uint32, n NAK, err error) {
	s := &q.resp
	if n == NAKGone {
		q.failRest(Failure{Status: rdma.StatusWRFlushErr, NAK: n, Err: err})
		return
	}
	if !q.acknowledged() {
		q.dropMessage()
		return
	}
	st := rdma.StatusRemOpErr
	switch n {
	case NAKInvalidRequest:
		s.nak, st = wire.NAKInvalidRequest, rdma.StatusRemInvReqErr
	case NAKRemoteAccess:
		s.nak, st = wire.NAKRemoteAccess, rdma.StatusRemAccessErr
		q.port.n.AccessNAKsSent.Add(1)
	default:
		s.nak, n = wire.NAKRemoteOperational, NAKRemoteOperational
	}
	s.nakPSN = psn
	// Packets from psn on may have been executed, but must not be acknowledged.
	s.psn, s.done = psn, psnAdd(psn, -1)
	s.dying = &Failure{Status: st, NAK: n, Err: err}
	for i := range s.ring {
		if e := &s.ring[i]; e.pending && psnDiff(e.first, psn)+int(e.cur) >= 0 {
			s.closeRead(e, q.h)
		}
	}
}

// remoteNAK returns the NAK for an error of a responder's Source or Sink.
func remoteNAK(err error) NAK {
	var n NAKError
	if errors.As(err, &n) && NAK(n) != NAKNone && NAK(n) != NAKRNR {
		return NAK(n)
	}
	return NAKRemoteOperational
}

// notReady answers the expected packet with an RNR NAK, after which the peer sends it
// again.
func (q *QP) notReady(now int64) {
	s := &q.resp
	if !q.acknowledged() {
		q.count(func(n *counters) { n.NoReceive.Add(1) })
		q.dropMessage()
		return
	}
	s.nak, s.nakPSN = wire.RNR(q.recv.MinRNRTimer), s.psn
	s.order.Refused(now) // no sequence NAK for the packets after it
}

// beginRecv takes a receive request for the message of k, which what names. If there is none, it
// answers k and returns false.
func (q *QP) beginRecv(k *packet, what string, now int64) (Sink, bool) {
	sink, nak := q.h.BeginRecv(k.srq)
	q.resp.taken = nak == NAKNone
	switch nak {
	case NAKNone:
	case NAKRNR:
		q.notReady(now)
	default:
		q.refuse(nak, fmt.Errorf("%s, PSN %#x: no receive request can be taken: %w", what, k.PSN, nak.Err()))
	}
	return sink, nak == NAKNone
}

// permits reports whether the QP grants the peer an operation, and refuses the expected
// packet k if not.
func (q *QP) permits(k *packet, op ibv.WROp) bool {
	if q.h.Permits(op) {
		return true
	}
	q.refuse(NAKInvalidRequest, fmt.Errorf("%v packet, PSN %#x: the QP does not grant the operation", k.Opcode, k.PSN))
	return false
}

// inOrder reports whether packet k of a message of a kind continues the one that is open, or begins one if none is, and
// whether its length fits its position (sections 9.7.4.1.2 and 9.7.4.1.6).
func (q *endpoint) inOrder(k *packet, open, kind uint8) bool {
	n, mtu := len(k.payload), q.mtu()
	if q.via != overNetwork && n > mtu {
		mtu = insideMTU // see mtuOf; the last packet of such a message may be of any length
	}
	switch {
	case k.layout&wire.IsFirst != 0:
		return open == idle && n == mtu
	case k.layout&wire.IsMiddle != 0:
		return open == kind && n == mtu
	case k.layout&wire.IsLast != 0:
		return open == kind && n > 0 && n <= mtu
	}
	return open == idle && n <= mtu
}

// recvSend handles a packet of a SEND.
func (q *QP) recvSend(k *packet, now int64) {
	s := &q.resp
	if s.kind == idle {
		s.got = 0
	}
	if !q.inOrder(k, s.kind, sending) || uint64(s.got)+uint64(len(k.payload)) > MaxMessage {
		q.refuse(NAKInvalidRequest, fmt.Errorf("%v packet of %d bytes, PSN %#x: it does not continue the message", k.Opcode, len(k.payload), k.PSN))
		return
	}
	if s.kind == idle {
		sink, ok := q.beginRecv(k, "SEND", now)
		if !ok {
			return
		}
		s.kind, s.sink = sending, sink
	}
	if !q.write(k) {
		return
	}
	if k.layout&(wire.IsLast|wire.IsOnly) == 0 {
		s.executed(k)
		return
	}
	ev := RecvEvent{Op: ibv.WRSend, Length: s.got, Solicited: k.Solicited}
	if k.layout&wire.HasIETH != 0 {
		ev.HasInv, ev.InvKey = true, binary.BigEndian.Uint32(k.ext)
		if err := q.h.Invalidate(ev.InvKey); err != nil {
			// The connection ends without a NAK, when the requests before this one are answered and acknowledged.
			s.ack, s.dying = true, &Failure{Status: rdma.StatusLocAccessErr, Err: fmt.Errorf("SEND with invalidate of key %#x: %w", ev.InvKey, err)}
			return
		}
	}
	if k.layout&wire.HasImmDt != 0 {
		ev.HasImm, ev.Imm = true, k.imm()
	}
	q.received(k, ev)
}

// recvWrite handles a packet of an RDMA WRITE.
func (q *QP) recvWrite(k *packet, now int64) {
	s := &q.resp
	if !q.inOrder(k, s.kind, writing) {
		q.refuse(NAKInvalidRequest, fmt.Errorf("%v packet of %d bytes, PSN %#x: it does not continue the message", k.Opcode, len(k.payload), k.PSN))
		return
	}
	n := uint64(len(k.payload))
	end := k.layout&(wire.IsLast|wire.IsOnly) != 0
	var reth wire.RETH
	got, length := uint64(s.got), uint64(s.length)
	if k.layout&wire.HasRETH != 0 {
		reth = wire.ParseRETH(k.ext)
		got, length = 0, uint64(reth.Length)
	}
	if length > MaxMessage || end && got+n != length || !end && got+n >= length {
		q.refuse(NAKInvalidRequest, fmt.Errorf("%v packet, PSN %#x: %d bytes where the request announced %d", k.Opcode, k.PSN, got+n, length))
		return
	}
	if k.layout&wire.HasRETH != 0 && !q.permits(k, ibv.WRWrite) {
		return
	}
	withImm := k.layout&wire.HasImmDt != 0
	if withImm {
		if _, ok := q.beginRecv(k, "RDMA WRITE with immediate", now); !ok {
			return
		}
	}
	if k.layout&wire.HasRETH != 0 {
		q.count(func(n *counters) { n.WriteRequests.Add(1) })
		s.kind, s.sink, s.got, s.length = writing, nil, 0, reth.Length
		if reth.Length > 0 {
			sink, nak := q.h.OpenWrite(reth.RKey, reth.VA, reth.Length)
			if nak != NAKNone {
				s.kind = idle
				q.refuse(nak, fmt.Errorf("RDMA WRITE of %d bytes at %#x with key %#x: %w", reth.Length, reth.VA, reth.RKey, nak.Err()))
				return
			}
			s.sink = sink
		}
	}
	if !q.write(k) {
		return
	}
	if !end {
		s.executed(k)
		return
	}
	if s.sink != nil {
		sink := s.sink
		s.sink = nil
		if nak := q.h.EndWrite(sink, true); nak != NAKNone {
			s.kind = idle
			q.refuse(nak, fmt.Errorf("RDMA WRITE of %d bytes could not be finished: %w", s.length, nak.Err()))
			return
		}
	}
	if withImm {
		q.received(k, RecvEvent{Op: ibv.WRWriteImm, Length: s.length, HasImm: true, Imm: k.imm(), Solicited: k.Solicited})
		return
	}
	s.kind = idle
	s.msn++
	s.executed(k)
}

// write passes the payload of k to the message's Sink.
func (q *QP) write(k *packet) bool {
	s := &q.resp
	if len(k.payload) == 0 {
		return true
	}
	if err := k.deliver(s.sink); err != nil {
		q.refuse(remoteNAK(err), err)
		return false
	}
	s.got += uint32(len(k.payload))
	return true
}

// received completes a message that used a receive request.
func (q *QP) received(k *packet, ev RecvEvent) {
	s := &q.resp
	s.kind, s.sink, s.taken = idle, nil, false
	q.sawMessage()
	ev.PSN = k.PSN
	if q.acknowledged() {
		q.port.ready.owe(q) // before the program can see the completion
	}
	if nak := q.h.Received(ev); nak != NAKNone {
		if !q.acknowledged() {
			q.failRest(Failure{Status: rdma.StatusLocProtErr, Err: nak.Err()})
			return
		}
		q.refuse(nak, fmt.Errorf("message of %d bytes could not be finished: %w", ev.Length, nak.Err()))
		return
	}
	s.msn++
	s.executed(k)
}

// executed acknowledges the expected packet, of a SEND or WRITE, and moves past it.
func (s *responder) executed(k *packet) {
	s.done = s.psn
	s.expectAfter(1)
	if k.AckReq {
		s.ack = true
	}
}

// abort closes every open Sink and Source, when the QP's connection ends.
func (q *QP) abort() {
	s := &q.resp
	if s.kind == writing && s.sink != nil {
		q.h.EndWrite(s.sink, false)
	}
	s.kind, s.sink, s.taken = idle, nil, false
	for i := range s.ring {
		s.closeRead(&s.ring[i], q.h)
	}
	s.ring = nil
	s.open, s.next, s.ack, s.nak = 0, 0, false, 0
	s.cnp.sent()
}
