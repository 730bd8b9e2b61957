package verbs

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// EventType is the type of an asynchronous event; the values are those of enum
// ibv_event_type.
type EventType uint8

// The asynchronous events that the device raises.
const (
	EventCQErr            EventType = 0  // a CQ overran; its completions are lost
	EventQPFatal          EventType = 1  // a QP failed for a reason of its own
	EventQPReqErr         EventType = 2  // the peer sent a request that a QP cannot carry out
	EventQPAccessErr      EventType = 3  // the peer asked for memory that it may not reach
	EventSQDrained        EventType = 5  // a QP in SQD has nothing on its way any more
	EventSRQLimitReached  EventType = 15 // a shared receive queue fell below its limit
	EventQPLastWQEReached EventType = 16 // a QP in ERR takes nothing from its SRQ any more
)

var eventNames = map[EventType]string{
	EventCQErr: "CQ error", EventQPFatal: "QP fatal", EventQPReqErr: "QP request error",
	EventQPAccessErr: "QP access error", EventSQDrained: "send queue drained",
	EventSRQLimitReached: "SRQ limit reached", EventQPLastWQEReached: "last WQE reached",
}

// String returns the event in words.
func (t EventType) String() string {
	if s, ok := eventNames[t]; ok {
		return s
	}
	return fmt.Sprintf("event(%d)", uint8(t))
}

// Event is an asynchronous event. Whoever got it acknowledges it with Ack;
// until then the object it tells of cannot be closed (EBUSY).
type Event struct {
	Type EventType
	QP   *QP   // the QP concerned, or nil
	CQ   *CQ   // the CQ concerned, or nil
	SRQ  *SRQ  // the SRQ concerned, or nil
	Err  error // why, if the device knows
	ack  *sync.Once
}

// Ack acknowledges the event. Further calls do nothing.
func (e *Event) Ack() {
	e.ack.Do(func() {
		if u := e.users(); u != nil {
			u.leave("unacknowledged event")
		}
	})
}

// users returns the count of the object that the event tells of.
func (e *Event) users() *users {
	switch {
	case e.QP != nil:
		return &e.QP.users
	case e.CQ != nil:
		return &e.CQ.users
	case e.SRQ != nil:
		return &e.SRQ.users
	}
	return nil
}

// eventQueue delivers events in the order in which they were raised. It grows
// with what nobody fetches: an object raises few events before it is unusable.
type eventQueue struct {
	mu     sync.Mutex
	queue  []Event
	ready  chan struct{} // has a token while the queue is not empty
	closed bool
}

func newEventQueue() *eventQueue { return &eventQueue{ready: make(chan struct{}, 1)} }

func (q *eventQueue) raise(e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.queue = append(q.queue, e)
	q.signal()
}

func (q *eventQueue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take removes and returns the first event, counting it as unacknowledged.
func (q *eventQueue) take() (Event, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.queue) > 0 {
		e := q.queue[0]
		q.queue = q.queue[1:]
		if len(q.queue) > 0 && !q.closed {
			q.signal()
		}
		// An object that was closed meanwhile takes its events with it.
		if u := e.users(); u != nil && u.enter("event", "unacknowledged event") != nil {
			continue
		}
		e.ack = new(sync.Once)
		return e, true
	}
	return Event{}, false
}

func (q *eventQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		q.queue = nil
		close(q.ready)
	}
}

// NextEvent waits for the next asynchronous event (ibv_get_async_event(3)). It
// returns the context's error when that ends first, and net.ErrClosed when the
// device is closed.
func (d *Device) NextEvent(ctx context.Context) (*Event, error) {
	for {
		if e, ok := d.events.take(); ok {
			return &e, nil
		}
		select {
		case _, open := <-d.events.ready:
			if !open {
				return nil, net.ErrClosed
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
