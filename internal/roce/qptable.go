package roce

import (
	"sync"
	"sync/atomic"
)

// A qpTable maps QP numbers to QPs. Lookups take no lock: the table is a hash table with
// open addressing, whose slots are atomic, and growing replaces the whole table.
type qpTable struct {
	slots atomic.Pointer[[]atomic.Pointer[QP]] // the length is a power of two

	mu   sync.Mutex // held by add and remove
	live int        // number of QPs
	used int        // number of slots that are not nil
}

// gone marks the slot of a removed QP, so that lookups continue to the next slot.
var gone = &QP{num: psnMask + 1}

func (t *qpTable) init() {
	s := make([]atomic.Pointer[QP], 64)
	t.slots.Store(&s)
}

// slot returns the first slot to search for a number in a table of n slots.
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

// put stores q in the first empty slot for its number.
func put(s []atomic.Pointer[QP], q *QP) {
	i := slot(q.num, len(s))
	for s[i].Load() != nil {
		i = (i + 1) & (len(s) - 1)
	}
	s[i].Store(q)
}

// rebuild copies the table to one with at least four slots per QP and without gone slots.
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

// remove removes q from the table.
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

// len returns the number of QPs.
func (t *qpTable) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.live
}

// all returns all QPs.
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
