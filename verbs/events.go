package verbs

import (
	"context"
	"net"
	"sync"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/rdma"
)

// Event is an asynchronous event. The program that fetched it acknowledges it with Ack;
// until then the object that it concerns cannot be closed (EBUSY).
type Event struct {
	Type rdma.EventType
	QP   *QP   // the QP concerned, or nil
	CQ   *CQ   // the CQ concerned, or nil
	SRQ  *SRQ  // the SRQ concerned, or nil
	Err  error // the reason in words, if the device knows it
	ack  *sync.Once
}

// Ack acknowledges the event. Further calls do nothing.
func (e *Event) Ack() {
	if e.ack == nil {
		return // the program made the event
	}
	e.ack.Do(func() {
		if u := e.users(); u != nil {
			u.Leave("unacknowledged event")
		}
	})
}

// users returns the count of users of the object that the event concerns.
func (e *Event) users() *engine.Users {
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
// while nobody fetches events. An object can raise only few events before it
// fails.
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

// take removes and returns the first event, and counts it as unacknowledged.
func (q *eventQueue) take() (Event, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.queue) > 0 {
		e := q.queue[0]
		q.queue = q.queue[1:]
		if len(q.queue) > 0 && !q.closed {
			q.signal()
		}
		// The events of an object that was closed meanwhile are dropped.
		if u := e.users(); u != nil && u.Enter("fetch an event", "unacknowledged event") != nil {
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
	if d.e == nil {
		return nil, failure.Zero("wait for an event", "Open")
	}
	for {
		if e, ok := d.events.take(); ok {
			if e.Type == rdma.EventSQDrained {
				e.QP.e.SawDrained()
			}
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
