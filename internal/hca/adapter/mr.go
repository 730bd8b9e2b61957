package adapter

import (
	"cmp"
	"fmt"
	"math"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/rdma"
)

// NullKey is the lkey of null regions (ibv_alloc_null_mr).
const NullKey = engine.NullKey

// MR is a memory region of the program's memory.
type MR struct {
	ctx *Context
	eng *engine.Region
	mem Memory // nil: the adapter has the memory

	mu     sync.Mutex // guards the following fields
	pd     *PD
	addr   uint64
	length uint64
	iova   uint64
	access uint32
	closed bool
}

// freedKind holds the attributes that must be equal for a new region to get a freed number.
type freedKind struct {
	pd     *PD
	length uint64
	access uint32
}

// freedNumbers are the numbers of regions that were deregistered. mlx5's driver keeps keys for
// the next region of the same size and rights: programs that make a region again may assume that
// it gets the same number.
type freedNumbers struct {
	mu    sync.Mutex
	kinds map[freedKind][]uint32 // the last one is taken first
	count int
}

// mostFreed bounds the numbers that a context keeps. Beyond that, all are forgotten.
const mostFreed = 1 << 12

func (f *freedNumbers) put(k freedKind, number uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kinds == nil || f.count >= mostFreed {
		f.kinds, f.count = map[freedKind][]uint32{}, 0
	}
	f.kinds[k] = append(f.kinds[k], number)
	f.count++
}

// take returns the number that was freed last, or 0.
func (f *freedNumbers) take(k freedKind) (number uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.kinds[k]
	if len(all) == 0 {
		return 0
	}
	number = all[len(all)-1]
	if f.kinds[k] = all[:len(all)-1]; len(all) == 1 {
		delete(f.kinds, k)
	}
	f.count--
	return number
}

// forget drops the numbers of a PD's regions.
func (f *freedNumbers) forget(pd *PD) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, all := range f.kinds {
		if k.pd == pd {
			f.count -= len(all)
			delete(f.kinds, k)
		}
	}
}

// Access flags of enum ibv_access_flags that package rdma lacks. Memory is copied page by page,
// and no page is pinned: a region with on-demand paging differs from another one in that its
// pages need not be there when it is registered.
const (
	accessOnDemand  = 1 << 6
	accessHugeTLB   = 1 << 7
	accessOptional  = 0x3ff << 20 // relaxed ordering and others that a device may ignore
	accessSupported = uint32(rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead|rdma.RemoteAtomic|ibv.MWBind|rdma.ZeroBased) | accessOnDemand | accessHugeTLB
)

// regionAccess checks access flags as the driver does.
func regionAccess(op string, access uint32) (rdma.Access, error) {
	access &^= accessOptional
	switch {
	case access&^accessSupported != 0:
		return 0, failure.New(op, syscall.EINVAL, "access flags %#x: %#x are not known", access, access&^accessSupported)
	case access&uint32(rdma.RemoteWrite|rdma.RemoteAtomic) != 0 && access&uint32(rdma.LocalWrite) == 0:
		return 0, failure.New(op, syscall.EINVAL, "access flags %#x: remote writing and atomics need local writing", access)
	}
	// Zero-based regions need no flag here: the caller passes the requests' address as iova.
	return rdma.Access(access) &^ (rdma.ZeroBased | accessOnDemand | accessHugeTLB), nil
}

// RegMR registers length bytes of a process's memory from addr, which requests name
// by addresses from iova on. mem is nil for the process of the context; others that share it have a memory of their own.
// access is of enum ibv_access_flags.
func (c *Context) RegMR(mem Memory, pd *PD, addr, length, iova uint64, access uint32) (*MR, error) {
	mem = cmp.Or(mem, c.mem)
	return newMR(c, "register memory", &MR{mem: mem, pd: pd, addr: addr, length: length, iova: iova, access: access}, programMemoryOf(mem))
}

