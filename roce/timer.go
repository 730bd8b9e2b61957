package roce

import "sync"

// timers is a heap of QPs, ordered by the time of their next check.
//
// Heap entries are lazy: a deadline moves with every acknowledgement. When an entry fires
// and the QP's deadline is later, the QP is inserted again.
type timers struct {
	mu   sync.Mutex
	heap []*QP         // heap[0] is not used, so that index 0 can mean none
	wake chan struct{} // has one element if a QP was put first
}

func (t *timers) init(wake chan struct{}) {
	t.heap = make([]*QP, 1, 16)
	t.wake = wake
}

// start looks at q at the time at, or earlier if that was asked for before.
func (t *timers) start(q *QP, at int64) {
	t.mu.Lock()
	i := q.timerIndex
	if i == 0 {
		i = len(t.heap)
		t.heap = append(t.heap, q)
		q.timerIndex = i
	} else if q.timerAt <= at {
		t.mu.Unlock()
		return
	}
	q.timerAt = at
	first := t.up(i) == 1
	t.mu.Unlock()
	if first {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// stop forgets q.
func (t *timers) stop(q *QP) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.timerIndex != 0 {
		t.remove(q.timerIndex)
	}
}

// next returns when due will return a QP, or false if never.
func (t *timers) next() (at int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.heap) == 1 {
		return 0, false
	}
	return t.heap[1].timerAt, true
}

// due takes out and returns a QP whose time has come, or nil.
func (t *timers) due(now int64) *QP {
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
		t.heap[i], q.timerIndex = q, i
		t.down(t.up(i))
	}
}

// up moves heap[i] to the front until its order is right, and returns where it
// is then; down does the same to the back.
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
	t.heap[i].timerIndex, t.heap[j].timerIndex = i, j
}
