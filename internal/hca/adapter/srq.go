package adapter

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/rdma"
)

// SRQAttr holds the attributes for creating an SRQ.
type SRQAttr struct {
	Type     int // 0: basic, 1: XRC
	PD       *PD
	XRCD     *XRCD
	CQ       *CQ // of an XRC SRQ
	Ring, DB Segments
	MaxWR    uint32 // requests that the ring holds: a power of two
	MaxSGE   uint32
	WQEShift uint32 // log2 of a request's size; 0: from MaxSGE as the driver computes it
	Limit    uint32
	UIDX     uint32
	Cyclic   bool // requests are consumed in the order of the ring, not of their linked list
	RMP      bool // the trace calls it rmp

	uid   uint16
	umems umemPair
}

func (a *SRQAttr) kind() string {
	if a.RMP {
		return "rmp"
	}
	return "srq"
}

// SRQ is a shared receive queue in the program's memory: a ring of requests that are
// linked by their indexes, since they complete in any order.
type SRQ struct {
	object
	attr   SRQAttr
	users  engine.Users
	closed atomic.Bool

	mu       sync.Mutex // guards the following fields; taken inside of a QP's lock
	ring     buffer
	db       buffer
	shift    int
	head     uint16 // index of the next request
	taken    uint16 // requests taken ever
	requests uint64 // taken, in 64 bits
	posted   uint16 // as the doorbell record says
	limit    uint32 // fewer requests than this raise the event, once
	failed   bool
	ahead    readAhead
	returned []*recvSlot // of messages that were not completed
	free     []*recvSlot
}

// The values of Modify's mask (enum ibv_srq_attr_mask).
const (
	SRQMaxWR = 1 << 0
	SRQLimit = 1 << 1
)

// CreateSRQ makes a shared receive queue.
func (c *Context) CreateSRQ(a SRQAttr) (_ *SRQ, err error) {
	const op = "create an SRQ"
	defer notCreated(c, a.kind(), &err)
	switch {
	case a.Type != srqBasic && a.Type != srqXRC:
		return nil, failure.New(op, syscall.EOPNOTSUPP, "type %d: only basic (0) and XRC (1) SRQs are supported", a.Type)
	case a.Type == srqXRC && (a.XRCD == nil || a.CQ == nil):
		return nil, failure.New(op, syscall.EINVAL, "an XRC SRQ needs an XRC domain and a CQ")
	case a.PD == nil:
		return nil, failure.New(op, syscall.EINVAL, "no PD")
	case !powerOfTwo(int(a.MaxWR)) || a.MaxWR > maxRecvRequests:
		return nil, failure.New(op, syscall.EINVAL, "%d requests: must be a power of two up to %d", a.MaxWR, maxRecvRequests)
	case a.MaxSGE > maxSRQSGE:
		return nil, failure.New(op, syscall.EINVAL, "%d SGEs: at most %d", a.MaxSGE, maxSRQSGE)
	}
	shift := int(a.WQEShift)
	if shift == 0 {
		size := max(32, prm.SRQHeaderSize+prm.DataSegSize*int(a.MaxSGE))
		shift = bits.Len(uint(size - 1))
	}
	if shift < 5 || shift > maxRecvShift {
		return nil, failure.New(op, syscall.EINVAL, "requests of 2^%d bytes: must be 2^5 to 2^%d", shift, maxRecvShift)
	}
	s := &SRQ{object: object{ctx: c, number: newNumber(c, &c.dev.next.srq, c.srqs), uid: a.uid}, attr: a, shift: shift, limit: a.Limit}
	s.attr.Ring, s.attr.DB = nil, nil // ring and db have them
	if err := s.ring.open(op, "the ring", a.Ring, int(a.MaxWR)<<shift); err != nil {
		return nil, err
	}
	if err := s.db.openRecord(op, a.DB); err != nil {
		return nil, err
	}
	if err := enterAll(op, s.parents(), "SRQ"); err != nil {
		return nil, err
	}
	if err := enter(c, op, c.srqs, s.number, s); err != nil {
		leaveAll(s.parents(), "SRQ")
		return nil, err
	}
	if a.Type == srqXRC {
		a.XRCD.locked(func() { a.XRCD.srqs[s.number] = s })
	}
	c.trace(TraceObject, a.kind(), s.number, "create", nil, value("pd", a.PD.number), value("requests", a.MaxWR), value("sges_per_request", a.MaxSGE))
	return s, nil
}

// The types of SRQs (enum ibv_srq_type).
const (
	srqBasic = 0
	srqXRC   = 1
)

func (s *SRQ) parents() []*engine.Users {
	p := []*engine.Users{s.attr.PD.eng.Users()}
	if s.attr.Type == srqXRC {
		p = append(p, &s.attr.XRCD.users, &s.attr.CQ.users)
	}
	return append(p, s.attr.umems.users()...)
}

