package roce

import (
	"sync"
	"sync/atomic"
)

// A qpTable finds QPs by number without a lock: a hash table with open
// addressing, whose slots are replaced one by one, and all of it to grow.
type qpTable struct {
	slots atomic.Pointer[[]atomic.Pointer[QP]] // a power of two

	mu   sync.Mutex // held by those who change the table
	live int        // QPs in it
	used int        // slots that are not nil
}

// gone marks a slot whose QP was removed: the search goes on behind it.
var gone = &QP{num: psnMask + 1}

func (t *qpTable) init() {
	s := make([]atomic.Pointer[QP], 64)
	t.slots.Store(&s)
}

// slot returns where the search for a number begins.
func slot(num uint32, n int) int { return int(num*0x9e3779b1>>8) & (n - 1) }

// get returns the QP with a number, or nil.
func (t *qpTable) get(num uint32) *QP {
	s := *t.slots.Load()
	for i := slot(num, len(s)); ; i = (i + 1) & (len(s) - 1) {
		q := s[i].Load()
		if q == nil || q.num == num {
			return q
		}
	}
}

// add puts q in the table unless its number is taken.
func (t *qpTable) add(q *QP) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.get(q.num) != nil {
		return false
	}
	s := *t.slots.Load()
	if t.used >= len(s)/2 {
		s = t.rebuild(s)
	}
	put(s, q)
	t.live++
	t.used++
	return true
}

// put stores q in the first empty slot of its search.
func put(s []atomic.Pointer[QP], q *QP) {
	i := slot(q.num, len(s))
	for s[i].Load() != nil {
		i = (i + 1) & (len(s) - 1)
	}
	s[i].Store(q)
}

// rebuild makes a table with room for twice the QPs and without the gone ones.
func (t *qpTable) rebuild(old []atomic.Pointer[QP]) []atomic.Pointer[QP] {
	n := 64
	for n < 4*t.live {
		n *= 2
	}
	s := make([]atomic.Pointer[QP], n)
	for i := range old {
		if q := old[i].Load(); q != nil && q != gone {
			put(s, q)
		}
	}
	t.used = t.live
	t.slots.Store(&s)
	return s
}

// remove takes q out.
func (t *qpTable) remove(q *QP) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := *t.slots.Load()
	for i := slot(q.num, len(s)); ; i = (i + 1) & (len(s) - 1) {
		switch s[i].Load() {
		case nil:
			return
		case q:
			s[i].Store(gone)
			t.live--
			return
		}
	}
}

// len returns how many QPs there are.
func (t *qpTable) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.live
}

// all returns the QPs.
func (t *qpTable) all() (qps []*QP) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := *t.slots.Load()
	for i := range s {
		if q := s[i].Load(); q != nil && q != gone {
			qps = append(qps, q)
		}
	}
	return qps
}
