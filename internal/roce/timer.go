package roce

import (
	"container/heap"
	"math"
	"sync"
	"sync/atomic"
)

// timers is a heap of QPs, ordered by the time of their next check.
//
// Heap entries are lazy, because a deadline moves with every acknowledgement. When an
// entry fires and the QP's deadline is later, the QP is inserted again.
type timers struct {
	first atomic.Int64 // time of the first entry; never if the heap is empty

	mu    sync.Mutex // guards the following fields, and writes of first
	heap  timerHeap
	least int64         // the transmit goroutine leaves entries before this time to others
	until int64         // time until which the transmit goroutine sleeps
	wake  chan struct{} // receives an element when an entry must wake the transmit goroutine before until
}

// never is later than every deadline.
const never = math.MaxInt64

func (t *timers) init(wake chan struct{}) {
	t.wake = wake
	t.first.Store(never)
	t.until = never
}

// start schedules q for the time at. If q is already scheduled for an earlier
// time, that entry stays.
func (t *timers) start(q *QP, at int64) {
	t.mu.Lock()
	switch i := int(q.timerIndex); {
	case i == 0:
		q.timerAt = at
		heap.Push(&t.heap, q)
	case q.timerAt <= at:
		t.mu.Unlock()
		return
	default:
		q.timerAt = at
		heap.Fix(&t.heap, i-1)
	}
	t.changed()
	at = max(at, t.least)
	early := at < t.until
	if early {
		t.until = at
	}
	t.mu.Unlock()
	if early {
		signal(t.wake)
	}
}

// stop removes q.
func (t *timers) stop(q *QP) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.timerIndex != 0 {
		heap.Remove(&t.heap, int(q.timerIndex)-1)
		t.changed()
	}
}

// changed sets first after a change of the heap.
func (t *timers) changed() {
	at := int64(never)
	if len(t.heap) > 0 {
		at = t.heap[0].timerAt
	}
	t.first.Store(at)
}

// sleep returns the time of the first entry, or least if that is later. The
// caller, the transmit goroutine, sleeps until then and is woken only for
// earlier entries.
func (t *timers) sleep(least int64) (until int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.least, t.until = least, max(t.first.Load(), least)
	return t.until
}

// due removes and returns a QP whose time has come, or returns nil.
func (t *timers) due(now int64) *QP {
	if t.first.Load() > now {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.heap) == 0 || t.heap[0].timerAt > now {
		return nil
	}
	q := heap.Pop(&t.heap).(*QP)
	t.changed()
	return q
}

// timerHeap implements heap.Interface. Each QP knows its index.
type timerHeap []*QP

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].timerAt < h[j].timerAt }

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].timerIndex, h[j].timerIndex = int32(i+1), int32(j+1)
}

func (h *timerHeap) Push(q any) {
	*h = append(*h, q.(*QP))
	(*h)[len(*h)-1].timerIndex = int32(len(*h))
}

func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	q := (*h)[last]
	q.timerIndex, (*h)[last], *h = 0, nil, (*h)[:last]
	return q
}
