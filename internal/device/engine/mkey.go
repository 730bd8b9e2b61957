package engine

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/operr"
)

// numbered is a key of package mkey that has a number on the device: the base of a memory
// key and of a memory window.
type numbered struct {
	domain atomic.Pointer[PD]
	key    *mkey.Key
	door   keydoor.Key
	number atomic.Uint32
}

// update is a request to configure a key.
type update = keydoor.Update[mkey.Layout, *mkey.Signature, *mkey.Crypto]

// enter creates the key and enters e, which holds it, in the table of keys. kind is the name
// of its users in errors.
func (n *numbered) enter(op, kind string, pd *PD, e keyEntry, a keydoor.Attr) error {
	if err := pd.users.Enter(op, kind); err != nil {
		return err
	}
	n.domain.Store(pd)
	tag := a.Number & 0xff
	err := pd.dev.keys.add(e, a.Number>>8, func(number uint32) error {
		a.Number = number | tag
		n.number.Store(a.Number)
		k, err := keydoor.NewKey(a)
		if err == nil {
			n.key, n.door = k.(*mkey.Key), keydoor.Of(k)
		}
		return err
	})
	if err != nil {
		pd.users.Leave(kind)
	}
	return err
}

// pd returns the protection domain.
func (n *numbered) pd() *PD { return n.domain.Load() }

// Number returns the number under which requests name the key or window, its lkey and rkey.
func (n *numbered) Number() uint32 { return n.number.Load() }

// MKey is a memory key: requests configure it, and other requests then use it
// like a region.
type MKey struct {
	numbered
	flags atomic.Uint32 // keyClosed, keyPinned
	owner owner         // of a window of a guest

	mu     sync.Mutex // guards the following fields
	freed  invalidation
	length uint64 // length in bytes of the layout that was configured last, or SetLength's
}

// The flags of a key. Programs make hundreds of thousands of keys, so they share a word.
const (
	keyClosed = 1 << iota
	keyPinned // the last configuration forbids the peer to free the key
)

// invalidation is the request that freed a key.
type invalidation struct {
	id  uint64 // of the request
	qpn uint32
	by  freedBy
}

// freedBy is the operation that freed a key.
type freedBy uint8

const (
	notFreed     freedBy = iota // the key is in use or was never configured
	freedByLocal                // LOCAL_INV
	freedByPeer                 // a SEND with invalidate, which a receive request took
)

func (f freedBy) String() string {
	if f == freedByLocal {
		return "LOCAL_INV of request"
	}
	return "a SEND with invalidate, receive of request"
}

// NewMKey creates a memory key, which is free: it can be used once it was
// configured. The low byte of the attribute Number is the tag of the key's
// number, and the rest is its index if that is free and not 0. NewMKey returns
// EOPNOTSUPP for unknown flags.
func (pd *PD) NewMKey(a keydoor.Attr) (*MKey, error) {
	const op = "create a memory key"
	if a.MaxEntries > MaxMKeyEntries {
		return nil, failure.New(op, syscall.EINVAL, "max_entries %d: at most %d", a.MaxEntries, MaxMKeyEntries)
	}
	a.StrictCheck = pd.dev.strict
	k := &MKey{}
	if err := k.enter(op, "MKey", pd, keyEntry{mkey: k}, a); err != nil {
		return nil, err
	}
	return k, nil
}

// MKey returns the memory key of the domain whose number has the index of number, or nil.
// The tag is ignored.
func (pd *PD) MKey(number uint32) *MKey {
	if e, ok := pd.dev.keys.Get(number >> 8); ok && e.mkey != nil && e.mkey.pd() == pd {
		return e.mkey
	}
	return nil
}

// MKey returns the memory key whose number has the index of number, whatever its protection
// domain is, or nil.
func (d *Device) MKey(number uint32) *MKey {
	e, _ := d.keys.Get(number >> 8)
	return e.mkey
}

// InUse reports whether the key was configured and not freed since.
func (k *MKey) InUse() bool { return k.door.InUse() }

// Configure configures the key at once, without a request.
func (k *MKey) Configure(c *Configuration) error { return k.configure(c) }

// Length returns the length in bytes of the layout that was configured last.
func (k *MKey) Length() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.length
}

// SetLength sets the length that Length returns until the key gets a layout.
func (k *MKey) SetLength(n uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.length = n
}

// PD returns the protection domain of the key.
func (k *MKey) PD() *PD { return k.pd() }

// Flags returns the flags that the key was created with.
func (k *MKey) Flags() mkey.Flags { return k.key.Flags() }