// enterAll begins the use of objects by one of a kind: of all of them, or of none.
func enterAll(op string, users []*engine.Users, kind string) error {
	for i, u := range users {
		if err := u.Enter(op, kind); err != nil {
			leaveAll(users[:i], kind)
			return err
		}
	}
	return nil
}

// leaveAll ends the use of objects by one of a kind.
func leaveAll(users []*engine.Users, kind string) {
	for _, u := range users {
		u.Leave(kind)
	}
}

const maxSRQSGE = 31

// take returns the request at the head of the list, or nil.
func (s *SRQ) take() (*recvSlot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed || s.closed.Load() {
		return nil, nil
	}
	if n := len(s.returned); n > 0 {
		slot := s.returned[n-1]
		s.returned = s.returned[:n-1]
		return slot, nil
	}
	fail := func(err error) (*recvSlot, error) {
		s.failed = true
		s.ctx.events.push(event{typ: ibv.EventSRQErr, obj: s, dead: s.closed.Load})
		return nil, err
	}
	if s.taken == s.posted {
		if err := s.refresh(); err != nil {
			return fail(err)
		}
		if s.taken == s.posted {
			return nil, nil
		}
	}
	if n := int(s.posted - s.taken); n > int(s.attr.MaxWR) {
		return fail(failure.New("SRQ", syscall.EINVAL, "the doorbell is %d requests ahead, the queue has %d", n, s.attr.MaxWR))
	}
	if uint32(s.head) >= s.attr.MaxWR {
		return fail(failure.New("SRQ", syscall.EINVAL, "the list goes to request %d, the queue has %d", s.head, s.attr.MaxWR))
	}
	entry, err := s.entry()
	if err != nil {
		return fail(&operr.Error{Op: "SRQ", Errno: syscall.EFAULT, Reason: "the queue cannot be read", Err: err})
	}
	slot := popRecvSlot(&s.free)
	s.requests++
	slot.fill(s.requests, s.head, entry[prm.SRQHeaderSize:])
	if s.attr.Cyclic {
		s.head = uint16((uint32(s.head) + 1) & (s.attr.MaxWR - 1))
	} else {
		s.head = prm.NextSRQ(entry)
	}
	s.taken++
	s.reachLimit()
	return slot, nil
}

// readAhead is a copy of neighbouring entries of an SRQ's ring. One read of the program's memory costs
// more than the bytes, and programs post most requests in the order of the ring.
type readAhead struct {
	buf    []byte
	first  int    // index of the first entry
	n      int    // entries
	posted uint16 // requests that had been posted before the copy was made
}

// aheadBytes is the size of the copy, if entries are not longer.
const aheadBytes = 512

// entry returns the entry at the head of the list, until the next call. s.mu is held, and the list is
// not empty.
//
// An entry of the copy counts if the list leads to it as one of the requests that had been posted before
// the copy was made: a program does not change them before they complete.
func (s *SRQ) entry() ([]byte, error) {
	a := &s.ahead
	at := int(s.head) - a.first
	if at < 0 || at >= a.n || int16(a.posted-s.taken) <= 0 {
		a.first, a.n, a.posted = int(s.head), 0, s.posted
		n := max(1, min(aheadBytes>>s.shift, int(s.attr.MaxWR)-a.first, int(s.posted-s.taken)))
		a.buf = slices.Grow(a.buf[:0], n<<s.shift)[:n<<s.shift]
		if err := s.ring.read(a.first<<s.shift, a.buf); err != nil {
			return nil, err
		}
		a.n, at = n, 0
	}
	return a.buf[at<<s.shift : (at+1)<<s.shift], nil
}

// refresh reads the doorbell record. s.mu is held.
func (s *SRQ) refresh() error {
	w, err := s.db.load32(prm.DoorbellRecv)
	if err != nil {
		return &operr.Error{Op: "SRQ", Errno: syscall.EFAULT, Reason: "the doorbell record cannot be read", Err: err}
	}
	s.posted = uint16(w)
	return nil
}

// reachLimit raises the event if fewer requests than the limit are left. s.mu is held.
func (s *SRQ) reachLimit() {
	if s.limit == 0 || uint32(s.posted-s.taken) >= s.limit {
		return
	}
	// The known count may be old, because the program rings no doorbell for receive
	// requests.
	if s.refresh() != nil || uint32(s.posted-s.taken) >= s.limit {
		return
	}
	s.limit = 0
	s.ctx.trace(TraceEvent, "srq", s.number, rdma.EventSRQLimitReached.String(), nil)
	s.ctx.events.push(event{typ: rdma.EventSRQLimitReached, obj: s, dead: s.closed.Load})
}

func (s *SRQ) recycle(slot *recvSlot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, slot)
}

// giveBack puts a receive request back whose message was not completed. It is taken again before others.
func (s *SRQ) giveBack(slot *recvSlot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returned = append(s.returned, slot)
}

