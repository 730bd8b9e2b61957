package adapter

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// UAR is a page of doorbell registers that is shared with the program.
type UAR struct {
	object

	// The numbers of queues that use the page: QPs, and CQs that are armed through it.
	qps, arms atomic.Int32

	// mu is held for reading while page is used. Drivers free a page while queues still name
	// it: then page is nil, and no doorbell of it is seen any more.
	mu   sync.RWMutex
	page []byte

	// seen are the registers as Poll saw them last.
	seen [len(registers)]uint64
}

// registers are the offsets that a program writes to ring a doorbell: the arm register
// and the first words of the BlueFlame registers.
var registers = [...]int{prm.UARArmCQ, 0x800, 0x900, 0xa00, 0xb00}

// NewUAR makes a UAR of a shared page of 4096 bytes. Commands name it by number.
func (c *Context) NewUAR(number uint32, page []byte) (*UAR, error) {
	const op = "allocate a UAR"
	if len(page) != prm.UARSize || uintptr(unsafe.Pointer(unsafe.SliceData(page)))%8 != 0 {
		return nil, failure.New(op, syscall.EINVAL, "a page of %d bytes: must be %d, aligned", len(page), prm.UARSize)
	}
	u := &UAR{object: object{ctx: c, number: number}, page: page}
	if err := enter(c, op, c.uars, number, u); err != nil {
		return nil, err
	}
	c.staleUARs.Store(true)
	return u, nil
}

// Close ends the use of the page. Queues that name the page are found by Scan from then on.
func (u *UAR) Close() error {
	leave(u.ctx, u.ctx.uars, u.number)
	u.ctx.staleUARs.Store(true)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.page = nil
	return nil
}

// Rung reports which registers programs ring: those of queue pairs, and those where CQs are
// armed.
func (u *UAR) Rung() (qps, arms bool) { return u.qps.Load() > 0, u.arms.Load() > 0 }

// ring adds to the numbers of queues that use the page. u is nil for a queue without a page.
func (u *UAR) ring(qps, arms int32) {
	if u != nil {
		u.qps.Add(qps)
		u.arms.Add(arms)
	}
}

func (u *UAR) register(off int) uint64 {
	u.mu.RLock()
	defer u.mu.RUnlock()
	if u.page == nil {
		return 0
	}
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&u.page[off])))
}

// armHint changes when a CQ of the page is armed.
func (u *UAR) armHint() uint64 { return u.register(prm.UARArmCQ) }

// rung appends the values of the registers that changed since the last call.
func (u *UAR) rung(values []ringing) []ringing {
	u.mu.RLock()
	defer u.mu.RUnlock()
	if u.page == nil {
		return values
	}
	for i, off := range registers {
		if v := atomic.LoadUint64((*uint64)(unsafe.Pointer(&u.page[off]))); v != u.seen[i] {
			u.seen[i] = v
			var b [8]byte
			binary.NativeEndian.PutUint64(b[:], v)
			values = append(values, ringing{off, binary.BigEndian.Uint64(b[:])})
		}
	}
	return values
}

// ringing is a register that was written, and its value as one big-endian number.
type ringing struct {
	off int
	v   uint64
}

// Ring handles a write of v, 8 bytes as one big-endian number, to the register at offset off of a UAR page. v
// contains the number of the queue. How far the program has posted is read from the queue's doorbell record, as
// when the page is polled. Ring reports whether there was work.
func (c *Context) Ring(off int, v uint64) (worked bool) {
	switch {
	case off == prm.UARArmCQ:
		if q := c.CQ(uint32(v) & 0xffffff); q != nil {
			return q.sawArm(uint32(v >> 32))
		}
	case off >= prm.UARBlue && off < prm.UARBlueEnd:
		if q := c.QP(uint32(v) >> 8); q != nil {
			return q.lookAtRecord()
		}
	}
	return false
}

// lookAtRecord takes the doorbell record, and reports whether there was work.
func (q *QP) lookAtRecord() (worked bool) {
	if !q.rings() {
		return false
	}
	var b [prm.DoorbellSize]byte
	if err := q.db.read(0, b[:]); err != nil {
		q.lostMemory("the doorbell record", err)
		return false
	}
	return q.rang(prm.Uint32(b[prm.DoorbellRecv:]), prm.Uint32(b[prm.DoorbellSend:]))
}

