package engine

import (
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/rdma"
)

// keyTable finds regions, memory keys and windows by their number. A number is a random
// index of 24 bits, which cannot be guessed, above a tag of 8 bits. Lookups take no
// lock: every request makes some, and regions come and go seldom.
type keyTable struct {
	mu      sync.Mutex // serialises changes
	buckets [1 << 10]atomic.Pointer[[]keyEntry]
	count   atomic.Int64
}

// keyEntry is one of the three.
type keyEntry struct {
	index  uint32
	region *Region
	mkey   *MKey
	window *Window
}

// add puts an entry in under a new number with tag 0. prepare is called with the number
// first: from then on lookups on any goroutine may find the entry.
func (t *keyTable) add(e keyEntry, prepare func(number uint32) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count.Load() >= MaxKeys {
		return operr.New("create a key", syscall.ENOMEM, "%d keys are in use, which is the limit", MaxKeys)
	}
	for {
		e.index = random32() >> 8
		if e.index == 0 || e.index == 0xFFFFFF {
			continue // 0 and all ones stand for keys in too many programs
		}
		if _, taken := t.find(e.index); taken {
			continue
		}
		if err := prepare(e.index << 8); err != nil {
			return err
		}
		b := t.bucket(e.index)
		var entries []keyEntry
		if old := b.Load(); old != nil {
			entries = append(entries, *old...)
		}
		entries = append(entries, e)
		b.Store(&entries)
		t.count.Add(1)
		return nil
	}
}

func (t *keyTable) remove(number uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.bucket(number >> 8)
	old := b.Load()
	if old == nil {
		return
	}
	var entries []keyEntry
	for _, e := range *old {
		if e.index != number>>8 {
			entries = append(entries, e)
		}
	}
	t.count.Add(int64(len(entries) - len(*old)))
	b.Store(&entries)
}

func (t *keyTable) bucket(index uint32) *atomic.Pointer[[]keyEntry] {
	return &t.buckets[index%uint32(len(t.buckets))]
}

func (t *keyTable) find(index uint32) (keyEntry, bool) {
	if b := t.bucket(index).Load(); b != nil {
		for _, e := range *b {
			if e.index == index {
				return e, true
			}
		}
	}
	return keyEntry{}, false
}

// lookup returns the region, memory key or window of that number on pd.
func (pd *PD) lookup(number uint32) (keyEntry, error) {
	e, ok := pd.dev.keys.find(number >> 8)
	switch {
	case !ok:
		return e, operr.New("use a key", syscall.EACCES, "key %#x names no memory", number)
	case e.pd() != pd:
		return e, operr.New("use a key", syscall.EACCES, "key %#x is of another protection domain", number)
	case e.number() != number:
		return e, operr.New("use a key", syscall.EACCES, "key %#x is stale: the key's number is %#x", number, e.number())
	}
	return e, nil
}

// pd returns the protection domain of the entry, nil for a closed region.
func (e *keyEntry) pd() *PD {
	switch {
	case e.region != nil:
		if s := e.region.state.Load(); s != nil {
			return s.pd
		}
		return nil
	case e.mkey != nil:
		return e.mkey.pd
	}
	return e.window.pd
}

func (e *keyEntry) number() uint32 {
	switch {
	case e.region != nil:
		return e.region.number
	case e.mkey != nil:
		return e.mkey.Number()
	}
	return e.window.Number()
}

// keyRef is memory that the layout of a memory key names by number. It is looked up
// each time, since the region or key can be closed. It is a mkey.Reference.
type keyRef struct {
	pd     *PD
	number uint32
}

// Target implements mkey.Reference.
func (k keyRef) Target() (mkey.Memory, error) {
	e, err := k.pd.lookup(k.number)
	switch {
	case err != nil:
		return nil, err
	case e.region != nil:
		return e.region, nil
	case e.mkey != nil:
		return e.mkey.key, nil
	}
	return nil, operr.New("use a key", syscall.EACCES, "key %#x is a memory window, which only a peer may use", k.number)
}

// Reach implements mkey.Memory.
func (k keyRef) Reach(addr, n uint64, need rdma.Access) error {
	m, err := k.Target()
	if err != nil {
		return err
	}
	return m.Reach(addr, n, need)
}

// At implements mkey.Memory.
func (k keyRef) At(addr, n uint64, need rdma.Access) ([]byte, error) {
	m, err := k.Target()
	if err != nil {
		return nil, err
	}
	return m.At(addr, n, need)
}
