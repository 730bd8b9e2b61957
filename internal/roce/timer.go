package roce

import (
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

	mu    sync.Mutex    // guards the following fields, and writes of first
	heap  []*QP         // heap[0] is unused, so that index 0 means that a QP is not in the heap
	least int64         // the transmit goroutine leaves entries before this time to others
	until int64         // time until which the transmit goroutine sleeps
	wake  chan struct{} // receives an element when an entry must wake the transmit goroutine before until
}

// never is later than every deadline.
const never = math.MaxInt64

func (t *timers) init(wake chan struct{}) {
	t.heap = make([]*QP, 1, 16)
	t.wake = wake
	t.first.Store(never)
	t.until = never
}

// start schedules q for the time at. If q is already scheduled for an earlier
// time, that entry stays.
func (t *timers) start(q *QP, at int64) {
	t.mu.Lock()
	i := int(q.timerIndex)
	if i == 0 {
		i = len(t.heap)
		t.heap = append(t.heap, q)
		q.timerIndex = int32(i)
	} else if q.timerAt <= at {
		t.mu.Unlock()
		return
	}
	q.timerAt = at
	t.up(i)
	t.changed()
	at = max(at, t.least)
	early := at < t.until
	if early {
		t.until = at
	}
	t.mu.Unlock()
	if early {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// stop removes q.
func (t *timers) stop(q *QP) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.timerIndex != 0 {
		t.remove(int(q.timerIndex))
	}
}

// changed sets first after a change of the heap.
func (t *timers) changed() {
	at := int64(never)
	if len(t.heap) > 1 {
		at = t.heap[1].timerAt
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
	if len(t.heap) == 1 || t.heap[1].timerAt > now {
		return nil
	}
	q := t.heap[1]
	t.remove(1)
	return q
}

func (t *timers) remove(i int) {
	t.heap[i].timerIndex = 0
	n := len(t.heap) - 1
	q := t.heap[n]
	t.heap[n] = nil
	t.heap = t.heap[:n]
	if i < n {
		t.heap[i], q.timerIndex = q, int32(i)
		t.down(t.up(i))
	}
	t.changed()
}

// up restores the heap order by moving heap[i] towards the front, and returns its new
// index. down moves it towards the back.
func (t *timers) up(i int) int {
	for ; i > 1 && t.heap[i].timerAt < t.heap[i/2].timerAt; i /= 2 {
		t.swap(i, i/2)
	}
	return i
}

func (t *timers) down(i int) {
	for {
		c := 2 * i
		if c+1 < len(t.heap) && t.heap[c+1].timerAt < t.heap[c].timerAt {
			c++
		}
		if c >= len(t.heap) || t.heap[i].timerAt <= t.heap[c].timerAt {
			return
		}
		t.swap(i, c)
		i = c
	}
}

func (t *timers) swap(i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	t.heap[i].timerIndex, t.heap[j].timerIndex = int32(i), int32(j)
}