// doorbellPlan is how the doorbell records of a context are read: few pieces of memory
// in one batch, since the driver puts the records of many queues into one page.
type doorbellPlan struct {
	built   bool
	keys    bool // requests may configure keys or windows; see order.go
	reads   []doorbellRead
	cells   []doorbellCell
	records int // in reads and cells

	// The next part of a scan in parts begins with next in cells, or beyond them in reads. unread
	// is the number of cells and reads that are left.
	next, unread int
}

// scanPart is the number of records that are read at once after a doorbell, besides the one that
// the register names. A page has 64.
const scanPart = 64

// doorbellRead is the part of a page that has records.
type doorbellRead struct {
	mem   Memory
	addr  uint64
	buf   []byte
	cells []doorbellCell // in it; those of shared records have no read
}

// doorbellCell is a record: of a QP, or of a CQ that is armed by it.
type doorbellCell struct {
	db  *buffer
	qp  *QP
	cq  *CQ
	off int // in the read's buf
}

// record returns the memory of the record, which is one piece.
func (cell *doorbellCell) record() *bufferPiece { return &cell.db.pieces[0] }

// Poll checks the records to which the doorbell registers point, and reports whether
// there was work, or is more to check.
func (c *Context) Poll() (worked bool) {
	c.polling.Lock()
	defer c.polling.Unlock()
	if values := c.rung(); len(values) > 0 {
		c.refresh()
		if c.plan.records <= scanPart || c.plan.keys {
			return c.scan()
		}
		// A register names the queue that was rung last. Others may have been rung before it, so
		// all records are read, in parts: the queue of a program that has many does not wait.
		for _, r := range values {
			worked = c.Ring(r.off, r.v) || worked
		}
		c.plan.unread = len(c.plan.cells) + len(c.plan.reads)
	}
	if c.plan.unread > 0 {
		c.scanPart()
		return true
	}
	return worked
}

// Scan looks at every doorbell record and reports whether there was work.
func (c *Context) Scan() (worked bool) {
	c.polling.Lock()
	defer c.polling.Unlock()
	c.rung()
	c.refresh()
	return c.scan()
}

// rung returns the registers that changed since the last call. c.polling is held.
func (c *Context) rung() []ringing {
	if c.staleUARs.Swap(false) {
		c.pages = snapshot(c, c.uars)
	}
	c.ringing = c.ringing[:0]
	for _, u := range c.pages {
		c.ringing = u.rung(c.ringing)
	}
	return c.ringing
}

// forgetPlan waits for a scan that is under way, and makes the next one rebuild the plan: the
// records of a queue that was destroyed are not read any more.
func (c *Context) forgetPlan() {
	c.polling.Lock()
	defer c.polling.Unlock()
	c.plan = doorbellPlan{}
}

// Busy reports whether doorbells may come: a QP receives, sends or failed.
func (c *Context) Busy() bool { return c.busy.Load() > 0 }

// refresh rebuilds the plan after queues came or went. That takes time in proportion to the queues, so it
// is done when the records are read, and not after each of many queues that a program creates.
// c.polling is held.
func (c *Context) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plan.keys = len(c.mkeys)+len(c.mws) > 0
	if !c.stale.Swap(false) && c.plan.built {
		return
	}
	p := doorbellPlan{built: true, keys: c.plan.keys}
	var copied []doorbellCell
	add := func(cell doorbellCell) {
		if cell.db.shared() {
			p.cells = append(p.cells, cell)
		} else {
			copied = append(copied, cell)
		}
	}
	for _, q := range c.qps {
		if q.rings() {
			add(doorbellCell{db: &q.db, qp: q})
		}
	}
	for _, q := range c.cqs {
		if q.listened.Load() {
			add(doorbellCell{db: &q.db, cq: q})
		}
	}
	slices.SortFunc(copied, func(a, b doorbellCell) int { return cmp.Compare(a.record().addr, b.record().addr) })
	const page = 4096
	for _, cell := range copied {
		if n := len(p.reads); n > 0 {
			r := &p.reads[n-1]
			end := cell.record().addr + prm.DoorbellSize
			if r.mem == cell.record().mem && r.addr/page == (end-1)/page {
				cell.off = int(cell.record().addr - r.addr)
				r.buf = make([]byte, end-r.addr)
				r.cells = append(r.cells, cell)
				continue
			}
		}
		p.reads = append(p.reads, doorbellRead{mem: cell.record().mem, addr: cell.record().addr, buf: make([]byte, prm.DoorbellSize), cells: []doorbellCell{cell}})
	}
	p.records = len(p.cells) + len(copied)
	c.plan = p
}

