package adapter

import (
	"cmp"
	"math"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/rdma"
)

// front is a QP as the engine sees it: it decodes the requests when the engine pulls
// them, and writes the completions.
type front QP

// sendSlot is a request of the send queue from its decoding to its completion.
type sendSlot struct {
	req    engine.SendRequest
	wqe    prm.WQE
	conf   confSlot
	bind   engine.Binding
	blocks uint16
	op     prm.Opcode // of the entry in the queue
	index  uint16
	flags  uint8
	refuse error
	psv    *psv   // of a SET_PSV
	data   []byte // room for req.Gathered
}

// PeekSend implements engine.Front. A request that waits for a fence is read anew each
// time: the program may write over it in SQD.
func (f *front) PeekSend() *engine.SendRequest {
	q := (*QP)(f)
	s := &q.sq
	if s.configured != nil { // the engine has executed it
		s.configured.dropLists()
		s.configured = nil
	}
	if s.peeked != nil {
		s.free = append(s.free, s.peeked)
		s.peeked = nil
		s.forget()
	}
	if s.next == s.rung {
		if rdma.State(q.state.Load()) != rdma.StateErr && !flushes(q.eng.StateLocked()) {
			return nil
		}
		// Requests posted before the QP failed are flushed now, whether the
		// doorbell was rung or not.
		w, err := q.db.load32(prm.DoorbellSend)
		if err != nil || !s.posted(uint16(w)) {
			return nil
		}
	}
	slot := s.slot()
	q.decode(slot)
	s.peeked = slot
	return &slot.req
}

// decode reads the request at the queue's next index.
func (q *QP) decode(slot *sendSlot) {
	s := &q.sq
	slot.index, slot.blocks, slot.op, slot.flags, slot.refuse = s.next, 1, prm.OpNop, 0, nil
	req := &slot.req
	req.ID, req.Op = s.requests+1, ibv.WRNop
	refuse := slot.refused
	if waiting := int(s.rung - s.next); waiting > s.count {
		refuse(rdma.StatusLocQPOpErr, failure.New("send queue", syscall.EINVAL, "the doorbell is %d blocks ahead, the queue has %d", waiting, s.count))
		slot.blocks = s.rung - s.next
		return
	}
	b, err := s.bytes(s.next, 1)
	if err != nil {
		refuse(rdma.StatusLocQPOpErr, &operr.Error{Op: "send queue", Errno: syscall.EFAULT, Reason: "the queue cannot be read", Err: err})
		return
	}
	ctrl, err := prm.ParseControl(b)
	if err != nil {
		refuse(rdma.StatusLocQPOpErr, err)
		return
	}
	slot.blocks, slot.op, slot.flags = uint16(ctrl.Blocks()), ctrl.Opcode, ctrl.Flags
	if slot.op == prm.OpSetPSV {
		req.ID = s.requests // an entry that the driver adds has the number of the request before it
	}
	if n := int(s.rung - s.next); int(slot.blocks) > n || int(slot.blocks) > s.count {
		refuse(rdma.StatusLocQPOpErr, failure.New("send queue", syscall.EINVAL, "request %d has %d blocks, %d were posted", req.ID, slot.blocks, n))
		slot.blocks = uint16(n)
		return
	}
	if ctrl.QPN != q.number {
		refuse(rdma.StatusLocQPOpErr, failure.New("send queue", syscall.EINVAL, "request %d names QP %#x in the queue of QP %#x", req.ID, ctrl.QPN, q.number))
		return
	}
	if b, err = s.bytes(s.next, int(slot.blocks)); err == nil {
		err = slot.wqe.Parse(b, q.transport())
	}
	if err != nil {
		refuse(rdma.StatusLocQPOpErr, err)
		return
	}
	if st, err := q.translate(slot); err != nil {
		refuse(st, err)
	}
}

// refused makes the request one that fails.
func (slot *sendSlot) refused(st rdma.Status, err error) {
	slot.refuse = err
	slot.req.Op = ibv.WRNop
	slot.req.Refuse(st, err)
}

// dropLists lets go of the lists of a UMR that are not whole in the request itself. They are long, and
// a queue has many slots.
func (slot *sendSlot) dropLists() {
	if u := &slot.wqe.UMR; len(u.ListIn) > 0 || u.ListAt > 0 || slot.conf.part != nil {
		slot.wqe.UMR, slot.conf = prm.UMR{}, confSlot{}
	}
}

func (q *QP) transport() prm.Transport {
	switch q.attr.Type {
	case rdma.UD, ibv.GSI:
		return prm.Datagram
	case ibv.XRCSend:
		return prm.XRC
	case ibv.DCI:
		return prm.Dynamic
	}
	return prm.Connected
}

