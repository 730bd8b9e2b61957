package mkey

import (
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
)

// Domain is one of the two sides of a key.
type Domain uint8

// The domains of a key.
const (
	MemoryDomain Domain = iota
	WireDomain
)

// String returns "memory" or "wire".
func (d Domain) String() string {
	if d == WireDomain {
		return "wire"
	}
	return "memory"
}

// BadBlock describes a block whose signature was bad
// (mlx5dv_mkey_check(3), struct mlx5dv_sig_err).
type BadBlock struct {
	Sig    sig.Error // kind, block and offset in the input domain's stream, Stored and Computed
	Domain Domain    // the input domain: memory for TX, wire for RX
	Key    uint32    // number of the key on its device
}

// Error returns the domain and the text of the signature's error.
func (b *BadBlock) Error() string { return b.Domain.String() + " domain: " + b.Sig.Error() }

// Unwrap returns a *sig.Error.
func (b *BadBlock) Unwrap() error { return &b.Sig }

// Key is a memory key. It is safe for concurrent use. A stream that is open keeps the
// configuration that was in force when it was opened, and ends when the key is closed.
type Key struct {
	flags      Flags
	maxEntries int32
	strict     bool // keydoor.Attr.StrictCheck
	access     rdma.Access
	number     atomic.Uint32

	plan atomic.Pointer[plan] // the configuration in force; nil: the key is free

	configuring sync.Mutex // held while plan changes
	closed      bool       // guarded by configuring
	freed       *tenure    // the last one that was ended, which streams may not have left yet; guarded by configuring

	mu       sync.Mutex // guards the following fields
	bad      *BadBlock  // the first bad block not yet returned by Check; nil: none
	reported bool       // bad was reported to the device
	done     bool       // StrictCheck is set, and this configuration has recorded a bad block
}

// create is keydoor.NewKey.
func create(a keydoor.Attr) (*Key, error) {
	flags := Flags(a.Flags)
	if flags&^flagsAll != 0 {
		return nil, failure.New("mkey create", syscall.EOPNOTSUPP, "create_flags %#x: only %#x are known", uint32(flags), uint32(flagsAll))
	}
	if a.MaxEntries < 0 || a.MaxEntries > maxEntriesLimit {
		return nil, failure.New("mkey create", syscall.EINVAL, "max_entries %d: must be 0 to %d", a.MaxEntries, maxEntriesLimit)
	}
	if bad := a.Access &^ accessAll; bad != 0 {
		return nil, failure.New("mkey create", syscall.EINVAL, "access %v: a memory key has only %v", a.Access, accessAll)
	}
	k := &Key{flags: flags, maxEntries: int32(a.MaxEntries+3) &^ 3, strict: a.StrictCheck, access: a.Access}
	k.number.Store(a.Number)
	return k, nil
}

// maxEntriesLimit is the largest layout of a key: 2^16 entries, the longest list of a UMR
// that a ConnectX reports.
const maxEntriesLimit = 1 << 16

// New creates and configures a key. The key has the flags, and room for the layout
// entries, that the configuration needs.
func New(c KeyConfig) (*Key, error) {
	if err := dereference(&c.Layout); err != nil {
		return nil, err
	}
	var flags Flags
	entries := 0
	if c.Layout != nil {
		entries = c.Layout.entries()
	}
	if c.Signature != nil {
		flags |= BlockSignature
	}
	if c.Crypto != nil {
		flags |= CryptoOffload
	}
	k, err := create(keydoor.Attr{Flags: uint32(flags), MaxEntries: entries})
	if err != nil {
		return nil, err
	}
	p, err := k.prepare(&update{Access: &c.Access, Layout: c.Layout, Signature: c.Signature, Crypto: c.Crypto})
	if err == nil {
		err = k.apply(p)
	}
	if err != nil {
		return nil, err
	}
	return k, nil
}

// MaxEntries returns the largest number of entries that a layout may have.
func (k *Key) MaxEntries() int { return int(k.maxEntries) }

// Flags returns the flags that the key was created with.
func (k *Key) Flags() Flags { return k.flags }

// num returns the key's number on its device, which changes with its tag.
func (k *Key) num() uint32 { return k.number.Load() }

// apply merges p with the configuration in force and puts the result in force.
func (k *Key) apply(p *prepared) error {
	if p.key != k {
		return failure.New(opConfigure, syscall.EINVAL, "the update was prepared for key %#x, not for key %#x", p.key.num(), k.num())
	}
	k.configuring.Lock()
	defer k.configuring.Unlock()
	if k.closed {
		return failure.New(opConfigure, syscall.EINVAL, "key %#x was closed", k.num())
	}
	old := k.plan.Load()
	n, err := p.merge(old)
	if err != nil {
		return err
	}
	if n.crypto != nil {
		if err := n.crypto.DEK.Hold(); err != nil {
			return err
		}
	}
	k.plan.Store(n)
	old.release()
	k.mu.Lock()
	k.done = false
	k.mu.Unlock()
	return nil
}

