package roce

import (
	"sync"
	"sync/atomic"
)

// readyQueue is a first-in, first-out queue of the QPs that have something to send. A QP
// is in it at most once, so the QPs take turns.
type readyQueue struct {
	n    atomic.Int32 // length of the queue
	mu   sync.Mutex   // guards the following fields and the QPs' queued
	ring []*QP        // the length is a power of two
	head int
}

func (r *readyQueue) init() { r.ring = make([]*QP, 16) }

// push appends q unless it is queued already, or wakes the lane of q if it has
// one. It ignores nil.
func (r *readyQueue) push(q *QP) {
	if q == nil {
		return
	}
	if n := q.lane.Load(); n != nil {
		n.signal(func() { n.ready = true })
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.queued {
		return
	}
	n := int(r.n.Load())
	if n == len(r.ring) {
		ring := make([]*QP, 2*n)
		for i := range n {
			ring[i] = r.ring[(r.head+i)&(n-1)]
		}
		r.ring, r.head = ring, 0
	}
	r.ring[(r.head+n)&(len(r.ring)-1)] = q
	q.queued = true
	r.n.Store(int32(n + 1))
}

// pop removes and returns the first QP, or returns nil.
func (r *readyQueue) pop() *QP {
	if r.empty() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.n.Load()
	if n == 0 {
		return nil
	}
	q := r.ring[r.head]
	r.ring[r.head] = nil
	r.head = (r.head + 1) & (len(r.ring) - 1)
	q.queued = false
	r.n.Store(n - 1)
	return q
}

// empty reports whether the queue is empty.
func (r *readyQueue) empty() bool { return r.n.Load() == 0 }
