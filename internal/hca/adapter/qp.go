package adapter

import (
	"errors"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/rdma"
)

// QPCap is the sizes of a QP's queues (struct ibv_qp_cap).
type QPCap struct {
	MaxSendWR, MaxRecvWR, MaxSendSGE, MaxRecvSGE, MaxInlineData uint32
}

// QPAttr holds the attributes for creating a QP.
type QPAttr struct {
	Type           rdma.QPType
	PD             *PD
	SendCQ, RecvCQ *CQ
	SRQ            *SRQ
	XRCD           *XRCD
	SQ, RQ, DB     Segments // the queues and the doorbell record
	SQCount        uint32   // send queue blocks of 64 bytes
	RQCount        uint32   // receive requests
	RQShift        uint32   // log2 of a receive request's size
	UIDX           uint32
	UAR            *UAR
	SigAll         bool
	BlockSelfMcast bool // the QP does not receive its own multicasts
	Cap            QPCap
	DCKey          uint64 // of a DCT: its access key

	local bool // it has no peer: the QP of a guest's kernel for UMRs
	pages bool // its requests may give keys lists of physical pages: a QP of a guest's kernel
	uid   uint16
	umems umemPair
}

// QP is a queue pair whose queues stand in the program's memory.
type QP struct {
	object
	attr   QPAttr
	eng    *engine.QP
	closed atomic.Bool
	opens  int           // of an XRC receive QP, less one; guarded by the lock of its domain
	state  atomic.Uint32 // rdma.State after the last Modify or failure
	db     buffer

	watched bool // it is in failedQPs, whose lock guards it

	// The engine's lock of the QP guards the following fields; the methods of the queues are called with it.
	access uint32 // access flags that the program has asked for last
	depth  uint8  // max_dest_rd_atomic, likewise
	sq     sendQueue
	rq     recvQueue
	owed   map[uint32]struct{} // of an XRC receive QP: indexes of keys whose reports wait for a completion of an SRQ
	cqe    prm.CQE             // the completion that is being reported; a field, so that completions are not allocated
	work   work                // the record of a trace that is being made
}

const (
	maxSendBlocks   = 1 << 16
	maxRecvRequests = 1 << 15
	maxRecvShift    = 9 // max_rq_desc_sz 512
)

// CreateQP makes a QP in RESET.
func (c *Context) CreateQP(a QPAttr) (_ *QP, err error) {
	const op = "create a QP"
	defer notCreated(c, "qp", &err)
	asked := a
	if err := a.check(op); err != nil {
		return nil, err
	}
	if a.Type != ibv.XRCRecv {
		a.XRCD = nil
	} else if a.PD, err = a.XRCD.pd(op, c); err != nil {
		return nil, err
	}
	q := &QP{object: object{ctx: c, uid: a.uid}, attr: a}
	q.attr.SQ, q.attr.RQ, q.attr.DB = nil, nil, nil // sq, rq and db have them
	if a.SQCount != 0 || a.RQCount != 0 {
		if err := q.db.openRecord(op, a.DB); err != nil {
			return nil, err
		}
	}
	if err := q.rq.init(op, a.RQ, int(a.RQCount), int(a.RQShift)); err != nil {
		return nil, err
	}
	if err := q.sq.init(op, a.SQ, int(a.SQCount)); err != nil {
		return nil, err
	}
	if err := enterAll(op, q.parents(), engine.UserQP); err != nil {
		return nil, err
	}
	var f engine.Front = (*front)(q)
	if a.Type == ibv.DCT {
		f = dctFront{(*front)(q)}
	}
	eng, err := a.PD.eng.NewQP(engine.QPAttr{Type: a.Type, Front: f, BlockOwnMulticast: a.BlockSelfMcast, Local: a.local, SharedRecv: a.SRQ != nil || a.Type == ibv.XRCRecv, DCKey: a.DCKey})
	if err != nil {
		leaveAll(q.parents(), engine.UserQP)
		return nil, err
	}
	q.eng, q.number = eng, eng.Num()
	if err := enter(c, op, c.qps, q.number, q); err != nil {
		eng.Close()
		leaveAll(q.parents(), engine.UserQP)
		return nil, err
	}
	c.mu.Lock()
	isolated := c.isolated
	c.mu.Unlock()
	if isolated {
		eng.Isolate()
	}
	a.UAR.ring(1, 0)
	if a.Type == ibv.XRCRecv {
		a.XRCD.locked(func() { a.XRCD.qps[q.number] = q })
	}
	c.trace(TraceObject, "qp", q.number, "create", nil, value("type", a.Type), value("pd", a.PD.number), value("send_cq", numberOf(asked.SendCQ)), value("recv_cq", numberOf(asked.RecvCQ)),
		value("send_blocks", asked.SQCount), value("recv_requests", asked.RQCount), value("shared", q.sq.ring.shared()))
	return q, nil
}