// Modify sets the limit (enum ibv_srq_attr_mask). The size of the queue is fixed.
func (s *SRQ) Modify(maxWR, limit uint32, mask uint32) error {
	const op = "modify the SRQ"
	var err error
	switch {
	case mask&SRQMaxWR != 0:
		err = failure.New(op, syscall.EINVAL, "a new size: the queue cannot be resized")
	case mask&^SRQLimit != 0:
		err = failure.New(op, syscall.EINVAL, "mask %#x: must be %#x", mask, SRQLimit)
	case mask&SRQLimit != 0 && limit >= s.attr.MaxWR:
		err = failure.New(op, syscall.EINVAL, "limit %d: the queue has %d requests", limit, s.attr.MaxWR)
	}
	if err != nil {
		return s.ctx.refused("srq", s.number, "modify", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if mask&SRQLimit != 0 {
		s.limit = limit
		s.ctx.trace(TraceObject, "srq", s.number, "arm", nil, value("limit", limit))
		s.reachLimit()
	}
	return nil
}

// state returns the limit, which is 0 once its event was raised, and whether the queue has failed.
func (s *SRQ) state() (limit uint32, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit, s.failed
}

// Query returns the SRQ's sizes and its limit, which is 0 once its event was raised.
func (s *SRQ) Query() (maxWR, maxSGE, limit uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attr.MaxWR - 1, s.attr.MaxSGE, s.limit
}

// Close destroys the SRQ. EBUSY: a QP uses it.
func (s *SRQ) Close() error {
	first, err := s.users.Close("destroy the SRQ", s.ctx.qpsOf)
	if !first {
		return err
	}
	s.closed.Store(true)
	if s.attr.Type == srqXRC {
		s.attr.XRCD.locked(func() { delete(s.attr.XRCD.srqs, s.number) })
	}
	leaveAll(s.parents(), "SRQ")
	leave(s.ctx, s.ctx.srqs, s.number)
	s.ctx.trace(TraceObject, s.attr.kind(), s.number, "destroy", nil)
	return nil
}

// createRMP executes CREATE_RMP. An RMP is a shared receive queue.
func createRMP(c *Context, x *prm.Call) error {
	m := prm.ParseWorkQueue(x.In)
	switch {
	case m.Type > prm.WQCyclic:
		return refuse(prm.CmdBadParam, synNotSupported, "a queue that is neither a list (0) nor cyclic (1)")
	case m.LogSize > 15:
		return refuse(prm.CmdBadParam, synValue, "2^%d requests: at most 2^15", m.LogSize)
	}
	a := SRQAttr{RMP: true, Cyclic: m.Type == prm.WQCyclic, MaxWR: 1 << m.LogSize, WQEShift: uint32(m.LogStride), Limit: uint32(m.Limit), uid: x.UID}
	var err error
	if a.umems[0], a.Ring, err = ringOf(c, x, "the ring", m.RingUmemValid, m.RingUmem, m.RingOff, m.Pages()); err != nil {
		return err
	}
	if a.umems[1], a.DB, err = recordOf(c, x, m.DBUmemValid, m.DBUmem, m.DBAddr); err != nil {
		return err
	}
	return c.createSRQ(x, a, m.PD)
}

// createSRQ ends a command that creates an SRQ.
func (c *Context) createSRQ(x *prm.Call, a SRQAttr, pd uint32) (err error) {
	if a.PD, err = c.pd(x, pd); err != nil {
		return err
	}
	s, err := c.CreateSRQ(a)
	return answer(x, s, err)
}

// modifyRMP executes MODIFY_RMP: the limit, below which an event is raised.
func (s *SRQ) modifyRMP(x *prm.Call) error {
	limit, ok := prm.ParseModifyRMP(x.In)
	if !ok {
		return refuse(prm.CmdBadParam, synNotSupported, "RMP %#x: only its limit can be changed", s.number)
	}
	return s.Modify(0, limit, SRQLimit)
}

// queryRMP executes QUERY_RMP.
func (s *SRQ) queryRMP(x *prm.Call) error {
	limit, failed := s.state()
	prm.PutRMP(x.Out, limit, uint8(bits.TrailingZeros32(s.attr.MaxWR)), uint8(s.shift), failed)
	return nil
}

// armXRCSRQ executes ARM_XRC_SRQ: the limit, below which an event is raised.
func (s *SRQ) armXRCSRQ(x *prm.Call) error {
	return s.Modify(0, prm.ParseArmXRCSRQ(x.In), SRQLimit)
}

// queryXRCSRQ executes QUERY_XRC_SRQ.
func (s *SRQ) queryXRCSRQ(x *prm.Call) error {
	limit, failed := s.state()
	prm.PutXRCSRQ(x.Out, limit, uint8(bits.TrailingZeros32(s.attr.MaxWR)), uint8(s.shift-4), failed)
	return nil
}