// RegDeviceMemory registers memory of the adapter itself. Requests name it by addresses from 0 on,
// so access must have rdma.ZeroBased.
func (c *Context) RegDeviceMemory(pd *PD, mem []byte, access uint32) (*MR, error) {
	const op = "register device memory"
	if access&uint32(rdma.ZeroBased) == 0 {
		return nil, c.refused("mr", 0, "create", failure.New(op, syscall.EINVAL, "access flags %#x: device memory is zero-based", access))
	}
	return newMR(c, op, &MR{pd: pd, length: uint64(len(mem)), access: access}, mkey.Bytes(mem))
}

// RegDMABuf registers memory of a dma-buf that is mapped here. Requests name it by addresses from
// iova on.
func (c *Context) RegDMABuf(pd *PD, mem []byte, iova uint64, access uint32) (*MR, error) {
	return newMR(c, "register a dma-buf", &MR{pd: pd, length: uint64(len(mem)), iova: iova, access: access}, mkey.Bytes(mem))
}

// newMR registers memory as the region m, which has the attributes of the call.
func newMR(c *Context, op string, m *MR, memory mkey.Memory) (_ *MR, err error) {
	defer notCreated(c, "mr", &err)
	a, err := regionAccess(op, m.access)
	if err != nil {
		return nil, err
	}
	fields := []Field{value("pd", m.pd.number)}
	r := engine.RegionAttr{Memory: memory, Start: m.addr, Addr: m.iova, Length: m.length, Access: a}
	switch {
	case m.mem != nil:
		if err := registrable(op, m.mem, m.addr, m.length, m.iova, m.access); err != nil {
			return nil, err
		}
		fields = append(fields, value("addr", m.addr))
		r.Prefer = c.freed.take(freedKind{m.pd, m.length, m.access})
	case m.access&(accessOnDemand|accessHugeTLB|uint32(ibv.MWBind)) != 0:
		return nil, failure.New(op, syscall.EINVAL, "access flags %#x: on-demand paging, huge pages and windows need the program's memory", m.access)
	}
	if m.eng, err = m.pd.eng.NewRegion(r); err != nil {
		return nil, err
	}
	m.ctx = c
	if err := enter(c, op, c.mrs, m.LKey()>>8, m); err != nil {
		m.eng.Close()
		return nil, err
	}
	c.trace(TraceObject, "mr", m.LKey(), "create", nil, append(fields, value("length", m.length), value("iova", m.iova), value("access", regionAccessNames(m.access)))...)
	return m, nil
}

// registrable checks a range that is to be registered. With on-demand paging only its numbers
// count; the whole address space is an implicit region then.
func registrable(op string, mem Memory, addr, length, iova uint64, access uint32) error {
	switch {
	case (addr^iova)&(pinPage-1) != 0:
		return failure.New(op, syscall.EINVAL, "memory at %#x with addresses from %#x on: both must have one offset in a page", addr, iova)
	case access&accessOnDemand == 0:
		if length == 0 && addr%pinPage == 0 {
			return failure.New(op, syscall.EINVAL, "0 bytes at %#x, the beginning of a page: there is no page to register", addr)
		}
		return reachable(op, mem, addr, max(length, 1), access&pinsForWriting != 0)
	case addr+length < addr:
		return failure.New(op, syscall.EINVAL, "%d bytes from %#x go beyond the last address", length, addr)
	case addr == 0 && length == math.MaxUint64 && iova != 0:
		return failure.New(op, syscall.EINVAL, "an implicit region with addresses from %#x on: they must be those of the program", iova)
	}
	return nil
}

// pinPage is the size of the pages that a kernel pins.
const pinPage = 4096

// pinsForWriting are the access flags for which a kernel pins memory that the program itself may
// write to.
const pinsForWriting = uint32(rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteAtomic | ibv.MWBind)

