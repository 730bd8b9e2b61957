package roce

import (
	"sync"
	"sync/atomic"

	"github.com/softmkey/softmkey/internal/base/fifo"
)

// readyQueue has the QPs that have something to send, in two first-in, first-out queues. A QP is in each of them at
// most once, so the QPs take turns.
//
// QPs that owe a response are served before all others. The program may answer a message as soon as it sees the
// completion, also on another QP, and its answer must not overtake the acknowledgement of the message.
type readyQueue struct {
	n          atomic.Int32 // length of both queues
	mu         sync.Mutex   // guards the following fields and the QPs' queued and owing
	responding fifo.Queue[*QP]
	requesting fifo.Queue[*QP]
}

// push appends q, which may have any packets to send. It ignores nil.
func (r *readyQueue) push(q *QP) {
	if q != nil {
		r.add(q, &r.requesting, &q.queued)
	}
}

// release is push for the QPs that waited for a window and may now send.
func (r *readyQueue) release(qs released) {
	r.push(qs[0])
	r.push(qs[1])
}

// owe is push for a QP that owes a response.
func (r *readyQueue) owe(q *QP) { r.add(q, &r.responding, &q.owing) }

// add appends q to a queue, unless it is there already. If q has a lane, add wakes the lane.
func (r *readyQueue) add(q *QP, to *fifo.Queue[*QP], there *bool) {
	if q.lane.Load().wake() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !*there {
		*there = true
		to.Push(q)
		r.n.Add(1)
	}
}

// pop removes and returns the first QP, or returns nil. responds says that only its responses are to be sent.
func (r *readyQueue) pop() (q *QP, responds bool) {
	if r.empty() {
		return nil, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.responding.Len() > 0:
		q, responds = r.responding.Pop(), true
		q.owing = false
	case r.requesting.Len() > 0:
		q = r.requesting.Pop()
		q.queued = false
	default:
		return nil, false
	}
	r.n.Add(-1)
	return q, responds
}

// empty reports whether no QP is ready.
func (r *readyQueue) empty() bool { return r.n.Load() == 0 }
