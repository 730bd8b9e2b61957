package adapter

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/rdma"
)

// CQAttr holds the attributes for creating a CQ.
type CQAttr struct {
	Entries       int      // number of entries of the ring: a power of two
	CQESize       int      // 64 or 128
	Ring, DB      Segments // the ring and the doorbell record
	UAR           *UAR     // the page through whose doorbell the CQ is armed; may be nil
	IgnoreOverrun bool
	Collapsed     bool   // every completion is written to the first entry
	EQN           uint32 // the event queue; see [CQ.EQN]
	Channel       bool   // a completion channel waits for events; see [CQ.Listen]

	uid   uint16
	umems umemPair
}

// CQ is a completion queue in the program's memory.
type CQ struct {
	object
	attr   CQAttr
	umems  umemPair
	users  engine.Users
	closed atomic.Bool

	listened atomic.Bool // the CQ raises completion events; see Listen

	mu       sync.Mutex // guards the following fields; taken inside of a QP's lock
	ring     buffer
	db       buffer
	entries  uint32
	cqeSize  int
	producer uint32 // number of completions written since the CQ was created
	consumer uint32 // consumer index as read last; the doorbell record has its low 24 bits
	reported uint32 // producer after the last report of a bad signature
	failed   bool
	cqe      [prm.CQESize]byte // the completion that is being written; a field, so that completions are not allocated

	arm arming
}

const (
	maxCQE     = engine.MaxCQE
	unarmedArm = 0xffffffff // stands in the arm record until the program's first arm
)

func powerOfTwo(n int) bool { return n > 0 && n&(n-1) == 0 }

// CreateCQ makes a CQ. It writes a value that is not 0 to the arm record, so that the
// first arm is seen.
func (c *Context) CreateCQ(a CQAttr) (_ *CQ, err error) {
	const op = "create a CQ"
	defer notCreated(c, "cq", &err)
	if err := checkRing(op, a.Entries, a.CQESize); err != nil {
		return nil, err
	}
	q := &CQ{object: object{ctx: c, number: newNumber(c, &c.dev.next.cq, c.cqs), uid: a.uid}, attr: a, umems: a.umems, entries: uint32(a.Entries), cqeSize: a.CQESize}
	q.attr.Ring, q.attr.DB = nil, nil // q.ring and q.db hold the memory
	q.listened.Store(a.Channel)
	if err := q.ring.open(op, "the ring", a.Ring, a.Entries*a.CQESize); err != nil {
		return nil, err
	}
	if err := q.db.openRecord(op, a.DB); err != nil {
		return nil, err
	}
	var sentinel [4]byte
	prm.PutUint32(sentinel[:], unarmedArm)
	if err := q.db.write(prm.DoorbellArm, sentinel[:]); err != nil {
		return nil, &operr.Error{Op: op, Errno: syscall.EFAULT, Reason: "the doorbell record cannot be written", Err: err}
	}
	q.arm.init()
	if err := enterAll(op, q.umems.users(), "CQ"); err != nil {
		return nil, err
	}
	if err := enter(c, op, c.cqs, q.number, q); err != nil {
		leaveAll(q.umems.users(), "CQ")
		return nil, err
	}
	if a.Channel {
		a.UAR.ring(0, 1)
		c.stale.Store(true)
	}
	c.trace(TraceObject, "cq", q.number, "create", nil, value("entries", a.Entries), value("cqe_size", a.CQESize), value("shared", q.ring.shared()))
	return q, nil
}

func checkRing(op string, entries, size int) error {
	switch {
	case size != 64 && size != 128:
		return failure.New(op, syscall.EINVAL, "completions of %d bytes: must be 64 or 128", size)
	case !powerOfTwo(entries) || entries > maxCQE:
		return failure.New(op, syscall.EINVAL, "%d entries: must be a power of two up to %d", entries, maxCQE)
	}
	return nil
}

// Listen makes the CQ raise completion events from now on, as one that was created with a
// channel does.
func (q *CQ) Listen() {
	if q.listened.Swap(true) {
		return
	}
	q.attr.UAR.ring(0, 1)
	q.ctx.stale.Store(true)
}