// reachable checks that a kernel would pin a range: all of it is memory of the program, which may
// read it or, if write is set, write to it. Otherwise the error is EFAULT.
func reachable(op string, mem Memory, addr, length uint64, write bool) error {
	if length == 0 {
		return nil
	}
	if addr+length < addr || addr+length > math.MaxUint64&^(pinPage-1) {
		return failure.New(op, syscall.EINVAL, "%d bytes from %#x go beyond the last address", length, addr)
	}
	if p, ok := mem.(Pinner); ok {
		if err := p.Pinnable(addr, length, write); err != nil {
			return &operr.Error{Op: op, Errno: failure.Errno(err, syscall.EFAULT), Reason: fmt.Sprintf("the range %#x+%d cannot be pinned", addr, length), Err: err}
		}
		return nil
	}
	var probe [1]byte
	for _, at := range []uint64{addr, addr + length - 1} {
		if err := mem.Read(at, probe[:]); err != nil {
			return &operr.Error{Op: op, Errno: syscall.EFAULT, Reason: "the range is not memory of the program", Err: err}
		}
	}
	return nil
}

// Advice of AdviseMR (enum ibv_advise_mr_advice).
const (
	AdvicePrefetch        = 0
	AdvicePrefetchWrite   = 1
	AdvicePrefetchNoFault = 2

	adviseFlush = 1 // IBV_ADVISE_MR_FLAG_FLUSH: wait for the end
)

// AdviseMR answers ibv_advise_mr on ranges of regions with on-demand paging. The pages are those
// of the program at all times, so a prefetch checks the ranges, as an adapter does, and, if it is
// waited for, that they are the program's memory.
func (c *Context) AdviseMR(pd *PD, advice, flags uint32, ranges []rdma.SGE) error {
	return c.refused("mr", 0, "advise", adviseMR(c, pd, advice, flags, ranges))
}

func adviseMR(c *Context, pd *PD, advice, flags uint32, ranges []rdma.SGE) error {
	const op = "advise on memory"
	switch {
	case advice > AdvicePrefetchNoFault:
		return failure.New(op, syscall.EOPNOTSUPP, "advice %d: must be 0 to %d", advice, AdvicePrefetchNoFault)
	case flags&^adviseFlush != 0:
		return failure.New(op, syscall.EINVAL, "flags %#x: must be of %#x", flags, adviseFlush)
	}
	for _, r := range ranges {
		m := lookup(c, c.mrs, r.LKey>>8)
		if m == nil || m.LKey() != r.LKey {
			return failure.New(op, syscall.ENOENT, "key %#x names no memory region", r.LKey)
		}
		m.mu.Lock()
		of, addr, length, iova, access := m.pd, m.addr, m.length, m.iova, m.access
		m.mu.Unlock()
		off := r.Addr - iova
		switch {
		case of != pd:
			return failure.New(op, syscall.EPERM, "region %#x is of another protection domain", r.LKey)
		case access&accessOnDemand == 0:
			return failure.New(op, syscall.EINVAL, "region %#x has no on-demand paging", r.LKey)
		case advice == AdvicePrefetchWrite && access&uint32(rdma.LocalWrite) == 0:
			return failure.New(op, syscall.EPERM, "region %#x may not be written to", r.LKey)
		case r.Addr < iova || off > length || uint64(r.Length) > length-off:
			return failure.New(op, syscall.EFAULT, "range %#x+%d lies outside of region %#x, which is %#x+%d", r.Addr, r.Length, r.LKey, iova, length)
		}
		if flags&adviseFlush != 0 && advice != AdvicePrefetchNoFault {
			if err := reachable(op, m.mem, addr+off, uint64(r.Length), advice == AdvicePrefetchWrite); err != nil {
				return err
			}
		}
	}
	return nil
}

// LKey returns the key for requests of this side.
func (m *MR) LKey() uint32 { return m.eng.Number() }

// RKey returns the key for requests of the peer.
func (m *MR) RKey() uint32 { return m.eng.Number() }

// Length returns the region's length in bytes.
func (m *MR) Length() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.length
}

// IOVA returns the first address of the region in requests.
func (m *MR) IOVA() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.iova
}

// PD returns the region's protection domain.
func (m *MR) PD() *PD {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pd
}

// The flags of Rereg (enum ibv_rereg_mr_flags).
const (
	ReregTranslation = 1 << 0
	ReregPD          = 1 << 1
	ReregAccess      = 1 << 2
)

