package adapter

import (
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/operr"
)

// UAR is a page of doorbell registers that is shared with the program.
type UAR struct {
	ctx *Context

	// mu is held for reading while page is used. Drivers free a page while queues name it
	// still: then page is nil and nothing is rung on it any more.
	mu   sync.RWMutex
	page []byte

	// seen are the registers as Poll saw them last.
	seen [len(registers)]uint64
}

// registers are the offsets that a program writes to ring a doorbell: the arm register
// and the first words of the BlueFlame registers.
var registers = [...]int{prm.UARArmCQ, 0x800, 0x900, 0xa00, 0xb00}

// NewUAR makes a UAR of a shared page of 4096 bytes.
func (c *Context) NewUAR(page []byte, blueFlame bool) (*UAR, error) {
	const op = "allocate a UAR"
	if len(page) != prm.UARSize || uintptr(unsafe.Pointer(unsafe.SliceData(page)))%8 != 0 {
		return nil, operr.New(op, syscall.EINVAL, "a page of %d bytes: must be %d, aligned", len(page), prm.UARSize)
	}
	u := &UAR{ctx: c, page: page}
	if err := enter(c, op, c.uars, u); err != nil {
		return nil, err
	}
	return u, nil
}

// Close ends the use of the page. Queues that name the page are found by Scan from then on.
func (u *UAR) Close() error {
	leave(u.ctx, u.ctx.uars, u)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.page = nil
	return nil
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

// rung reports whether a register changed since the last call.
func (u *UAR) rung() (rung bool) {
	u.mu.RLock()
	defer u.mu.RUnlock()
	if u.page == nil {
		return false
	}
	for i, off := range registers {
		if v := atomic.LoadUint64((*uint64)(unsafe.Pointer(&u.page[off]))); v != u.seen[i] {
			u.seen[i] = v
			rung = true
		}
	}
	return rung
}

// doorbellPlan is how the doorbell records of a context are read: few pieces of memory
// in one batch, since the driver puts the records of many queues into one page.
type doorbellPlan struct {
	built bool
	uars  []*UAR
	reads []doorbellRead
	cells []doorbellCell
}

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

// Poll checks the records to which the doorbell registers point, and reports whether
// there was work.
func (c *Context) Poll() (worked bool) {
	c.polling.Lock()
	defer c.polling.Unlock()
	c.refresh()
	rung := false
	for _, u := range c.plan.uars {
		rung = u.rung() || rung
	}
	return rung && c.scan()
}

// Scan looks at every doorbell record and reports whether there was work.
func (c *Context) Scan() (worked bool) {
	c.polling.Lock()
	defer c.polling.Unlock()
	c.refresh()
	for _, u := range c.plan.uars {
		u.rung()
	}
	return c.scan()
}

// forgetPlan waits for a scan that is under way, and makes the next one look at the queues
// of then: the records of a queue that was destroyed are not read any more.
func (c *Context) forgetPlan() {
	c.polling.Lock()
	defer c.polling.Unlock()
	c.plan = doorbellPlan{}
}

// Busy reports whether doorbells may come: a QP receives, sends or failed.
func (c *Context) Busy() bool { return c.busy.Load() > 0 }

// refresh rebuilds the plan after queues came or went. c.polling is held.
func (c *Context) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plan.built && !c.stale {
		return
	}
	c.stale = false
	p := doorbellPlan{built: true}
	for u := range c.uars {
		p.uars = append(p.uars, u)
	}
	var copied []doorbellCell
	add := func(cell doorbellCell) {
		if cell.db.view != nil {
			p.cells = append(p.cells, cell)
		} else {
			copied = append(copied, cell)
		}
	}
	for q := range c.qps {
		if q.rings() {
			add(doorbellCell{db: &q.db, qp: q})
		}
	}
	for q := range c.cqs {
		if q.attr.Channel {
			add(doorbellCell{db: &q.db, cq: q})
		}
	}
	slices.SortFunc(copied, func(a, b doorbellCell) int {
		switch {
		case a.db.addr < b.db.addr:
			return -1
		case a.db.addr > b.db.addr:
			return 1
		}
		return 0
	})
	const page = 4096
	for _, cell := range copied {
		if n := len(p.reads); n > 0 {
			r := &p.reads[n-1]
			end := cell.db.addr + prm.DoorbellSize
			if r.mem == cell.db.mem && r.addr/page == (end-1)/page {
				cell.off = int(cell.db.addr - r.addr)
				r.buf = make([]byte, end-r.addr)
				r.cells = append(r.cells, cell)
				continue
			}
		}
		p.reads = append(p.reads, doorbellRead{mem: cell.db.mem, addr: cell.db.addr, buf: make([]byte, prm.DoorbellSize), cells: []doorbellCell{cell}})
	}
	c.plan = p
}

var vecPool = sync.Pool{New: func() any { return new([]Vec) }}

// scan reads all records and handles the new contents. c.polling is held.
func (c *Context) scan() (worked bool) {
	for i := range c.plan.cells {
		cell := &c.plan.cells[i]
		snd, _ := cell.db.load32(prm.DoorbellSend)
		rcv, _ := cell.db.load32(prm.DoorbellRecv)
		worked = cell.take(rcv, snd) || worked
	}
	for i := 0; i < len(c.plan.reads); {
		// One batch for each memory.
		n := i + 1
		for n < len(c.plan.reads) && c.plan.reads[n].mem == c.plan.reads[i].mem {
			n++
		}
		worked = readRecords(c.plan.reads[i:n]) || worked
		i = n
	}
	return worked
}

// readRecords reads the records of one memory.
func readRecords(reads []doorbellRead) (worked bool) {
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
				// A record that is not there must not hide the others.
				if bad := r.mem.Read(cell.db.addr, b); bad != nil {
					cell.lost(bad)
					continue
				}
			}
			worked = cell.take(prm.Uint32(b), prm.Uint32(b[4:])) || worked
		}
	}
	return worked
}

func (cell *doorbellCell) take(first, second uint32) bool {
	if cell.cq != nil {
		return cell.cq.sawArm(second)
	}
	return cell.qp.rang(first, second)
}

// lost handles a record that cannot be read any more.
func (cell *doorbellCell) lost(err error) {
	if cell.qp != nil {
		cell.qp.lostMemory("the doorbell record", err)
	}
}