// Close destroys the CQ. EBUSY: a QP or SRQ uses it.
func (q *CQ) Close() error {
	first, err := q.users.Close("destroy the CQ", q.ctx.qpsOf)
	if !first {
		return err
	}
	takeBackReports(q.ctx, q.unpolledReports(nil))
	q.closed.Store(true)
	q.mu.Lock()
	q.arm.stop()
	q.mu.Unlock()
	leave(q.ctx, q.ctx.cqs, q.number)
	if q.listened.Load() {
		q.attr.UAR.ring(0, -1)
	}
	q.ctx.forgetPlan()
	leaveAll(q.umems.users(), "CQ")
	q.ctx.trace(TraceObject, "cq", q.number, "destroy", nil)
	return nil
}

// entry is a completion that a CQ can take: prm.CQE or prm.SigErrCQE.
type entry interface {
	Put(b []byte)
	OpOwn(owner uint8) uint8
}

// push writes a completion. It returns false if the completion is lost: the ring is full
// or is no memory of the program any more. The CQ takes no more completions then.
func (q *CQ) push(e entry, solicited bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failed || q.closed.Load() {
		return false
	}
	if err := q.room(1); err != nil {
		q.fail(err)
		return false
	}
	if err := q.write(e); err != nil {
		q.fail(&operr.Error{Op: "completion", Errno: syscall.EFAULT, Reason: "the CQ's ring cannot be written", Err: err})
		return false
	}
	if q.listened.Load() {
		q.completed(solicited)
	}
	return true
}

// behind returns how many completions a consumer index is behind the producer. Drivers write
// between 16 and 24 bits of their index. These always include the bits that distinguish two passes
// through the ring, so the others are masked off. The consumer is never ahead of the producer.
func (q *CQ) behind(ci uint32) uint32 { return (q.producer - ci) & (2*q.entries - 1) }

// look reads the consumer index, unless the CQ was closed. q.mu is held.
func (q *CQ) look() error {
	if q.closed.Load() {
		return nil
	}
	ci, err := q.db.load32(prm.DoorbellCI)
	if err == nil {
		q.consumer = q.producer - q.behind(ci)
	}
	return err
}

// lastReport returns the number of completions up to the last report of a bad signature.
func (q *CQ) lastReport() uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.reported
}

// polled reports whether the program has polled the first n completions.
func (q *CQ) polled(n uint32) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.look() == nil && int32(q.consumer-n) >= 0
}

// unpolledReports returns the reports of bad signatures that the driver drops when of goes to RESET: libmlx5 drops
// the completions whose bytes 33 to 35 are the QP's user index, kernels those with the QP's number. If of is nil,
// unpolledReports returns all that were not polled.
func (q *CQ) unpolledReports(of *QP) (list []prm.SigErrCQE) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed.Load() || q.reported == 0 || q.look() != nil || int32(q.reported-q.consumer) <= 0 {
		return nil
	}
	held := min(q.producer-q.consumer, q.entries)
	if q.attr.Collapsed {
		held = 1
	}
	for i := q.producer - held; i != q.producer; i++ {
		var b [prm.CQESize]byte
		if q.ring.read(q.place(i), b[:]) != nil {
			break
		}
		c, _ := prm.ParseCQE(b[:])
		if c.Opcode == prm.CQESigErr && (of == nil || c.UserIndex == of.attr.UIDX || c.QPN == of.number && of.attr.UIDX == kernelUIDX) {
			list = append(list, prm.ParseSigErrCQE(b[:]))
		}
	}
	return list
}

// kernelUIDX is the user index of the queues that kernels make.
const kernelUIDX = 0xffffff

