package roce

import (
	"sync"
	"sync/atomic"
)

// readyQueue holds the QPs that have something to send, each once, in the order
// in which they came: they take turns.
type readyQueue struct {
	n    atomic.Int32 // length of the queue
	mu   sync.Mutex   // guards the following fields and the QPs' queued
	ring []*QP        // a power of two
	head int
}

func (r *readyQueue) init() { r.ring = make([]*QP, 16) }

// push appends q unless it is there already. A nil q is ignored.
func (r *readyQueue) push(q *QP) {
	if q == nil {
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

// pop takes out the first QP; nil if there is none.
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

// empty reports whether nobody waits.
func (r *readyQueue) empty() bool { return r.n.Load() == 0 }