// MaxEntries returns the largest number of entries that a layout may have.
func (k *MKey) MaxEntries() int { return k.key.MaxEntries() }

// Check returns the first bad block that was found since the last call, or nil,
// and clears it. It returns EINVAL for a key without mkey.BlockSignature.
func (k *MKey) Check() (*mkey.BadBlock, error) { return k.key.Check() }

// Close destroys the key. When Close returns, no request accesses memory
// through the key. A request that still names the key fails.
func (k *MKey) Close() error {
	if k.flags.Or(keyClosed)&keyClosed != 0 {
		return k.key.Close() // another call closes it: wait for the same streams
	}
	k.pd().dev.keys.Remove(k.Number() >> 8)
	err := k.key.Close()
	k.mu.Lock() // a configuration may be moving the key to another domain
	defer k.mu.Unlock()
	k.pd().users.Leave("MKey")
	return err
}

// configure executes a configuration.
func (k *MKey) configure(c *Configuration) error {
	if c.Free {
		k.door.Invalidate()
		k.owner.Store(0)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.setTag(c.Tag)
		return k.move(c.PD)
	}
	p, err := c.prepare()
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	length := k.length
	if c.hasLayout() {
		length = c.length()
	}
	if err := c.checkLength(length); err != nil {
		return err
	}
	if c.Owner != nil {
		k.owner.Store(*c.Owner) // before the first access finds the key in use
	}
	if err := k.door.Apply(p); err != nil {
		if c.Owner != nil {
			k.owner.Store(0)
		}
		return err
	}
	if err := k.move(c.PD); err != nil {
		return err
	}
	k.setTag(c.Tag)
	if c.RemoteInvalidate != nil {
		if *c.RemoteInvalidate {
			k.flags.And(^uint32(keyPinned))
		} else {
			k.flags.Or(keyPinned)
		}
	}
	k.freed, k.length = invalidation{}, length
	return nil
}

// move moves the key to another protection domain, unless pd is nil or the key
// was closed. The caller holds k.mu.
func (k *MKey) move(pd *PD) error {
	if pd == nil || pd == k.pd() || k.flags.Load()&keyClosed != 0 {
		return nil
	}
	if err := pd.users.Enter("mkey configure", "MKey"); err != nil {
		return err
	}
	k.domain.Swap(pd).users.Leave("MKey")
	return nil
}

// setTag changes the low byte of the key's number, unless tag is nil.
func (k *MKey) setTag(tag *uint8) {
	if tag != nil {
		number := k.Number()&^0xFF | uint32(*tag)
		k.number.Store(number)
		k.door.SetNumber(number)
	}
}

// invalidate frees the key for a request of its owner.
func (k *MKey) invalidate(by invalidation) error {
	was := k.setFreed(by) // before the first access finds the key free
	if !k.door.Invalidate() {
		k.setFreed(was)
		return k.explain(failure.New("invalidate a key", syscall.EINVAL, "key %#x is free already", k.Number()))
	}
	k.owner.Store(0)
	return nil
}

// invalidateRemote frees the key for a SEND with invalidate of the peer.
func (k *MKey) invalidateRemote(by invalidation) error {
	if k.flags.Load()&keyPinned != 0 {
		return failure.New("invalidate a key", syscall.EACCES, "key %#x may not be invalidated by the peer: its last configuration says so", k.Number())
	}
	was := k.setFreed(by)
	err := k.door.InvalidateRemote()
	if err != nil {
		k.setFreed(was)
		return err
	}
	k.owner.Store(0)
	return nil
}

// setFreed records the request that frees the key, and returns the previous
// record.
func (k *MKey) setFreed(by invalidation) (was invalidation) {
	k.mu.Lock()
	defer k.mu.Unlock()
	was, k.freed = k.freed, by
	return was
}

// explain adds to the error of an access why the key is not in use.
func (k *MKey) explain(err error) error {
	k.mu.Lock()
	freed := k.freed
	k.mu.Unlock()
	var reason string
	switch {
	case k.flags.Load()&keyClosed != 0:
		reason = fmt.Sprintf("key %#x was closed", k.Number())
	case freed.by != notFreed:
		reason = fmt.Sprintf("key %#x is free since %v %d on QP %#x", k.Number(), freed.by, freed.id, freed.qpn)
	default:
		return err
	}
	errno := syscall.EINVAL
	errors.As(err, &errno)
	return &operr.Error{Op: "use a key", Errno: errno, Reason: reason, Err: err}
}