// room returns an error if the ring has fewer than n free entries. q.mu is held.
func (q *CQ) room(n uint32) error {
	if q.producer-q.consumer+n <= q.entries || q.attr.IgnoreOverrun {
		return nil
	}
	if err := q.look(); err != nil {
		return &operr.Error{Op: "completion", Errno: syscall.EFAULT, Reason: "the CQ's doorbell record cannot be read", Err: err}
	}
	behind := q.producer - q.consumer
	if behind+n > q.entries {
		return failure.New("completion", syscall.ENOSPC, "the CQ holds %d completions, which is all that it has room for", behind)
	}
	return nil
}

// place returns where completion n stands in the ring, counted from 0.
func (q *CQ) place(n uint32) int {
	if q.attr.Collapsed {
		n = 0
	}
	return int(n&(q.entries-1))*q.cqeSize + q.cqeSize - prm.CQESize
}

// write writes a completion after the last one. q.mu is held.
func (q *CQ) write(e entry) error {
	cqe := &q.cqe
	clear(cqe[:])
	e.Put(cqe[:])
	cqe[prm.CQESize-1] = e.OpOwn(uint8(q.producer / q.entries & 1))
	err := q.ring.publish(q.place(q.producer), cqe[:])
	if err == nil {
		q.producer++
		switch e := e.(type) {
		case *prm.CQE:
			q.ctx.dev.failures.count(e)
		case *prm.SigErrCQE:
			q.reported = q.producer
		}
	}
	return err
}

// fail ends the use of the CQ. q.mu is held.
func (q *CQ) fail(err error) {
	q.failed = true
	q.ctx.trace(TraceEvent, "cq", q.number, rdma.EventCQErr.String(), err)
	q.ctx.events.push(event{typ: rdma.EventCQErr, obj: q, dead: q.closed.Load})
}

// Resize moves the CQ to another ring. The old ring gets an entry that says so after its
// last completion; the driver moves the completions that were not polled.
func (q *CQ) Resize(to Segments, entries, cqeSize int) error {
	return q.ctx.changed("cq", q.number, "resize", q.resize(to, entries, cqeSize), value("entries", entries))
}

func (q *CQ) resize(to Segments, entries, cqeSize int) error {
	const op = "resize the CQ"
	if err := checkRing(op, entries, cqeSize); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var ring buffer
	if err := ring.open(op, "the new ring", to, entries*cqeSize); err != nil {
		return err
	}
	if err := q.look(); err != nil {
		return &operr.Error{Op: op, Errno: syscall.EFAULT, Reason: "the doorbell record cannot be read", Err: err}
	}
	// The resize CQE ends the old ring. It needs a free entry in the old ring, and the consumer index counts it
	// in the new one, too.
	held := q.producer - q.consumer
	if held+1 > uint32(entries) || held+1 > q.entries {
		return failure.New(op, syscall.EINVAL, "%d entries: %d completions wait to be polled in a ring of %d", entries, held, q.entries)
	}
	if err := q.write(&prm.CQE{Opcode: prm.CQEResize}); err != nil {
		return &operr.Error{Op: op, Errno: syscall.EFAULT, Reason: "the old ring cannot be written", Err: err}
	}
	q.ring, q.entries, q.cqeSize = ring, uint32(entries), cqeSize
	return nil
}

// Moderate lets the CQ raise an event only after count completions or period
// microseconds.
func (q *CQ) Moderate(count, period uint16) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.arm.count, q.arm.period = uint32(count), time.Duration(period)*time.Microsecond
	q.ctx.trace(TraceObject, "cq", q.number, "moderate", nil, value("count", count), value("period", period))
	return nil
}

// moderation returns what Moderate has set.
func (q *CQ) moderation() (count, period uint16) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return uint16(q.arm.count), uint16(q.arm.period / time.Microsecond)
}