// release releases the DEK that a plan held while it was in force.
func (p *plan) release() {
	if p != nil && p.crypto != nil {
		p.crypto.DEK.Release()
	}
}

// Close ends the key. Its streams fail from then on, and when Close returns,
// none of them accesses the memory or uses the DEK. That holds for each call of several, too.
// The error is always nil.
func (k *Key) Close() error {
	k.free(true)
	return nil
}

// invalidate frees the key and reports whether it was in use.
func (k *Key) invalidate() bool { return k.free(false) }

// free takes the plan out of force, for ever if closing is set. It returns when no stream accesses the memory, also if
// another call has taken the plan, and reports whether this one has.
func (k *Key) free(closing bool) bool {
	k.configuring.Lock()
	k.closed = k.closed || closing
	p := k.plan.Swap(nil)
	if p != nil {
		k.freed = p.tenure
	}
	freed := k.freed
	k.configuring.Unlock()
	if freed != nil {
		freed.end()
	}
	if p != nil {
		p.release()
	}
	return p != nil
}

// Check returns the first bad block since the last call of Check, or nil if there was
// none (mlx5dv_mkey_check(3)). It returns EINVAL if the key was created without
// BlockSignature.
func (k *Key) Check() (*BadBlock, error) {
	if k.flags&BlockSignature == 0 {
		return nil, failure.New("mkey check", syscall.EINVAL, "key %#x was created without BlockSignature", k.num())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	bad := k.bad
	k.bad = nil
	return bad, nil
}

// record keeps a bad block if it is the first.
func (k *Key) record(e sig.Error, d Domain) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.bad == nil && !k.done {
		k.bad = &BadBlock{Sig: e, Domain: d, Key: k.num()}
		k.done, k.reported = k.strict, false
	}
}

// WireLen returns the length of the longest transfer from the first byte on, in bytes of the wire
// domain; the layout determines it. It returns EINVAL if the key is free or has no
// layout.
func (k *Key) WireLen() (int64, error) {
	p, err := k.usable(0)
	if err != nil {
		return 0, err
	}
	return int64(p.geo.wireLength(p.layout.total) + transactionLen(p.transaction)), nil
}

// Reach implements [Memory]: in another key's layout, a key represents the
// bytes of its own layout, without signature and crypto.
func (k *Key) Reach(addr, n uint64, need rdma.Access) error {
	p, err := k.usable(need)
	if err != nil {
		return err
	}
	if addr, err = p.offset(addr); err == nil {
		_, err = p.layout.check(addr, n, below(need), 1)
	}
	return err
}

// At implements [Memory]. Bytes that can only be copied are refused.
func (k *Key) At(addr, n uint64, need rdma.Access) ([]byte, error) {
	p, err := k.usable(need)
	if err != nil {
		return nil, err
	}
	if addr, err = p.offset(addr); err != nil {
		return nil, err
	}
	return p.layout.at(addr, n, below(need), 1, nil)
}

// offset returns the offset from keydoor.Update.Start of an address.
func (p *plan) offset(addr uint64) (uint64, error) {
	if addr < p.start {
		return 0, failure.New("mkey access", syscall.EFAULT, "address %#x lies before the key's first one, %#x", addr, p.start)
	}
	return addr - p.start, nil
}

// usable returns the configuration in force if it has a layout and grants need.
func (k *Key) usable(need rdma.Access) (*plan, error) {
	p := k.plan.Load()
	switch {
	case p == nil:
		return nil, k.errFree()
	case p.layout == nil:
		return nil, failure.New("mkey access", syscall.EINVAL, "key %#x has no layout", k.num())
	case need&^p.access != 0:
		return nil, failure.New("mkey access", syscall.EACCES, "key %#x grants %v, and %v is needed", k.num(), p.access, need)
	}
	return p, nil
}

func (k *Key) errFree() error {
	return failure.New("mkey access", syscall.EINVAL, "key %#x is free: it must be configured before it is used", k.num())
}

// nestable refuses a key that cannot be an entry of another key's layout with the
// configuration p; nil: the key is free. A key made for crypto is always refused: either
// it has crypto attributes, or it lacks the ones it needs.
func (k *Key) nestable(op string, p *plan) error {
	if k.flags&CryptoOffload != 0 || p != nil && (p.sig != nil || p.crypto != nil || p.transaction != nil) {
		return failure.New(op, syscall.EINVAL, "key %#x has signature or crypto attributes and cannot stand in the layout of another key", k.num())
	}
	return nil
}

// below returns the rights that the memory under a key must grant for an access that
// needs need from the key. Remote rights are the key's own: its layout names local memory.
func below(need rdma.Access) rdma.Access {
	if need&(rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteAtomic) != 0 {
		return rdma.LocalWrite
	}
	return 0
}