func numberOf(q *CQ) uint32 {
	if q == nil {
		return 0
	}
	return q.number
}

// check refuses everything that the device does not have.
func (a *QPAttr) check(op string) error {
	switch {
	case a.Type != rdma.RC && a.Type != rdma.UC && !a.Type.Datagram() && a.Type != ibv.XRCSend && a.Type != ibv.XRCRecv && a.Type != ibv.DCI && a.Type != ibv.DCT:
		return failure.New(op, syscall.EOPNOTSUPP, "type %d: the device has RC, UC, UD, XRC and DC", a.Type)
	case a.Type == ibv.XRCRecv:
		if a.XRCD == nil {
			return failure.New(op, syscall.EINVAL, "an XRC receive QP needs an XRC domain")
		}
		// Its requests and completions are those of the domain's SRQs.
		a.SendCQ, a.RecvCQ, a.SRQ, a.SQCount, a.RQCount, a.RQShift = nil, nil, nil, 0, 0, 0
		return nil
	case a.PD == nil:
		return failure.New(op, syscall.EINVAL, "no PD")
	case a.Type == ibv.XRCSend && (a.RQCount != 0 || a.SRQ != nil):
		return failure.New(op, syscall.EINVAL, "an XRC send QP has no receive requests")
	case a.Type == ibv.DCT:
		if a.SRQ == nil || a.RecvCQ == nil {
			return failure.New(op, syscall.EINVAL, "a DCT needs an SRQ and a receive CQ")
		}
		a.SQCount, a.RQCount, a.RQShift = 0, 0, 0
		return nil
	case a.Type == ibv.DCI && a.RQCount != 0:
		return failure.New(op, syscall.EINVAL, "a DCI has no receive requests")
	case a.SendCQ == nil || a.RecvCQ == nil && (a.RQCount != 0 || a.SRQ != nil):
		return failure.New(op, syscall.EINVAL, "a QP of type %d needs a send CQ, and one for its receive requests", a.Type)
	case a.SQCount != 0 && !powerOfTwo(int(a.SQCount)) || a.SQCount > maxSendBlocks:
		return failure.New(op, syscall.EINVAL, "%d send queue blocks: must be a power of two up to %d", a.SQCount, maxSendBlocks)
	case a.RQCount != 0 && !powerOfTwo(int(a.RQCount)) || a.RQCount > maxRecvRequests:
		return failure.New(op, syscall.EINVAL, "%d receive requests: must be a power of two up to %d", a.RQCount, maxRecvRequests)
	case a.RQCount != 0 && (a.RQShift < 4 || a.RQShift > maxRecvShift):
		return failure.New(op, syscall.EINVAL, "receive requests of 2^%d bytes: must be 2^4 to 2^%d", a.RQShift, maxRecvShift)
	case a.RQCount == 0 && a.RQShift > maxRecvShift:
		return failure.New(op, syscall.EINVAL, "receive requests of 2^%d bytes", a.RQShift)
	}
	return nil
}

func (q *QP) parents() []*engine.Users {
	var p []*engine.Users
	if q.attr.SendCQ != nil {
		p = append(p, &q.attr.SendCQ.users)
	}
	if q.attr.RecvCQ != nil {
		p = append(p, &q.attr.RecvCQ.users)
	}
	if q.attr.Type == ibv.XRCRecv {
		p = append(p, &q.attr.XRCD.users)
	}
	if q.attr.SRQ != nil {
		p = append(p, &q.attr.SRQ.users)
	}
	return append(p, q.attr.umems.users()...)
}

