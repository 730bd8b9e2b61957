package mkey

import (
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/operr"
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

// BadBlock is the record of a block whose signature was bad
// (mlx5dv_mkey_check(3), struct mlx5dv_sig_err).
type BadBlock struct {
	Sig    sig.Error // kind, block and offset in the input domain's stream, Stored and Computed
	Domain Domain    // which domain was the input
	Key    uint32    // Attr.Number of the key of the data block
}

// Error says which domain and block was bad, and how.
func (b *BadBlock) Error() string { return b.Domain.String() + " domain: " + b.Sig.Error() }

// Unwrap returns the signature's own error.
func (b *BadBlock) Unwrap() error { return &b.Sig }

// Key is a memory key. It is safe for concurrent use; a stream that was opened
// keeps the configuration that was in force then.
type Key struct {
	flags      Flags
	maxEntries int
	number     uint32

	// posted is the configuration after everything that was staged, plan the one
	// that is in force; both are nil while the key is free.
	posted atomic.Pointer[Plan]
	plan   atomic.Pointer[Plan]

	mu  sync.Mutex
	bad *BadBlock // guarded by mu: the first bad block nobody has asked for yet
}

// Create makes a key that is free: it can be used once it was configured.
// No flags, unknown ones, or none of Indirect are EOPNOTSUPP.
func Create(a Attr) (*Key, error) {
	if a.Flags&Indirect == 0 || a.Flags&^flagsAll != 0 {
		return nil, operr.New("mkey create", syscall.EOPNOTSUPP, "create_flags %#x: Indirect (%#x) is required, and only %#x are known", uint32(a.Flags), uint32(Indirect), uint32(flagsAll))
	}
	if a.MaxEntries < 0 || a.MaxEntries > maxEntriesLimit {
		return nil, operr.New("mkey create", syscall.EINVAL, "max_entries %d: must be 0 to %d", a.MaxEntries, maxEntriesLimit)
	}
	return &Key{flags: a.Flags, maxEntries: (a.MaxEntries + 3) &^ 3, number: a.Number}, nil
}

// maxEntriesLimit is the largest layout of a key: what a ConnectX reports as the
// longest list of a UMR, 2^16 entries.
const maxEntriesLimit = 1 << 16

// New makes a key and configures it: the short way for programs without a
// device. The key has the flags and the room that the configuration needs.
func New(c Config) (*Key, error) {
	a := Attr{Flags: Indirect, Number: c.Number}
	if c.Layout != nil {
		a.MaxEntries = c.Layout.entries()
	}
	if c.Signature != nil {
		a.Flags |= BlockSignature
	}
	if c.Crypto != nil {
		a.Flags |= CryptoOffload
	}
	k, err := Create(a)
	if err != nil {
		return nil, err
	}
	return k, k.Configure(Conf{Access: &c.Access, Layout: c.Layout, Signature: c.Signature, Crypto: c.Crypto})
}

// MaxEntries returns how many entries a layout may have.
func (k *Key) MaxEntries() int { return k.maxEntries }

// Flags returns what the key was created for.
func (k *Key) Flags() Flags { return k.flags }

// Configure sets what conf holds and keeps the rest.
func (k *Key) Configure(conf Conf) error {
	p, err := k.Stage(conf)
	if err == nil {
		k.Commit(p)
	}
	return err
}

// Stage checks conf against what has been staged before and returns the
// resulting configuration, which comes into force with Commit. A send queue
// stages a configuration when it is posted and commits it when its turn comes.
//
// Errors are those of mlx5dv_wr_mkey_configure(3) and its setters: EOPNOTSUPP
// for unknown conf_flags, ENOMEM for more entries than fit, EINVAL for the rest.
// After an error the key's next configuration must set everything it needs.
func (k *Key) Stage(conf Conf) (*Plan, error) {
	p, err := compile(k, k.posted.Load(), conf)
	if err != nil {
		return nil, err
	}
	k.posted.Store(p)
	return p, nil
}

// Commit brings a staged configuration into force.
func (k *Key) Commit(p *Plan) { k.plan.Store(p) }

// StageInvalidate is Stage for the request that frees the key; Invalidate is
// its Commit.
func (k *Key) StageInvalidate() { k.posted.Store(nil) }

// Invalidate frees the key: it cannot be used until it is configured again.
func (k *Key) Invalidate() { k.plan.Store(nil) }

// InvalidateRemote frees the key for a peer's SEND with invalidate, which the
// key must have been created for, and must be in use.
func (k *Key) InvalidateRemote() error {
	if k.flags&RemoteInvalidate == 0 {
		return operr.New("mkey invalidate", syscall.EACCES, "key %#x was created without RemoteInvalidate", k.number)
	}
	p := k.plan.Swap(nil)
	if p == nil {
		return operr.New("mkey invalidate", syscall.EINVAL, "key %#x is free", k.number)
	}
	// What was staged after p stays; it was posted for a later time.
	k.posted.CompareAndSwap(p, nil)
	return nil
}

// Check returns the first bad block since the last time it was asked, or nil,
// and forgets it. A key created without BlockSignature is EINVAL.
func (k *Key) Check() (*BadBlock, error) {
	if k.flags&BlockSignature == 0 {
		return nil, operr.New("mkey check", syscall.EINVAL, "key %#x was created without BlockSignature", k.number)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	bad := k.bad
	k.bad = nil
	return bad, nil
}

// record keeps the first bad block.
func (k *Key) record(e sig.Error, d Domain) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.bad == nil {
		k.bad = &BadBlock{Sig: e, Domain: d, Key: k.number}
	}
}

// Reach implements [Memory]: a key named in the layout of another key, or
// reached without its signature and crypto, is the bytes of its own layout.
func (k *Key) Reach(addr, n uint64, need Access) error {
	p, err := k.usable(need)
	if err != nil {
		return err
	}
	return p.layout.check(addr, n, below(need), 1)
}

// At implements [Memory].
func (k *Key) At(addr, n uint64, need Access) ([]byte, error) {
	p, err := k.usable(need)
	if err != nil {
		return nil, err
	}
	return p.layout.at(addr, n, below(need), 1)
}

// usable returns the configuration in force if it has a layout and grants need.
func (k *Key) usable(need Access) (*Plan, error) {
	p := k.plan.Load()
	switch {
	case p == nil:
		return nil, operr.New("mkey", syscall.EINVAL, "key %#x is free: it must be configured before it is used", k.number)
	case p.layout == nil:
		return nil, operr.New("mkey", syscall.EINVAL, "key %#x has no layout", k.number)
	case need&^p.access != 0:
		return nil, operr.New("mkey", syscall.EACCES, "key %#x has access flags %#x, %#x are needed", k.number, uint32(p.access), uint32(need))
	}
	return p, nil
}

// nestable reports whether a configuration may serve in another key's layout.
func (p *Plan) nestable() error {
	if p.sig != nil || p.crypto != nil {
		return operr.New("mkey", syscall.EINVAL, "key %#x has signature or crypto attributes and cannot stand in the layout of another key", p.key.number)
	}
	return nil
}

// below is what the memory under a key must grant: the peer's rights end at the
// key, whose layout names local memory.
func below(need Access) Access {
	if need&(LocalWrite|RemoteWrite|RemoteAtomic) != 0 {
		return LocalWrite
	}
	return 0
}
