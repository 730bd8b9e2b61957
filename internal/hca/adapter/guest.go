package adapter

import (
	"sync"
	"time"

	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/rdma"
)

// NewGuest makes a context of a guest's driver: its queues lie in lists of physical pages
// that the commands have, unless they say that they lie in a umem. Doorbells are delivered
// by [Context.Ring]. memic is the device memory that keys can have.
func (d *Device) NewGuest(mem, memic Memory, ev Events) *Context {
	c := d.NewContext(mem, ev)
	c.guest, c.memic = true, memic
	return c
}

// failedQPs are the QPs of a guest that are in ERR. A guest writes no register when it posts a
// receive request: the adapter reads the record when a message comes. No message comes for a QP in
// ERR, but a driver that takes its QP down posts one more request and waits until that is
// flushed (ib_drain_rq of Linux). So the records of these QPs are looked at by a timer, which
// runs as long as there are such QPs.
type failedQPs struct {
	mu      sync.Mutex
	qps     []*QP
	next    int // in qps
	running bool
}

const (
	failedInterval = 5 * time.Millisecond
	failedBatch    = 64 // QPs that are looked at in an interval
)

// watchFailed looks at the record of a QP of a guest from now on, while it is in ERR.
func (c *Context) watchFailed(q *QP) {
	w := &c.failed
	w.mu.Lock()
	defer w.mu.Unlock()
	if q.watched {
		return
	}
	q.watched = true
	w.qps = append(w.qps, q)
	if !w.running {
		w.running = true
		time.AfterFunc(failedInterval, c.lookAtFailed)
	}
}

// lookAtFailed is the timer of failedQPs. [QP.destroy] waits for it by the lock c.polling, and
// then the QP is not looked at any more.
func (c *Context) lookAtFailed() {
	c.polling.Lock()
	defer c.polling.Unlock()
	w := &c.failed
	for range failedBatch {
		w.mu.Lock()
		if len(w.qps) == 0 {
			w.running = false
			w.mu.Unlock()
			return
		}
		if w.next >= len(w.qps) {
			w.next = 0
			w.mu.Unlock()
			break
		}
		q := w.qps[w.next]
		if gone := q.closed.Load() || rdma.State(q.state.Load()) != rdma.StateErr; gone {
			last := len(w.qps) - 1
			w.qps[w.next], w.qps[last] = w.qps[last], nil
			w.qps, q.watched = w.qps[:last], false
			w.mu.Unlock()
			continue
		}
		w.next++
		w.mu.Unlock()
		q.lookAtRecord()
	}
	time.AfterFunc(failedInterval, c.lookAtFailed)
}

// EQN returns the number of the event queue that the CQ reports to.
func (q *CQ) EQN() uint32 { return q.attr.EQN }

// Complete writes a completion of a queue that is not a QP, such as those of the Ethernet
// port. false: it is lost.
func (q *CQ) Complete(e interface {
	Put(b []byte)
	OpOwn(owner uint8) uint8
}) bool {
	return q.push(e, false)
}

// Use notes that a queue uses the CQ: the CQ cannot be destroyed until Unuse. what names the user.
func (q *CQ) Use(op, what string) error { return q.users.Enter(op, what) }

// Unuse ends a Use.
func (q *CQ) Unuse(what string) { q.users.Leave(what) }

// ringOf returns the memory of a queue: in a umem, or for a guest in the pages of the
// command.
func ringOf(c *Context, x *prm.Call, what string, umemValid bool, umem uint32, off uint64, p prm.PageList) (*Umem, Segments, error) {
	if !c.guest || umemValid {
		return place(c, x, what, umem, off)
	}
	pages, ok := p.Pages(x.In)
	if !ok {
		return nil, nil, refuse(prm.CmdBadInputLen, synShortInput, "%s: its pages do not fit in %d bytes", what, len(x.In))
	}
	at := Pages(c.mem, p.Shift, pages).From(p.Offset)
	if at == nil {
		return nil, nil, refuse(prm.CmdBadParam, synMemory, "%s: %d pages of 2^%d bytes from %#x", what, len(pages), p.Shift, p.Offset)
	}
	return nil, at, nil
}

// recordOf returns the memory of a doorbell record.
func recordOf(c *Context, x *prm.Call, umemValid bool, umem uint32, addr uint64) (*Umem, Segments, error) {
	const what = "the doorbell record"
	if !c.guest || umemValid {
		return place(c, x, what, umem, addr)
	}
	return nil, Range(c.mem, addr), nil
}
