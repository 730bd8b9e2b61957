package mkey

import (
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/operr"
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
	number     atomic.Uint32

	// posted is the configuration after everything that was staged, plan the one
	// that is in force; both are nil while the key is free. staging is held while
	// posted changes, and may be read without it.
	staging sync.Mutex
	posted  atomic.Pointer[Plan]
	plan    atomic.Pointer[Plan]

	mu  sync.Mutex
	bad BadBlock // guarded by mu: the first bad block nobody has asked for yet, if it has a kind
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
	k := &Key{flags: a.Flags, maxEntries: (a.MaxEntries + 3) &^ 3}
	k.number.Store(a.Number)
	return k, nil
}

// maxEntriesLimit is the largest layout of a key: what a ConnectX reports as the
// longest list of a UMR, 2^16 entries.
const maxEntriesLimit = 1 << 16

// New makes a key and configures it: the short way for programs without a
// device. The key has the flags and the room that the configuration needs.
func New(c Config) (*Key, error) {
	a := Attr{Flags: Indirect, Number: c.Number}
	if err := plain(&c.Layout); err != nil {
		return nil, err
	}
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
	if err := k.Configure(Conf{Access: &c.Access, Layout: c.Layout, Signature: c.Signature, Crypto: c.Crypto}); err != nil {
		return nil, err
	}
	return k, nil
}

// MaxEntries returns how many entries a layout may have.
func (k *Key) MaxEntries() int { return k.maxEntries }

// Flags returns what the key was created for.
func (k *Key) Flags() Flags { return k.flags }

// Number returns Attr.Number, or what SetNumber has made of it.
func (k *Key) Number() uint32 { return k.number.Load() }

// SetNumber changes the number that reports of bad blocks repeat from now on, for a
// key whose tag was changed.
func (k *Key) SetNumber(n uint32) { k.number.Store(n) }

// Configure sets what conf holds and keeps the rest. Errors are those of Stage.
func (k *Key) Configure(conf Conf) error {
	k.staging.Lock()
	defer k.staging.Unlock()
	p, err := compile(k, k.posted.Load(), conf)
	if err != nil {
		return err
	}
	k.posted.Store(p)
	k.plan.Store(p)
	return nil
}

// Stage checks conf against what has been staged before and returns the
// resulting configuration, which comes into force with Commit. A send queue
// stages a configuration when it is posted and commits it when its turn comes.
//
// Errors are those of mlx5dv_wr_mkey_configure(3) and its setters: EOPNOTSUPP
// for unknown conf_flags, ENOMEM for more entries than fit, EINVAL for the rest.
// After an error the key's next configuration must set everything it needs.
func (k *Key) Stage(conf Conf) (*Plan, error) {
	k.staging.Lock()
	defer k.staging.Unlock()
	p, err := compile(k, k.posted.Load(), conf)
	if err != nil {
		return nil, err
	}
	k.posted.Store(p)
	return p, nil
}

// Commit brings a configuration that was staged for this key into force.
func (k *Key) Commit(p *Plan) {
	if p.key != k {
		panic("mkey: commit of a configuration of another key")
	}
	k.plan.Store(p)
}

// StageInvalidate is Stage for the request that frees the key; Invalidate is
// its Commit.
func (k *Key) StageInvalidate() {
	k.staging.Lock()
	defer k.staging.Unlock()
	k.posted.Store(nil)
}

// Invalidate frees the key: it cannot be used until it is configured again. It
// reports whether the key was in use.
func (k *Key) Invalidate() bool { return k.plan.Swap(nil) != nil }

// InvalidateRemote frees the key for a peer's SEND with invalidate, which the
// key must have been created for, and must be in use.
func (k *Key) InvalidateRemote() error {
	if k.flags&RemoteInvalidate == 0 {
		return operr.New("mkey invalidate", syscall.EACCES, "key %#x was created without RemoteInvalidate", k.Number())
	}
	k.staging.Lock()
	defer k.staging.Unlock()
	p := k.plan.Swap(nil)
	if p == nil {
		return operr.New("mkey invalidate", syscall.EINVAL, "key %#x is free", k.Number())
	}
	// What was staged after p stays; it was posted for a later time.
	if k.posted.Load() == p {
		k.posted.Store(nil)
	}
	return nil
}

// Check returns the first bad block since the last time it was asked, or nil,
// and forgets it. A key created without BlockSignature is EINVAL.
func (k *Key) Check() (*BadBlock, error) {
	if k.flags&BlockSignature == 0 {
		return nil, operr.New("mkey check", syscall.EINVAL, "key %#x was created without BlockSignature", k.Number())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.bad.Sig.Kind == 0 {
		return nil, nil
	}
	bad := k.bad
	k.bad = BadBlock{}
	return &bad, nil
}

// record keeps the first bad block.
func (k *Key) record(e sig.Error, d Domain) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.bad.Sig.Kind == 0 {
		k.bad = BadBlock{Sig: e, Domain: d, Key: k.Number()}
	}
}

// WireLen returns how many bytes of the wire domain the key's memory has room for, from
// offset 0. That is also the end of the longest transfer. A key that is free or has
// no layout is EINVAL.
func (k *Key) WireLen() (uint64, error) {
	p, err := k.usable(0)
	if err != nil {
		return 0, err
	}
	return p.geo.wireLength(p.layout.total), nil
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
		return nil, operr.New("mkey", syscall.EINVAL, "key %#x is free: it must be configured before it is used", k.Number())
	case p.layout == nil:
		return nil, operr.New("mkey", syscall.EINVAL, "key %#x has no layout", k.Number())
	case need&^p.access != 0:
		return nil, operr.New("mkey", syscall.EACCES, "key %#x has access flags %#x, %#x are needed", k.Number(), uint32(p.access), uint32(need))
	}
	return p, nil
}

// nestable reports whether the key may stand in another's layout with the
// configuration p, which is nil if it is free. A key made for crypto never may: it
// has crypto attributes, or lacks what it must have before it is used.
func (k *Key) nestable(op string, p *Plan) error {
	if k.flags&CryptoOffload != 0 || p != nil && (p.sig != nil || p.crypto != nil) {
		return operr.New(op, syscall.EINVAL, "key %#x has signature or crypto attributes and cannot stand in the layout of another key", k.Number())
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
