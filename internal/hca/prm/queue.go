package prm

import "github.com/softmkey/softmkey/internal/base/bitfield"

// CQContext is a CREATE_CQ.
type CQContext struct {
	CQE128        bool // entries of 128 bytes
	Collapsed     bool // every completion is written to the first entry
	IgnoreOverrun bool
	Period, Count uint16 // of the moderation of events
	LogSize       uint8
	UAR           uint32
	EQN           uint8
	DBAddr        uint64 // an offset in DBUmem
	DBUmem        uint32
	RingOff       uint64 // an offset in RingUmem
	RingUmem      uint32

	// Of a kernel driver's command, which has pages instead of umems.
	DBUmemValid, RingUmemValid bool
	LogPage, PageOffset        uint8
}

// Pages returns where the ring lies if it is not in a umem. Its entries have size bytes.
func (c *CQContext) Pages(size int) PageList {
	return QueuePages(uint64(c.LogPage), uint64(c.PageOffset), uint64(size)<<c.LogSize)
}

const cqcOff = 0x10 * 8

// fields are the fields of a CREATE_CQ.
func (c *CQContext) fields(f bitfield.Fields) {
	size := uint8(0)
	if c.CQE128 {
		size = 1
	}
	bitfield.Number(f, cqcOff+0x08, 3, &size)
	c.CQE128 = size == 1
	bitfield.Flag(f, cqcOff+0x0e, &c.IgnoreOverrun)
	bitfield.Flag(f, cqcOff+0x0b, &c.Collapsed)
	bitfield.Number(f, cqcOff+0x84, 12, &c.Period)
	bitfield.Number(f, cqcOff+0x90, 16, &c.Count)
	bitfield.Number(f, cqcOff+0x63, 5, &c.LogSize)
	bitfield.Number(f, cqcOff+0x68, 24, &c.UAR)
	bitfield.Number(f, cqcOff+0xb8, 8, &c.EQN)
	bitfield.Number(f, cqcOff+0x20, 32, &c.DBUmem)
	bitfield.Flag(f, cqcOff+0x06, &c.DBUmemValid)
	bitfield.Flag(f, 0x2e0, &c.RingUmemValid)
	bitfield.Number(f, cqcOff+0x54, 6, &c.PageOffset)
	bitfield.Number(f, cqcOff+0xc3, 5, &c.LogPage)
	bitfield.Number(f, cqcOff+0x1c0, 64, &c.DBAddr)
	bitfield.Number(f, 0x280, 64, &c.RingOff)
	bitfield.Number(f, 0x2c0, 32, &c.RingUmem)
}

// ParseCreateCQ decodes a CREATE_CQ.
func ParseCreateCQ(in []byte) (c CQContext) {
	c.fields(bitfield.Read(in, 0))
	return c
}

// Put encodes a CREATE_CQ.
func (c CQContext) Put(in []byte) { c.fields(bitfield.Write(in, 0)) }

// Fields of a MODIFY_CQ.
const (
	CQPeriod = 1 << 0
	CQCount  = 1 << 1
	CQMode   = 1 << 4
)

// Fields of a MODIFY_CQ with the modifier CQResize.
const (
	CQLogSize    = 1 << 0
	CQPageOffset = 1 << 1
	CQPageSize   = 1 << 2
)

// CQResize is the modifier of a MODIFY_CQ that moves the queue to another ring. Its context and its list are those
// of a CREATE_CQ.
const CQResize = 1

// When the period of an event's moderation begins.
const (
	PeriodFromEvent      = 0 // at the last event
	PeriodFromCompletion = 1 // at the last completion
)

// ModifyCQ is a MODIFY_CQ: an event waits for Count completions, or for Period microseconds.
type ModifyCQ struct {
	Fields        uint32
	Period, Count uint16
	Mode          uint8 // of the period
}

// ParseModifyCQ decodes a MODIFY_CQ.
func ParseModifyCQ(in []byte) ModifyCQ {
	return ModifyCQ{Fields: uint32(Bits(in, 0x60, 32)), Mode: uint8(Bits(in, cqcOff+0x0f, 2)), Period: uint16(Bits(in, cqcOff+0x84, 12)), Count: uint16(Bits(in, cqcOff+0x90, 16))}
}

// CQState is the part of the answer to a QUERY_CQ that changes while the queue is in use.
type CQState struct {
	Failed             bool // it takes no more completions
	Armed              bool
	Consumer, Producer uint32 // 24 bits
}

// PutCQ encodes the answer to a QUERY_CQ.
func PutCQ(out []byte, c CQContext, s CQState) {
	c.Put(out)
	const overflow, armed, fired = 0x9, 0x9, 0xa
	state := uint64(fired)
	if s.Armed {
		state = armed
	}
	if s.Failed {
		SetBits(out, cqcOff, 4, overflow)
	}
	SetBits(out, cqcOff+0x14, 4, state)
	SetBits(out, cqcOff+0x148, 24, uint64(s.Consumer&0xffffff))
	SetBits(out, cqcOff+0x168, 24, uint64(s.Producer&0xffffff))
}

// WorkQueue is the part of the contexts of RMPs, RQs and SQs that they share. An RMP is a receive queue that QPs share.
type WorkQueue struct {
	Type      uint8 // WQ*
	PD        uint32
	LogStride uint8 // bytes of a request
	LogSize   uint8 // requests
	DBAddr    uint64
	DBUmem    uint32
	RingOff   uint64
	RingUmem  uint32
	Limit     uint16 // of an RMP: fewer requests raise an event

	// Of a kernel driver's command, which has pages instead of umems.
	DBUmemValid, RingUmemValid bool
	LogPage, PageOffset        uint8
}