var engineOps = [256]ibv.WROp{
	prm.OpNop: ibv.WRNop, prm.OpSend: ibv.WRSend, prm.OpSendImm: ibv.WRSendImm, prm.OpSendInv: ibv.WRSendInv,
	prm.OpWrite: ibv.WRWrite, prm.OpWriteImm: ibv.WRWriteImm, prm.OpRead: ibv.WRRead,
	prm.OpCmpSwap: ibv.WRCmpSwap, prm.OpFetchAdd: ibv.WRFetchAdd,
	prm.OpMaskedCmpSwap: ibv.WRMaskedCmpSwap, prm.OpMaskedFetchAdd: ibv.WRMaskedFetchAdd, prm.OpSetPSV: ibv.WRSetPSV, prm.OpMMO: ibv.WRMemcpy,
}

// translate makes the decoded entry a request of the engine.
func (q *QP) translate(slot *sendSlot) (rdma.Status, error) {
	w, req := &slot.wqe, &slot.req
	if w.Fenced() {
		req.Flags |= ibv.SendFence
	}
	if w.Flags&prm.FlagSolicited != 0 {
		req.Flags |= ibv.SendSolicited
	}
	switch w.Opcode {
	case prm.OpUMR:
		return 0, nil // TakeSend translates it: the lists of requests that wait would take memory
	case prm.OpSetPSV:
		if slot.psv = q.psv(w.PSV.Index); slot.psv == nil {
			return rdma.StatusLocQPOpErr, failure.New("set a PSV", syscall.EINVAL, "the protection domain has no PSV %#x", w.PSV.Index)
		}
	}
	req.Op = engineOps[w.Opcode]
	switch w.Opcode {
	case prm.OpSendImm, prm.OpWriteImm:
		req.Imm = w.Imm
	case prm.OpSendInv:
		req.InvKey = w.Imm
	}
	req.RKey, req.RemoteAddr, req.RemoteSRQN = w.RKey, w.RemoteAddr, w.SRQN
	switch w.Opcode {
	case prm.OpCmpSwap:
		req.CompareAdd, req.Swap = w.Compare, w.SwapAdd
	case prm.OpFetchAdd:
		req.CompareAdd = w.SwapAdd
	case prm.OpMaskedCmpSwap:
		req.CompareAdd, req.Swap, req.CompareMask, req.SwapMask = w.Compare, w.SwapAdd, w.CompareMask, w.SwapMask
	case prm.OpMaskedFetchAdd:
		req.CompareAdd, req.CompareMask = w.SwapAdd, w.Compare
	}
	req.SGEs = appendSGEs(req.SGEs[:0], w.SGEs)
	if n := req.Bytes(); w.AtomicSize != 0 && !w.HasInline && n != uint64(w.AtomicSize) {
		return rdma.StatusLocLenErr, failure.New("execute a request", syscall.EINVAL, "request %d: the word of %v has %d bytes, the list has %d", req.ID, w.Opcode, w.AtomicSize, n)
	}
	req.HasInline = w.HasInline
	req.Inline = append(req.Inline[:0], w.Inline...)
	switch w.Opcode {
	case prm.OpSend, prm.OpSendImm, prm.OpSendInv, prm.OpWrite, prm.OpWriteImm:
		q.gather(slot)
	}
	if (q.attr.Type.Datagram() || q.attr.Type == ibv.DCI) && w.Opcode != prm.OpNop && w.Opcode != prm.OpMMO {
		return q.translateAddress(w, req)
	}
	return 0, nil
}

func appendSGEs(sges []rdma.SGE, from []prm.Data) []rdma.SGE {
	for _, d := range from {
		sges = append(sges, rdma.SGE{Addr: d.Addr, Length: d.Length, LKey: d.LKey})
	}
	return sges
}

// addressKey is everything of a datagram's address that makes a different handle.
type addressKey struct {
	table  *[]GIDEntry // that index belongs to
	gid    [16]byte
	mac    [6]byte
	udp    uint16
	index  uint8
	tclass uint8
	hops   uint8
	sl     uint8
}

// maxAddresses bounds the handles that a QP keeps, and mostAddresses those that all QPs of a
// context keep. A program with more peers than that makes some anew.
const (
	maxAddresses  = 1 << 10
	mostAddresses = 1 << 18
)