// qpsOf returns the numbers of the context's QPs that use an object.
func (c *Context) qpsOf(object *engine.Users) []uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var numbers []uint32
	for n, q := range c.qps {
		if slices.Contains(q.parents(), object) {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// OpenQP opens an XRC receive QP of a domain by its number. It is the same QP, and is
// destroyed when it was closed as often as it was created and opened, or when the context
// is closed that created it.
func (c *Context) OpenQP(qpn uint32, typ rdma.QPType, x *XRCD) (*QP, error) {
	if typ == ibv.XRCRecv {
		if q := x.open(qpn); q != nil {
			return q, nil
		}
	}
	return nil, failure.New("open a QP", syscall.EINVAL, "QP %#x is no XRC receive QP of the domain", qpn)
}

// Type returns the QP's type.
func (q *QP) Type() rdma.QPType { return q.attr.Type }

// AttachMcast lets a UD QP receive the datagrams of a multicast group, which gid names.
func (q *QP) AttachMcast(gid [16]byte) error {
	return q.ctx.refused("qp", q.number, "attach", q.eng.AttachMulticast(group(gid, q.ctx.dev.eng.Addr())))
}

// DetachMcast takes the QP out of a multicast group.
func (q *QP) DetachMcast(gid [16]byte) error {
	return q.ctx.refused("qp", q.number, "detach", q.eng.DetachMulticast(group(gid, q.ctx.dev.eng.Addr())))
}

// Close destroys the QP. An XRC receive QP that was opened again loses one of its opens.
func (q *QP) Close() error {
	if q.attr.XRCD != nil && q.attr.XRCD.closed(q) {
		return nil
	}
	return q.destroy()
}

// destroy destroys the QP, whoever has it open.
func (q *QP) destroy() error {
	if q.attr.XRCD != nil {
		q.attr.XRCD.locked(func() { delete(q.attr.XRCD.qps, q.number) })
	}
	if q.closed.Swap(true) {
		return nil
	}
	q.setState(rdma.StateReset, byProgram)
	leave(q.ctx, q.ctx.qps, q.number)
	err := q.eng.Close()
	q.attr.UAR.ring(-1, 0)
	q.ctx.forgetPlan()
	leaveAll(q.parents(), engine.UserQP)
	q.ctx.trace(TraceObject, "qp", q.number, "destroy", nil)
	return err
}

// rings reports whether doorbells of the QP are looked at.
func (q *QP) rings() bool { return q.db.size > 0 && rdma.State(q.state.Load()) >= rdma.StateRTR }

// The causes of a change of state, as traces name them.
var (
	byProgram = value("by", "program")
	byDevice  = value("by", "device") // after a request that failed, or a fault
)

// setState notes the QP's state for the doorbells and the trace. by is byProgram or byDevice.
func (q *QP) setState(to rdma.State, by Field, fields ...Field) {
	from := rdma.State(q.state.Swap(uint32(to)))
	if from == to {
		return
	}
	if q.ctx.tracing() {
		q.ctx.trace(TraceState, "qp", q.number, to.String(), nil, append([]Field{value("from", from.String()), by}, fields...)...)
	}
	if to == rdma.StateErr && q.ctx.guest {
		q.ctx.watchFailed(q)
	}
	rings, rang := to >= rdma.StateRTR, from >= rdma.StateRTR
	if rings == rang {
		return
	}
	q.ctx.stale.Store(true)
	if rang {
		q.ctx.busy.Add(-1)
		return
	}
	q.ctx.busy.Add(1)
	if wake := q.ctx.dev.cfg.Wake; wake != nil {
		wake(q.ctx)
	}
}

// changed reports whether a doorbell record of the QP has something new.
func (q *QP) changed(recv, send uint32) bool {
	q.eng.Lock()
	defer q.eng.Unlock()
	return q.eng.StateLocked() >= rdma.StateRTR && (q.sq.count > 0 && uint16(send) != q.sq.rung || q.rq.count > 0 && uint16(recv) != q.rq.rung)
}

// rang takes a doorbell record of the QP, serves the requests that are new, and reports whether there were any. A record
// that was read before a RESET has the indexes of that time and is ignored.
func (q *QP) rang(recv, send uint32) (worked bool) {
	newSend, flush := q.took(recv, send)
	if newSend {
		q.eng.Post()
	}
	if flush {
		q.eng.PostRecv()
	}
	return newSend || flush
}

// took takes a doorbell record of the QP, and reports whether send requests are to be begun and
// receive requests to be flushed.
func (q *QP) took(recv, send uint32) (newSend, flush bool) {
	q.eng.Lock()
	defer q.eng.Unlock()
	state := q.eng.StateLocked()
	if state < rdma.StateRTR {
		return false, false
	}
	newSend = q.sq.posted(uint16(send))
	newRecv := q.rq.posted(uint16(recv))
	if newSend && q.ctx.tracing() {
		q.traceDoorbell(uint16(send))
	}
	q.setState(state, byDevice) // under the lock, or a Modify could come in between
	return newSend, newRecv && state == rdma.StateErr
}

// lostMemory takes the QP to ERR: the program has unmapped memory that the queues need.
// A program that has ended has no memory either: its context is closed soon, and nobody
// waits for its events.
func (q *QP) lostMemory(what string, err error) {
	if rdma.State(q.state.Load()) == rdma.StateErr || errors.Is(err, syscall.ESRCH) {
		return
	}
	q.ctx.trace(TraceEvent, "qp", q.number, rdma.EventQPFatal.String(), &operr.Error{Op: "queue", Errno: syscall.EFAULT, Reason: what + " cannot be read", Err: err})
	if q.eng.Modify(ibv.QPModify{State: rdma.StateErr}, ibv.AttrState) == nil {
		q.setState(rdma.StateErr, byDevice)
		q.async(rdma.EventQPFatal)
	}
}

func (q *QP) async(t rdma.EventType) {
	q.ctx.events.push(event{typ: t, obj: q, dead: q.closed.Load})
}

// CountQP makes a set of counters count what the QP of a number does, if there is one.
func (c *Context) CountQP(number uint32, s *roce.CounterSet) {
	if q := lookup(c, c.qps, number); q != nil && q.eng != nil {
		q.eng.CountIn(s)
	}
}