// Rereg changes the attributes that flags (enum ibv_rereg_mr_flags) select. The keys
// stay.
func (m *MR) Rereg(flags uint32, pd *PD, addr, length, iova uint64, access uint32) error {
	err := m.rereg(flags, pd, addr, length, iova, access)
	return m.ctx.changed("mr", m.LKey(), "re-register", err, value("changes", flags), value("addr", addr), value("length", length), value("access", regionAccessNames(access)))
}

func (m *MR) rereg(flags uint32, pd *PD, addr, length, iova uint64, access uint32) error {
	const op = "re-register memory"
	var c engine.RegionChange
	if bad := flags &^ (ReregTranslation | ReregPD | ReregAccess); bad != 0 || flags == 0 {
		return failure.New(op, syscall.EINVAL, "flags %#x: must be of %#x", flags, ReregTranslation|ReregPD|ReregAccess)
	}
	if flags&ReregAccess != 0 {
		a, err := regionAccess(op, access)
		if err != nil {
			return err
		}
		c.Access = &a
	}
	if flags&ReregPD != 0 {
		c.PD = pd.eng
	}
	if m.mem == nil {
		return failure.New(op, syscall.EOPNOTSUPP, "region %#x is device memory, which cannot be registered again", m.LKey())
	}
	if flags&ReregTranslation != 0 {
		now := m.access
		if flags&ReregAccess != 0 {
			now = access
		}
		if err := registrable(op, m.mem, addr, length, iova, now); err != nil {
			return err
		}
		c.Memory = &engine.RegionAttr{Memory: programMemoryOf(m.mem), Start: addr, Addr: iova, Length: length}
	} else if flags&ReregAccess != 0 && access&pinsForWriting != 0 && m.access&pinsForWriting == 0 {
		// The pages were pinned for reading only.
		if err := registrable(op, m.mem, m.addr, m.length, m.iova, access); err != nil {
			return err
		}
	}
	if err := m.eng.Change(c); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if flags&ReregPD != 0 {
		m.pd = pd
	}
	if flags&ReregAccess != 0 {
		m.access = access
	}
	if flags&ReregTranslation != 0 {
		m.addr, m.length, m.iova = addr, length, iova
	}
	return nil
}

// Close takes the region away. When it has returned, nothing reaches the memory
// through it. EBUSY: a window is bound to it.
func (m *MR) Close() error {
	if err := m.eng.Close(); err != nil {
		return err
	}
	m.mu.Lock()
	closed := m.closed
	m.closed = true
	kind := freedKind{m.pd, m.length, m.access}
	m.mu.Unlock()
	if !closed {
		m.ctx.freed.put(kind, m.LKey())
		leave(m.ctx, m.ctx.mrs, m.LKey()>>8)
		m.ctx.trace(TraceObject, "mr", m.LKey(), "destroy", nil)
	}
	return nil
}

// MW is a memory window.
type MW struct {
	ctx *Context
	eng *engine.Window
}

// AllocMW makes a memory window of type 1 or 2.
func (c *Context) AllocMW(pd *PD, typ int) (_ *MW, err error) {
	defer notCreated(c, "mw", &err)
	e, err := pd.eng.NewWindow(engine.WindowType(typ))
	if err != nil {
		return nil, err
	}
	w := &MW{ctx: c, eng: e}
	if err := enter(c, "allocate a memory window", c.mws, w.RKey()>>8, w); err != nil {
		e.Close()
		return nil, err
	}
	c.trace(TraceObject, "mw", w.RKey(), "create", nil, value("window_type", typ))
	return w, nil
}

// RKey returns the window's key.
func (w *MW) RKey() uint32 { return w.eng.Number() }

// Close frees the window.
func (w *MW) Close() error {
	if err := w.eng.Close(); err != nil {
		return err
	}
	leave(w.ctx, w.ctx.mws, w.RKey()>>8)
	w.ctx.trace(TraceObject, "mw", w.RKey(), "destroy", nil)
	return nil
}