// translateAddress takes the address of a datagram, or of the target of a request.
func (q *QP) translateAddress(w *prm.WQE, req *engine.SendRequest) (rdma.Status, error) {
	s := &q.sq
	// On Ethernet the address is always a GID: drivers leave the bit that says so clear.
	// The LID's place has the UDP port, and the service level is shifted.
	key := addressKey{q.ctx.dev.gids.Load(), w.AV.GID, w.AV.MAC, w.AV.RLID, w.AV.SGIDIndex, w.AV.TrafficClass, w.AV.HopLimit, w.AV.SL >> 1}
	ah := s.addresses[key]
	if ah == nil {
		to, err := q.ctx.dev.address("send to an address", AHAttr{
			DGID: key.gid, SGIDIndex: key.index, IsGlobal: true, TrafficClass: key.tclass, HopLimit: key.hops, SL: key.sl, MAC: key.mac, UDPPort: key.udp,
		})
		if err == nil {
			ah, err = q.ctx.dev.eng.NewAH(to)
		}
		if err != nil {
			return rdma.StatusLocQPOpErr, err
		}
		q.keepAddress(key, ah)
	}
	req.AH, req.RemoteQPN, req.QKey, req.DCKey = ah, w.AV.QPN, w.AV.QKey, w.AV.DCKey
	return 0, nil
}

// keepAddress keeps the handle of an address, and those before it if there is room.
func (q *QP) keepAddress(key addressKey, ah *roce.AH) {
	s, total := &q.sq, &q.ctx.addresses
	if len(s.addresses) >= maxAddresses || total.Load() >= mostAddresses {
		q.forgetAddresses()
	}
	if s.addresses == nil {
		s.addresses = make(map[addressKey]*roce.AH)
	}
	s.addresses[key] = ah
	total.Add(1)
}

// forgetAddresses lets go of the handles that the QP keeps.
func (q *QP) forgetAddresses() {
	q.ctx.addresses.Add(-int64(len(q.sq.addresses)))
	q.sq.addresses = nil
}

// TakeSend implements engine.Front.
func (f *front) TakeSend() {
	q := (*QP)(f)
	s := &q.sq
	slot := s.peeked
	s.peeked = nil
	s.next += slot.blocks
	s.requests = slot.req.ID
	s.taken.Push(slot)
	if slot.refuse == nil {
		switch slot.op {
		case prm.OpUMR:
			if q.eng.StateLocked() != rdma.StateRTS {
				break // it is flushed
			}
			if st, err := q.translateUMR(slot); err != nil {
				slot.refused(st, err)
			} else {
				q.beginUMR(slot)
			}
			s.configured = slot
		case prm.OpSetPSV:
			if q.eng.StateLocked() == rdma.StateRTS { // otherwise it is flushed
				slot.psv.set(&slot.wqe.PSV)
			}
		}
	}
	if q.ctx.tracing() {
		q.traceRequest(slot)
	}
}

// SendDone implements engine.Front.
func (f *front) SendDone(r *engine.SendRequest, c *engine.Completion) (ok bool) {
	q := (*QP)(f)
	slot := q.sq.taken.Pop()
	slot.dropLists()
	ok = true
	failed := c.Status != rdma.StatusSuccess
	// Requests that complete on the first error only are flushed silently once an error was
	// reported.
	silent := c.Status == rdma.StatusWRFlushErr && prm.OnFirstError(slot.flags) && q.sq.failed
	q.sq.failed = failed
	reported := failed && !silent || slot.flags&prm.FlagCQUpdate != 0 || q.attr.SigAll && slot.op != prm.OpUMR && slot.op != prm.OpSetPSV
	if reported {
		cqe := &q.cqe
		*cqe = prm.CQE{
			Opcode: prm.CQERequester, UserIndex: q.attr.UIDX, QPN: q.number, SendOp: slot.op, Counter: slot.index,
			ByteCount: c.ByteLen, Timestamp: q.ctx.dev.Clock(),
		}
		if failed {
			cqe.Opcode, cqe.Syndrome, cqe.Vendor = prm.CQERequesterErr, syndromeOf(c.Status), vendorOf(c, flushedSend)
		}
		ok = q.attr.SendCQ.push(cqe, failed)
	}
	if q.ctx.tracing() {
		kind, bytes := TraceEnd, c.ByteLen
		if reported {
			kind = TraceCompletion
		}
		if !failed && bytes == 0 {
			bytes = uint32(min(slot.req.Bytes(), math.MaxUint32)) // completions of SENDs and WRITEs have none
		}
		q.traceEnd(kind, slot, bytes, c, ok)
	}
	if failed {
		q.noticeFailure()
	}
	q.sq.free = append(q.sq.free, slot)
	return ok
}

// noticeFailure keeps the doorbells of a failed QP polled, so that requests that are posted
// later are flushed.
func (q *QP) noticeFailure() {
	if rdma.State(q.state.Load()) >= rdma.StateRTR {
		q.setState(q.eng.StateLocked(), byDevice)
	}
}

