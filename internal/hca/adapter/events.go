package adapter

import (
	"encoding/binary"
	"sync"

	"github.com/softmkey/softmkey/internal/ibv"
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

// EventEntry is an event as an event queue has it.
type EventEntry struct {
	Type uint8 // enum mlx5_event in Linux's device.h
	Data [32]byte
}

// EventCompletion is the type of the event of a completion.
const EventCompletion = 0x00

// eventTypes are the types of asynchronous events.
var eventTypes = map[rdma.EventType]uint8{
	rdma.EventCommEst: 0x02, rdma.EventSQDrained: 0x03, rdma.EventCQErr: 0x04, rdma.EventQPFatal: 0x05,
	rdma.EventQPReqErr: 0x10, rdma.EventQPAccessErr: 0x11, ibv.EventSRQErr: 0x12, rdma.EventQPLastWQEReached: 0x13, rdma.EventSRQLimitReached: 0x14,
}

// CompletionEntry returns the entry for a completion of a CQ.
func CompletionEntry(q *CQ) EventEntry { return entryOf(EventCompletion, q) }

// AsyncEntry returns the entry for an asynchronous event of a QP, CQ or SRQ. ok is false if event queues have none.
func AsyncEntry(t rdma.EventType, obj any) (e EventEntry, ok bool) {
	typ, known := eventTypes[t]
	o, numbered := obj.(interface{ Number() uint32 })
	if !known || !numbered {
		return e, false
	}
	return entryOf(typ, o), true
}

func entryOf(typ uint8, obj interface{ Number() uint32 }) EventEntry {
	e, at := EventEntry{Type: typ}, 24
	if typ == eventTypes[rdma.EventCQErr] { // the number is at the start, and a syndrome says what is wrong: here always an overrun
		const syndrome, overrun = 11, 1
		at, e.Data[syndrome] = 0, overrun
	}
	binary.BigEndian.PutUint32(e.Data[at:], obj.Number())
	return e
}
