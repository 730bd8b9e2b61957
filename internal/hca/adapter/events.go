package adapter

import (
	"sync"

	"github.com/softmkey/softmkey/rdma"
)

// Events receives the reports of a context. The methods are called one at a time from a
// goroutine of the context, without locks, and must not block.
type Events interface {
	// Completion reports that an armed CQ got a completion: once for each arm.
	Completion(cq *CQ)

	// Async reports an asynchronous event of obj: a *QP, *CQ or *SRQ, or nil for the
	// port and the device.
	Async(t rdma.EventType, obj any)
}

// eventQueue hands events to the program's side outside of all locks: they are raised
// while packets are processed.
type eventQueue struct {
	to   Events
	done chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex // guards the following fields
	ready  sync.Cond
	queue  []event
	closed bool
}

// event is a completion event of a CQ, or an asynchronous one.
type event struct {
	cq   *CQ
	typ  rdma.EventType
	obj  any
	dead func() bool // the object was destroyed
}

func (q *eventQueue) start(to Events) {
	q.to, q.done = to, make(chan struct{})
	q.ready.L = &q.mu
	go q.run()
}

func (q *eventQueue) push(e event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.to == nil {
		return
	}
	q.queue = append(q.queue, e)
	q.ready.Signal()
}

func (q *eventQueue) run() {
	defer close(q.done)
	var batch []event
	for {
		q.mu.Lock()
		for len(q.queue) == 0 && !q.closed {
			q.ready.Wait()
		}
		batch, q.queue = q.queue, batch[:0]
		closed := q.closed
		q.mu.Unlock()
		if closed {
			return
		}
		for i := range batch {
			e := &batch[i]
			switch {
			case e.dead != nil && e.dead():
			case e.cq != nil:
				e.cq.ctx.trace(TraceEvent, "cq", e.cq.number, "completion event", nil)
				q.to.Completion(e.cq)
			default:
				// A program that has read the event may post requests at once.
				if qp, ok := e.obj.(*QP); ok && e.typ == rdma.EventSQDrained {
					qp.eng.SawDrained()
				}
				q.to.Async(e.typ, e.obj)
			}
		}
		clear(batch)
	}
}

// stop ends the goroutine; events that were not handed over are dropped.
func (q *eventQueue) stop() {
	q.mu.Lock()
	q.closed = true
	q.ready.Signal()
	q.mu.Unlock()
	<-q.done
}
