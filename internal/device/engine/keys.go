package engine

import (
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/lookup"
	"github.com/softmkey/softmkey/internal/base/random"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
)

// keyTable finds regions, memory keys and windows by the index of their number. A number is
// a random index of 24 bits, which cannot be guessed, above a tag of 8 bits. Drivers create
// half a million keys at a time.
type keyTable struct {
	lookup.Table[keyEntry]
	adding sync.Mutex
}

// keyEntry is a region, a memory key or a window.
type keyEntry struct {
	region *Region
	mkey   *MKey
	window *Window
}

// add enters e under a number with tag 0: the number with the index prefer if that is free and not 0, or
// else a random one. prepare is called with the number before e is entered, because lookups on any goroutine
// may find e afterwards. The error is that of prepare, or ENOMEM if MaxKeys keys exist.
func (t *keyTable) add(e keyEntry, prefer uint32, prepare func(number uint32) error) error {
	t.adding.Lock()
	defer t.adding.Unlock()
	if t.Len() >= MaxKeys {
		return failure.New("create a key", syscall.ENOMEM, "%d keys are in use, which is the limit", MaxKeys)
	}
	for ; ; prefer = 0 {
		index := prefer
		if index == 0 {
			index = random.Uint32() >> 8
		}
		if index == 0 || index == 0xFFFFFF || index == NullKey>>8 {
			continue // many programs give 0 and all ones a special meaning
		}
		if _, taken := t.Get(index); taken {
			continue
		}
		if err := prepare(index << 8); err != nil {
			return err
		}
		t.Add(index, e)
		return nil
	}
}

// lookup returns the region, memory key or window of that number on pd.
func (pd *PD) lookup(number uint32) (keyEntry, error) {
	if number == NullKey {
		return keyEntry{region: pd.dev.null}, nil
	}
	e, ok := pd.dev.keys.Get(number >> 8)
	switch {
	case !ok:
		return e, wrongKey("key %#x names no memory", number)
	case e.pd() != pd:
		return e, wrongKey("key %#x is of another protection domain", number)
	case e.number() != number:
		return e, wrongKey("key %#x is stale: the key's number is %#x", number, e.number())
	}
	return e, nil
}

// A WrongKeyError is the reason of a request whose key cannot be used at all, whatever range and
// rights it asks for.
type WrongKeyError struct{ err error }

// Error returns the reason in words.
func (e WrongKeyError) Error() string { return e.err.Error() }

// Unwrap returns the *operr.Error.
func (e WrongKeyError) Unwrap() error { return e.err }

func wrongKey(format string, args ...any) error {
	return WrongKeyError{failure.New("use a key", syscall.EACCES, format, args...)}
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
		return e.mkey.pd()
	}
	return e.window.pd()
}

// checkOwner returns an error if the entry belongs to another QP than qp.
func (e *keyEntry) checkOwner(qp *QP) error {
	switch {
	case e.mkey != nil:
		return e.mkey.owner.check(qp, e.mkey.Number())
	case e.window != nil:
		return e.window.owner.check(qp, e.window.Number())
	}
	return nil
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
// each time, since the region or key can be closed. Package mkey looks for its Target.
type keyRef struct {
	pd     *PD
	number uint32
}

// Target returns the memory that a layout of package mkey uses instead.
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
	return nil, wrongKey("key %#x is a memory window, which only a peer may use", k.number)
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
