package mkey

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/rdma"
)

func init() {
	keydoor.Of = func(key any) keydoor.Key { return (*device)(key.(*Key)) }
	keydoor.NewKey = func(a keydoor.Attr) (any, error) { return create(a) }
	keydoor.AtomicCopied = func(space any, addr uint64, n int, next func(old uint64) (uint64, bool)) (uint64, error) {
		return atomicCopied(space.(keydoor.Space), addr, n, next)
	}
	keydoor.ListTX = func(list any, need rdma.Access) (keydoor.TX, error) {
		return openListTX(*list.(*List), need)
	}
	keydoor.ListRX = func(list any, need rdma.Access) (keydoor.RX, error) {
		return openListRX(*list.(*List), need)
	}
}

// device adds to Key the methods that only the device uses. keydoor.Key
// documents them.
type device Key

func (d *device) key() *Key { return (*Key)(d) }

func (d *device) TX(offset, length uint64) (keydoor.TX, error) {
	t, err := d.key().openTX(offset, length, 0)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (d *device) RemoteTX(offset, length, checked uint64, repeated bool) (keydoor.TX, error) {
	t, err := d.key().openTX(offset, length, rdma.RemoteRead)
	if err != nil {
		return nil, err
	}
	if t.plan.transaction != nil {
		t.register.restore(checked, repeated)
		return t, nil
	}
	t.strip.checkedBefore(checked)
	return t, nil
}

func (d *device) RX(offset, length uint64) (keydoor.RX, error) {
	return d.rx(offset, length, rdma.LocalWrite, true)
}

func (d *device) RXUpTo(offset, room uint64) (keydoor.RX, error) {
	return d.rx(offset, room, rdma.LocalWrite, false)
}

func (d *device) RemoteRX(offset, length uint64) (keydoor.RX, error) {
	return d.rx(offset, length, rdma.RemoteWrite, true)
}

func (d *device) rx(offset, length uint64, need rdma.Access, exact bool) (keydoor.RX, error) {
	r, err := d.key().openRX(offset, length, need, exact)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Key implements keydoor.Prepared.
func (p *prepared) Key() any { return p.key }

func (d *device) Prepare(u any) (keydoor.Prepared, error) {
	p, err := d.key().prepare(u.(*update))
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (d *device) Apply(p keydoor.Prepared) error { return d.key().apply(p.(*prepared)) }

func (d *device) Invalidate() bool { return d.key().invalidate() }

func (d *device) InUse() bool { return d.key().plan.Load() != nil }

func (d *device) InvalidateRemote() error {
	k := d.key()
	if k.flags&RemoteInvalidate == 0 {
		return failure.New("mkey invalidate", syscall.EACCES, "key %#x was created without RemoteInvalidate", k.num())
	}
	if !k.invalidate() {
		return failure.New("mkey invalidate", syscall.EINVAL, "key %#x is free", k.num())
	}
	return nil
}

func (d *device) Rest(offset, length uint64) uint64 {
	p := d.key().plan.Load()
	if p == nil || p.sig == nil {
		return 0
	}
	return min(length, (offset-p.start+length)%p.geo.wire.Stride())
}

func (d *device) Unreported() any {
	k := d.key()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.bad == nil || k.reported {
		return nil
	}
	k.reported = true
	return new(*k.bad)
}

func (d *device) SetNumber(n uint32) { d.key().number.Store(n) }

func (d *device) Atomic(addr uint64, n int, next func(old uint64) (uint64, bool)) (uint64, error) {
	const op = "mkey atomic"
	k := d.key()
	if k.flags&(BlockSignature|CryptoOffload) != 0 {
		return 0, failure.New(op, syscall.EACCES, "key %#x was created for signatures or crypto: atomics need a key without", k.num())
	}
	p, err := k.usable(rdma.RemoteAtomic)
	if err != nil {
		return 0, err
	}
	v := visit{plan: p, remote: true}
	if err := v.begin(k); err != nil {
		return 0, err
	}
	defer v.end()
	if addr, err = p.offset(addr); err != nil {
		return 0, err
	}
	b, err := p.layout.at(addr, uint64(n), below(rdma.RemoteAtomic), 1, &v)
	if err != nil {
		return 0, err
	}
	if v.space != nil && v.n == uint64(n) {
		return atomicCopied(v.space, v.addr, n, next)
	}
	if len(b) != n {
		return 0, failure.New(op, syscall.EFAULT, "the %d bytes at %d of key %#x lie in two pieces of memory", n, addr, k.num())
	}
	old, _ := keydoor.ChangeWord(b, next)
	return old, nil
}

// atomicCopied is keydoor.AtomicCopied.
func atomicCopied(s keydoor.Space, addr uint64, n int, next func(old uint64) (uint64, bool)) (uint64, error) {
	b := make([]byte, n)
	vecs := []keydoor.Vec{{Addr: addr, Buf: b}}
	if err := s.ReadV(vecs); err != nil {
		return 0, err
	}
	old, changed := keydoor.ChangeWord(b, next)
	if !changed {
		return old, nil
	}
	return old, s.WriteV(vecs)
}