// flushes reports whether a queue pair in a state flushes what is posted to its send queue.
func flushes(s rdma.State) bool { return s == rdma.StateErr || s == rdma.StateSQE }

// syndromes are the syndromes that the driver translates back into a status.
var syndromes = map[rdma.Status]prm.Syndrome{
	rdma.StatusLocLenErr:      prm.SyndromeLocalLength,
	rdma.StatusLocQPOpErr:     prm.SyndromeLocalQPOp,
	rdma.StatusLocProtErr:     prm.SyndromeLocalProt,
	rdma.StatusWRFlushErr:     prm.SyndromeFlush,
	rdma.StatusMWBindErr:      prm.SyndromeMWBind,
	rdma.StatusBadRespErr:     prm.SyndromeBadResponse,
	rdma.StatusLocAccessErr:   prm.SyndromeLocalAccess,
	rdma.StatusRemInvReqErr:   prm.SyndromeRemoteInvalid,
	rdma.StatusRemAccessErr:   prm.SyndromeRemoteAccess,
	rdma.StatusRemOpErr:       prm.SyndromeRemoteOp,
	rdma.StatusRetryExcErr:    prm.SyndromeRetryExceeded,
	rdma.StatusRNRRetryExcErr: prm.SyndromeRNRExceeded,
	rdma.StatusRemAbortErr:    prm.SyndromeRemoteAborted,
}

// syndromeOf returns the syndrome of a status.
func syndromeOf(st rdma.Status) prm.Syndrome {
	return cmp.Or(syndromes[st], prm.SyndromeUnknownGeneral)
}

// Event implements engine.Front.
func (f *front) Event(t rdma.EventType, err error) {
	q := (*QP)(f)
	q.ctx.trace(TraceEvent, "qp", q.number, t.String(), err)
	if t == rdma.EventSQDrained && err != nil && q.ctx.tracing() {
		q.traceWaiting()
	}
	if t == rdma.EventQPFatal || t == rdma.EventQPReqErr || t == rdma.EventQPAccessErr {
		q.noticeFailure()
	}
	q.async(t)
}

// Reset implements engine.Front.
func (f *front) Reset() {
	q := (*QP)(f)
	if q.ctx.tracing() {
		q.traceDropped()
	}
	q.sq.reset()
	q.forgetAddresses()
	q.rq.reset()
	clear(q.owed)
	for _, cq := range []*CQ{q.attr.SendCQ, q.attr.RecvCQ} {
		if cq != nil {
			takeBackReports(q.ctx, cq.unpolledReports(q))
		}
	}
}

// traceRequest records a request that begins, in words.
func (q *QP) traceRequest(slot *sendSlot) {
	wqe, w := &slot.wqe, &q.work
	w.begin(q, TraceRequest, slot.op.String())
	w.number("request", slot.req.ID)
	if slot.refuse == nil {
		if names := flagNames()[slot.flags]; names != "" {
			w.text("flags", names)
		}
		switch slot.op {
		case prm.OpUMR:
			w.Fields = append(w.Fields, describeUMR(&wqe.UMR, wqe.Imm)...)
		case prm.OpSetPSV:
			w.number("psv", uint64(wqe.PSV.Index))
		case prm.OpNop:
		default:
			if wqe.HasInline {
				w.number("inline", uint64(len(wqe.Inline)))
			}
			if !wqe.HasInline || len(wqe.SGEs) > 0 {
				w.Fields = append(w.Fields, value("sges", &slot.req.SGEs))
			}
			switch {
			case slot.op.Atomic() || slot.op == prm.OpWrite || slot.op == prm.OpWriteImm || slot.op == prm.OpRead:
				w.number("rkey", uint64(wqe.RKey))
				w.number("remote_addr", wqe.RemoteAddr)
			}
			switch slot.op {
			case prm.OpSendImm, prm.OpWriteImm:
				w.number("imm", uint64(wqe.Imm))
			case prm.OpSendInv:
				w.number("invalidate", uint64(wqe.Imm))
			}
		}
	}
	w.end(slot.refuse)
}

// flagNames returns the names of requests' flags, by their bits in the control segment. A trace
// needs them for every request, so they are joined once.
var flagNames = sync.OnceValue(func() *[256]string {
	var names [256]string
	for flags := range names {
		names[flags] = bitNames(uint8(flags), []bitName{
			{prm.FlagCQUpdate, "SIGNALED"}, {prm.FlagSolicited, "SOLICITED"}, {prm.FlagFence, "FENCE"}, {prm.FlagSmallFence, "SMALL_FENCE"},
		}).String()
	}
	return &names
})
