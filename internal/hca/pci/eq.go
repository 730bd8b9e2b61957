package pci

import (
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// eventCommand is the type of the event of a command; see adapter.EventEntry for those of the adapter.
const eventCommand = 0x0a

const (
	eqeSize   = 64
	maxEQs    = 63
	maxLogEQ  = 22
	eqContext = 0x10 * 8
)

// eqTable is the event queues.
type eqTable struct {
	dev *Device

	mu  sync.Mutex // guards the following field and the queues
	eqs table[*eq]
}

// eq is an event queue in the guest's memory.
type eq struct {
	mem      adapter.Memory
	pages    []uint64
	shift    uint
	offset   uint64 // of the first entry in the first page
	logSize  uint
	number   uint32
	vector   int
	events   uint64 // mask of the event types that go here
	producer uint32
	consumer uint32 // 24 bits: the driver's last doorbell
	live     bool   // the answer of its creation was delivered
	failed   bool   // the queue's memory cannot be written, or it overran
}

func (t *eqTable) init(d *Device) {
	t.dev = d
	t.eqs = newTable[*eq]("EQ", 1, maxEQs)
}

// close destroys all queues: no interrupt is raised any more.
func (t *eqTable) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.eqs = newTable[*eq]("EQ", 1, maxEQs)
}

var _ = register(map[prm.Command]handler{
	prm.CmdCreateEQ:  (*firmware).createEQ,
	prm.CmdDestroyEQ: (*firmware).destroyEQ,
	prm.CmdQueryEQ:   (*firmware).queryEQ,
})

func (f *firmware) createEQ(c *call) error {
	const op = "CREATE_EQ"
	field := func(off, n int) uint64 { return prm.Bits(c.In, eqContext+off, n) }
	q := &eq{
		mem: f.dev.dma, logSize: uint(field(0x63, 5)), vector: int(field(0xb4, 12)),
		events: prm.Bits(c.In, 0x2c0, 64),
	}
	list := prm.QueuePages(field(0xc3, 5), field(0x54, 6), eqeSize<<q.logSize)
	q.shift, q.offset = list.Shift, list.Offset
	switch {
	case q.logSize > maxLogEQ:
		return failure.New(op, syscall.EINVAL, "2^%d entries: at most 2^%d", q.logSize, maxLogEQ)
	case q.vector >= vectors:
		return failure.New(op, syscall.EINVAL, "vector %d: the function has %d", q.vector, vectors)
	case q.shift > 31:
		return failure.New(op, syscall.EINVAL, "pages of 2^%d bytes", q.shift)
	}
	var err error
	if q.pages, err = c.pages(list); err != nil {
		return err
	}
	t := &f.eqs
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.eqs.add(q)
	if err != nil {
		return err
	}
	q.number = n
	c.set(0x58, 8, uint64(n))
	if f.rdma.ctx != nil {
		f.rdma.ctx.AddEQ(n)
	}
	c.after = func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		q.live = true
	}
	return nil
}

func (f *firmware) destroyEQ(c *call) error {
	f.eqs.mu.Lock()
	defer f.eqs.mu.Unlock()
	_, err := f.eqs.eqs.remove(c.in32(0x58, 8))
	return err
}

func (f *firmware) queryEQ(c *call) error {
	f.eqs.mu.Lock()
	defer f.eqs.mu.Unlock()
	q, err := f.eqs.eqs.get(c.in32(0x58, 8))
	if err != nil {
		return err
	}
	c.set(eqContext+0x63, 5, uint64(q.logSize))
	c.set(eqContext+0xb4, 12, uint64(q.vector))
	c.set(eqContext+0xc3, 5, uint64(q.shift-12))
	c.set(eqContext+0x168, 24, uint64(q.producer&0xffffff))
	return nil
}

// commandDone reports that a command was answered, to the queues that take command events.
func (t *eqTable) commandDone(slot int) {
	var data [32]byte
	be.PutUint32(data[0:], 1<<slot)
	t.event(eventCommand, 0, data[:])
}

// completion reports an armed CQ to its queue.
func (t *eqTable) completion(cq *adapter.CQ) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q := t.eqs.objects[cq.EQN()]; q != nil {
		e := adapter.CompletionEntry(cq)
		t.post(q, e.Type, 0, e.Data[:])
	}
}

// event reports an event to the queues that take events of its type.
func (t *eqTable) event(typ, sub uint8, data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range t.eqs.objects {
		if q.events>>typ&1 != 0 {
			t.post(q, typ, sub, data)
		}
	}
}

// consumed takes a doorbell: the number of entries that the driver has handled, in 24 bits.
func (t *eqTable) consumed(doorbell uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q := t.eqs.objects[doorbell>>24]; q != nil {
		q.consumer = doorbell & 0xffffff
	}
}

// post writes an entry, its owner bit last, and raises the vector. t.mu is held.
func (t *eqTable) post(q *eq, typ, sub uint8, data []byte) {
	if !q.live || q.failed {
		return
	}
	if (q.producer-q.consumer)&0xffffff >= 1<<q.logSize {
		q.failed = true
		err := failure.New("report an event", syscall.EOVERFLOW, "the queue's %d entries have events that the driver has not handled", 1<<q.logSize)
		t.dev.trace("eq", q.number, "overrun", err)
		if q.events != 0 { // without completions, queues only stand still
			t.dev.fail(healthEQOverrun)
		}
		return
	}
	var e [eqeSize]byte
	e[1], e[3] = typ, sub
	copy(e[0x20:], data)
	e[eqeSize-1] = byte(q.producer >> q.logSize & 1)
	at := q.offset + uint64(q.producer&(1<<q.logSize-1))*eqeSize
	addr := q.pages[at>>q.shift] + at&(1<<q.shift-1)
	vecs := [2]adapter.Vec{{Addr: addr, Buf: e[:eqeSize-4]}, {Addr: addr + eqeSize - 4, Buf: e[eqeSize-4:]}}
	if err := q.mem.WriteV(vecs[:]); notMaster(err) {
		return // the event is lost
	} else if err != nil {
		q.failed = true
		t.dev.fail(healthFirmwareError)
		return
	}
	q.producer++
	t.dev.dma.Raise(q.vector)
}