var vecPool = sync.Pool{New: func() any { return new([]Vec) }}

// scan reads all records and handles the new contents. c.polling is held, and the plan is fresh.
func (c *Context) scan() (worked bool) {
	c.plan.unread = 0
	if c.plan.keys {
		return c.scanInOrder()
	}
	return c.readAll(nil)
}

// readAll reads all records. Queue pairs that were rung are added to rung, or served at once if it
// is nil.
func (c *Context) readAll(rung *rungQPs) (worked bool) {
	p := &c.plan
	worked = takeShared(p.cells, rung)
	for i := 0; i < len(p.reads); {
		// One batch for each memory.
		n := i + 1
		for n < len(p.reads) && p.reads[n].mem == p.reads[i].mem {
			n++
		}
		worked = readRecords(p.reads[i:n], rung) || worked
		i = n
	}
	return worked
}

// scanPart reads the next part of the records. c.polling is held, and plan.unread is not 0.
func (c *Context) scanPart() {
	p := &c.plan
	if p.next >= len(p.cells)+len(p.reads) {
		p.next = 0
	}
	n := 1
	if p.next < len(p.cells) {
		n = min(scanPart, len(p.cells)-p.next)
		takeShared(p.cells[p.next:][:n], nil)
	} else {
		readRecords(p.reads[p.next-len(p.cells):][:1], nil)
	}
	p.next += n
	p.unread = max(p.unread-n, 0)
}

// takeShared handles records in memory that this process has mapped.
func takeShared(cells []doorbellCell, rung *rungQPs) (worked bool) {
	for i := range cells {
		cell := &cells[i]
		snd, _ := cell.db.load32(prm.DoorbellSend)
		rcv, _ := cell.db.load32(prm.DoorbellRecv)
		worked = cell.take(rcv, snd, rung) || worked
	}
	return worked
}

// readRecords reads the records of one memory.
func readRecords(reads []doorbellRead, rung *rungQPs) (worked bool) {
	list := vecPool.Get().(*[]Vec)
	vecs := (*list)[:0]
	for i := range reads {
		vecs = append(vecs, Vec{Addr: reads[i].addr, Buf: reads[i].buf})
	}
	err := reads[0].mem.ReadV(vecs)
	clear(vecs)
	*list = vecs
	vecPool.Put(list)
	for i := range reads {
		r := &reads[i]
		for j := range r.cells {
			cell := &r.cells[j]
			b := r.buf[cell.off:][:prm.DoorbellSize]
			if err != nil {
				// One unmapped record must not keep the others from being read.
				if bad := r.mem.Read(cell.record().addr, b); bad != nil {
					cell.lost(bad)
					continue
				}
			}
			worked = cell.take(prm.Uint32(b), prm.Uint32(b[4:]), rung) || worked
		}
	}
	return worked
}

func (cell *doorbellCell) take(first, second uint32, rung *rungQPs) bool {
	switch {
	case cell.cq != nil:
		return cell.cq.sawArm(second)
	case rung != nil:
		return rung.take(cell.qp, first, second)
	}
	return cell.qp.rang(first, second)
}

// lost handles a record that cannot be read any more.
func (cell *doorbellCell) lost(err error) {
	if cell.qp != nil {
		cell.qp.lostMemory("the doorbell record", err)
	} else {
		cell.cq.mu.Lock()
		cell.cq.lostRecord(err)
		cell.cq.mu.Unlock()
	}
}
