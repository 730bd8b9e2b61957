// Package lookup finds objects by random numbers, without a lock.
package lookup

import (
	"sync"
	"sync/atomic"
)

// Table finds values by number. Get takes no lock, because it is called for every packet and every
// request. The zero value is empty, and all methods are safe for concurrent use.
//
// It is a hash table with open addressing. Numbers are random, so their low bits are the
// hash. A removed entry leaves a mark, so that searches for other entries continue after it.
type Table[V any] struct {
	slots atomic.Pointer[[]atomic.Pointer[entry[V]]] // the length is a power of two; nil: no entry was added
	mark  entry[V]                                   // its address is that of a removed entry

	mu   sync.Mutex // serialises changes; guards the following fields
	used int        // slots that are not nil: entries and marks
	live int        // entries
}

// entry is immutable.
type entry[V any] struct {
	number uint32
	value  V
}

// smallest is the number of slots of a table with few entries, a power of two.
const smallest = 1 << 6

// find returns the slot and the entry of a number, or nil.
func (t *Table[V]) find(number uint32) (*atomic.Pointer[entry[V]], *entry[V]) {
	p := t.slots.Load()
	if p == nil {
		return nil, nil
	}
	slots := *p
	mask := uint32(len(slots) - 1)
	for i := number & mask; ; i = (i + 1) & mask {
		switch e := slots[i].Load(); {
		case e == nil:
			return nil, nil
		case e != &t.mark && e.number == number:
			return &slots[i], e
		}
	}
}

// Get returns the value with a number, and whether there is one.
func (t *Table[V]) Get(number uint32) (v V, ok bool) {
	if _, e := t.find(number); e != nil {
		return e.value, true
	}
	return v, false
}

// Add adds a value, and returns false if its number is taken.
func (t *Table[V]) Add(number uint32, v V) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, e := t.find(number); e != nil {
		return false
	}
	t.makeRoom()
	put(*t.slots.Load(), &entry[V]{number, v})
	t.used++
	t.live++
	return true
}

// makeRoom makes a new table when three quarters of the slots are used: the new table has
// no marks, and is larger if entries fill the old one.
func (t *Table[V]) makeRoom() {
	old := t.slots.Load()
	if old != nil && t.used+1 <= len(*old)/4*3 {
		return
	}
	size := smallest
	for t.live+1 > size/2 {
		size *= 2
	}
	slots := make([]atomic.Pointer[entry[V]], size)
	for e := range t.entries {
		put(slots, e)
	}
	t.used = t.live
	t.slots.Store(&slots)
}

// put puts an entry into an empty slot.
func put[V any](slots []atomic.Pointer[entry[V]], e *entry[V]) {
	mask := uint32(len(slots) - 1)
	i := e.number & mask
	for slots[i].Load() != nil {
		i = (i + 1) & mask
	}
	slots[i].Store(e)
}

// entries yields all entries. The lock is held.
func (t *Table[V]) entries(yield func(*entry[V]) bool) {
	p := t.slots.Load()
	if p == nil {
		return
	}
	for i := range *p {
		if e := (*p)[i].Load(); e != nil && e != &t.mark && !yield(e) {
			return
		}
	}
}

// Remove removes the value with a number, if there is one.
func (t *Table[V]) Remove(number uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slot, _ := t.find(number); slot != nil {
		slot.Store(&t.mark)
		t.live--
	}
}

// Len returns the number of values.
func (t *Table[V]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.live
}

// All returns all values.
func (t *Table[V]) All() (all []V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for e := range t.entries {
		all = append(all, e.value)
	}
	return all
}