// The types of a work queue.
const (
	WQList   = 0 // requests are a linked list
	WQCyclic = 1 // requests are consumed in the order of the ring
)

// Pages returns where the ring lies if it is not in a umem.
func (q *WorkQueue) Pages() PageList {
	return QueuePages(uint64(q.LogPage), uint64(q.PageOffset), 1<<(q.LogSize+q.LogStride))
}

const wqOff = 0x50 * 8

// ParseWorkQueue decodes a CREATE_RMP, CREATE_RQ or CREATE_SQ.
func ParseWorkQueue(in []byte) WorkQueue { return parseWorkQueue(fieldsOf(in)) }

func parseWorkQueue(command fieldOf) WorkQueue {
	f := command.from(wqOff)
	return WorkQueue{
		Type: uint8(f(0, 4)), PD: uint32(f(0x48, 24)), DBAddr: f(0x80, 64), LogStride: uint8(f(0x10c, 4)), LogSize: uint8(f(0x11b, 5)),
		DBUmem: uint32(f(0x140, 32)), RingUmem: uint32(f(0x160, 32)), RingOff: f(0x180, 64),
		Limit: uint16(f(0x30, 16)), PageOffset: uint8(f(0x2b, 5)), LogPage: uint8(f(0x113, 5)), DBUmemValid: f(0x120, 1) != 0, RingUmemValid: f(0x121, 1) != 0,
	}
}

// ParseModifyRMP decodes a MODIFY_RMP, which changes the limit of an RMP. ok is false if it
// changes something else.
func ParseModifyRMP(in []byte) (limit uint32, ok bool) {
	return uint32(Bits(in, wqOff+0x30, 16)), Bits(in, 0x80, 64) == 1
}

// PutRMP writes the answer to QUERY_RMP: the sizes of the queue are logarithms.
func PutRMP(out []byte, limit uint32, logSize, logStride uint8, failed bool) {
	state := uint64(1) // ready
	if failed {
		state = 3
	}
	SetBits(out, 0x20*8+8, 4, state)
	SetBits(out, wqOff+0x30, 16, uint64(limit))
	SetBits(out, wqOff+0x10c, 4, uint64(logStride))
	SetBits(out, wqOff+0x11b, 5, uint64(logSize))
}

// XRCSRQContext is a CREATE_XRC_SRQ of a kernel driver.
type XRCSRQContext struct {
	XRCD, CQ, PD, UserIndex uint32
	LogStride               uint8  // units of 16 bytes of a request
	LogSize                 uint8  // requests
	Limit                   uint16 // fewer requests raise an event
	DBAddr                  uint64
	LogPage, PageOffset     uint8
}

const xrcSRQOff = 0x10 * 8

// ParseCreateXRCSRQ decodes a CREATE_XRC_SRQ.
func ParseCreateXRCSRQ(in []byte) XRCSRQContext { return parseXRCSRQ(fieldsOf(in)) }

func parseXRCSRQ(command fieldOf) XRCSRQContext {
	f := command.from(xrcSRQOff)
	return XRCSRQContext{
		XRCD: uint32(f(0x28, 24)), CQ: uint32(f(0x48, 24)), PD: uint32(f(0xc8, 24)), UserIndex: uint32(f(0x88, 24)), LogStride: uint8(f(0x25, 3)), LogSize: uint8(f(0x04, 4)),
		DBAddr: f(0x140, 62) << 2, LogPage: uint8(f(0x82, 6)), PageOffset: uint8(f(0x40, 6)), Limit: uint16(f(0xe0, 16)),
	}
}

// ParseArmXRCSRQ decodes an ARM_XRC_SRQ, which sets the limit.
func ParseArmXRCSRQ(in []byte) (limit uint32) { return uint32(Bits(in, 0x70, 16)) }

// PutXRCSRQ writes the answer to QUERY_XRC_SRQ: the sizes of the queue are logarithms, of a request
// that of units of 16 bytes.
func PutXRCSRQ(out []byte, limit uint32, logSize, logStride uint8, failed bool) {
	state := uint64(0) // good
	if failed {
		state = 1
	}
	SetBits(out, xrcSRQOff, 4, state)
	SetBits(out, xrcSRQOff+4, 4, uint64(logSize))
	SetBits(out, xrcSRQOff+0x25, 3, uint64(logStride))
	SetBits(out, xrcSRQOff+0xe0, 16, uint64(limit))
}

// Pages returns where the ring lies.
func (c *XRCSRQContext) Pages() PageList {
	return QueuePages(uint64(c.LogPage), uint64(c.PageOffset), 16<<(c.LogSize+c.LogStride))
}

// UmemContext is a CREATE_UMEM: a list of pages.
type UmemContext struct {
	Shift  uint   // log2 of a page's size
	Offset uint32 // of the first byte in the first page
	Pages  []uint64
}

const (
	umemOff      = 0x10 * 8
	umemPages    = 0x30 // of the list, in bytes
	adapterShift = 12   // log2 of the smallest page
	pageFlags    = 0xfff
)

// ParseCreateUmem decodes a CREATE_UMEM. ok is false if the list of pages is longer than the
// command.
func ParseCreateUmem(in []byte) (u UmemContext, ok bool) {
	u = UmemContext{Shift: uint(Bits(in, umemOff+0x9b, 5)) + adapterShift, Offset: uint32(Bits(in, umemOff+0xa0, 32))}
	u.Pages, ok = Addresses(in, umemPages, Bits(in, umemOff+0xc0, 64))
	return u, ok
}
