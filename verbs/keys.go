package verbs

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/operr"
)

// keyTable finds regions and memory keys by their number. A number is a random
// index of 24 bits, which cannot be guessed, above a tag of 8 bits. Lookups take no lock:
// they run for every request, and regions come and go seldom.
type keyTable struct {
	mu      sync.Mutex // serialises changes
	buckets [1 << 10]atomic.Pointer[[]keyEntry]
	count   atomic.Int64
}

type keyEntry struct {
	index uint32
	mr    *MR // one of the two
	mkey  *MKey
}

const maxKeys = 1 << 22

// add puts an entry in under a new number with tag 0. prepare is called with the
// number first: from then on lookups on any goroutine may find the entry.
func (t *keyTable) add(e keyEntry, prepare func(number uint32) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count.Load() >= maxKeys {
		return operr.New("key", syscall.ENOMEM, "%d keys are in use, which is the limit", maxKeys)
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
		old := b.Load()
		var entries []keyEntry
		if old != nil {
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

// lookup returns the region or memory key of that number on pd. A number of
// another PD is refused in the same words as one that names nothing: a peer
// learns nothing from it.
func (t *keyTable) lookup(pd *PD, number uint32) (keyEntry, error) {
	e, ok := t.find(number >> 8)
	switch {
	case !ok:
	case e.mr != nil && e.mr.pd == pd && e.mr.number == number:
		return e, nil
	case e.mkey != nil && e.mkey.pd == pd && e.mkey.Number() == number:
		return e, nil
	}
	return keyEntry{}, operr.New("key", syscall.EACCES, "key %#x names no memory of the protection domain", number)
}

// keyRef is memory named by number in the layout of a memory key. It is looked
// up each time, since what it names can go away.
type keyRef struct {
	pd     *PD
	number uint32
}

// Reach implements mkey.Memory.
func (k keyRef) Reach(addr, n uint64, need Access) error {
	e, err := k.pd.dev.keys.lookup(k.pd, k.number)
	switch {
	case err != nil:
		return err
	case e.mr != nil:
		return e.mr.Reach(addr, n, need)
	}
	return e.mkey.key.Reach(addr, n, need)
}

// At implements mkey.Memory.
func (k keyRef) At(addr, n uint64, need Access) ([]byte, error) {
	e, err := k.pd.dev.keys.lookup(k.pd, k.number)
	switch {
	case err != nil:
		return nil, err
	case e.mr != nil:
		return e.mr.At(addr, n, need)
	}
	return e.mkey.key.At(addr, n, need)
}

// Target implements mkey.Reference.
func (k keyRef) Target() (mkey.Memory, error) {
	e, err := k.pd.dev.keys.lookup(k.pd, k.number)
	switch {
	case err != nil:
		return nil, err
	case e.mr != nil:
		return e.mr, nil
	}
	return e.mkey.key, nil
}

// random32 returns bits that a peer cannot guess.
func random32() uint32 {
	var b [4]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return binary.NativeEndian.Uint32(b[:])
}