// createCQ executes CREATE_CQ.
func createCQ(c *Context, x *prm.Call) error {
	m := prm.ParseCreateCQ(x.In)
	c.mu.Lock()
	_, known := c.eqs[uint32(m.EQN)]
	c.mu.Unlock()
	if !known {
		return missing("EQ", uint32(m.EQN))
	}
	a := CQAttr{Entries: 1 << m.LogSize, CQESize: 64, IgnoreOverrun: m.IgnoreOverrun, Collapsed: m.Collapsed, EQN: uint32(m.EQN), Channel: c.guest, uid: x.UID}
	if m.CQE128 {
		a.CQESize = 128
	}
	var err error
	if a.UAR, err = c.uar(m.UAR); err != nil {
		return err
	}
	if a.umems[0], a.Ring, err = ringOf(c, x, "the ring", m.RingUmemValid, m.RingUmem, m.RingOff, m.Pages(a.CQESize)); err != nil {
		return err
	}
	if a.umems[1], a.DB, err = recordOf(c, x, m.DBUmemValid, m.DBUmem, m.DBAddr); err != nil {
		return err
	}
	q, err := c.CreateCQ(a)
	if err != nil {
		return err
	}
	prm.PutNumber(x.Out, q.number)
	if m.Count != 0 || m.Period != 0 {
		return q.Moderate(m.Count, m.Period)
	}
	return nil
}

// modifyCQ executes MODIFY_CQ: the moderation of events, or another ring.
func (q *CQ) modifyCQ(x *prm.Call) error {
	m := prm.ParseModifyCQ(x.In)
	if x.Mod == prm.CQResize {
		return q.resizeCQ(x, m.Fields)
	}
	if x.Mod != 0 || m.Fields&^(prm.CQPeriod|prm.CQCount|prm.CQMode) != 0 {
		return refuse(prm.CmdBadParam, synNotSupported, "modifier %d, fields %#x: only period (%#x), count (%#x) and mode (%#x) can be changed", x.Mod, m.Fields, prm.CQPeriod, prm.CQCount, prm.CQMode)
	}
	if m.Fields&prm.CQMode != 0 && m.Mode > prm.PeriodFromCompletion {
		return refuse(prm.CmdBadParam, synNotSupported, "period mode %d: must be %d (from an event) or %d (from a completion)", m.Mode, prm.PeriodFromEvent, prm.PeriodFromCompletion)
	}
	// A period begins with the first completion that waits, in either mode: with few completions the modes
	// differ by at most a period.
	count, period := q.moderation()
	if m.Fields&prm.CQPeriod != 0 {
		period = m.Period
	}
	if m.Fields&prm.CQCount != 0 {
		count = m.Count
	}
	return q.Moderate(count, period)
}

// resizeCQ executes MODIFY_CQ with the modifier that moves a queue to another ring.
func (q *CQ) resizeCQ(x *prm.Call, fields uint32) error {
	const all = prm.CQLogSize | prm.CQPageOffset | prm.CQPageSize
	m := prm.ParseCreateCQ(x.In)
	switch {
	case fields != all:
		return refuse(prm.CmdBadParam, synNotSupported, "fields %#x of a new ring: must be %#x, its size, the size of its pages and the offset in the first", fields, all)
	case m.RingUmemValid:
		return refuse(prm.CmdBadParam, synNotSupported, "CQ %#x: a new ring on a umem is not supported", q.number)
	}
	size := 64
	if m.CQE128 {
		size = 128
	}
	_, ring, err := ringOf(q.ctx, x, "the new ring", false, 0, 0, m.Pages(size))
	if err != nil {
		return err
	}
	return q.Resize(ring, 1<<m.LogSize, size)
}

// queryCQ executes QUERY_CQ.
func (q *CQ) queryCQ(x *prm.Call) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.look()
	m := prm.CQContext{CQE128: q.cqeSize == 128, IgnoreOverrun: q.attr.IgnoreOverrun, Collapsed: q.attr.Collapsed, LogSize: uint8(bits.TrailingZeros32(q.entries)), EQN: uint8(q.attr.EQN),
		Period: uint16(q.arm.period / time.Microsecond), Count: uint16(q.arm.count)}
	if u := q.attr.UAR; u != nil {
		m.UAR = u.number
	}
	prm.PutCQ(x.Out, m, prm.CQState{
		Failed: q.failed, Armed: q.arm.armed, Consumer: q.consumer, Producer: q.producer,
	})
	return nil
}
