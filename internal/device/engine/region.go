package engine

import (
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
)

// RegionAttr describes a memory region.
type RegionAttr struct {
	// Memory holds the bytes of the region. A mkey.Bytes is used in place at
	// full speed. Other memory is used in place, too, except for bytes for
	// which a keydoor.Copied names a Space.
	Memory mkey.Memory
	Start  uint64 // address of the region's first byte in Memory
	Addr   uint64 // address of the region's first byte in requests
	Length uint64
	Access rdma.Access

	// Prefer is the number that a new region gets if its index is free. Otherwise, and with
	// the index 0, the index is a random one. The tag, the low byte, is the region's in any
	// case.
	Prefer uint32
}

// Region is a memory region: memory that requests name by its number. The
// peer's requests need the corresponding rights.
type Region struct {
	number uint32
	state  atomic.Pointer[regionState] // nil: closed

	changing sync.Mutex // serialises Change and Close
	users    Users      // windows that are bound to the region
}

// regionState holds the attributes of a region that Change can change. It is
// immutable.
type regionState struct {
	RegionAttr
	pd     *PD
	buf    []byte         // the memory, if it is a slice
	other  mkey.Memory    // the memory, if it is not a slice
	copied keydoor.Copied // other, if some of it may have to be copied
}

const accessAll = rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic | ibv.MWBind | rdma.ZeroBased

// newState checks the attributes of a region.
func (pd *PD) newState(op string, a RegionAttr) (*regionState, error) {
	if bad := a.Access &^ accessAll; bad != 0 {
		return nil, failure.New(op, syscall.EINVAL, "access flags %#x: %#x are not known", uint32(a.Access), uint32(bad))
	}
	if a.Access&(rdma.RemoteWrite|rdma.RemoteAtomic) != 0 && a.Access&rdma.LocalWrite == 0 {
		return nil, failure.New(op, syscall.EINVAL, "access flags %#x: remote writing and atomics need LocalWrite", uint32(a.Access))
	}
	if a.Addr+a.Length < a.Addr || a.Start+a.Length < a.Start {
		return nil, failure.New(op, syscall.EINVAL, "%d bytes from %#x go beyond the last address", a.Length, max(a.Addr, a.Start))
	}
	s := &regionState{RegionAttr: a, pd: pd}
	switch m := a.Memory.(type) {
	case mkey.Bytes:
		if err := m.Reach(a.Start, a.Length, 0); err != nil {
			return nil, err
		}
		s.buf = m[a.Start:][:a.Length:a.Length]
	case nil:
		return nil, failure.New(op, syscall.EINVAL, "no memory")
	default:
		if err := m.Reach(a.Start, a.Length, below(a.Access)); err != nil {
			return nil, err
		}
		s.other = m
		s.copied, _ = m.(keydoor.Copied)
	}
	return s, nil
}

// below returns the rights that the memory of a region must grant for an access that needs
// need from the region. Remote rights are the region's own.
func below(need rdma.Access) rdma.Access {
	if need&(rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteAtomic) != 0 {
		return rdma.LocalWrite
	}
	return 0
}

// NewRegion registers memory. Remote writing and atomics need LocalWrite, too
// (ibv_reg_mr(3)).
func (pd *PD) NewRegion(a RegionAttr) (*Region, error) {
	const op = "register memory"
	s, err := pd.newState(op, a)
	if err != nil {
		return nil, err
	}
	if err := pd.users.Enter(op, "MR"); err != nil {
		return nil, err
	}
	r := &Region{}
	err = pd.dev.keys.add(keyEntry{region: r}, a.Prefer>>8, func(number uint32) error {
		r.number = number | a.Prefer&0xff
		r.state.Store(s)
		return nil
	})
	if err != nil {
		pd.users.Leave("MR")
		return nil, err
	}
	return r, nil
}

// RegionChange holds the attributes that [Region.Change] sets. A nil field leaves its
// attribute unchanged. Memory.Access is ignored.
type RegionChange struct {
	PD     *PD
	Memory *RegionAttr
	Access *rdma.Access
}

// Change changes the region (ibv_rereg_mr(3)). The number does not change. When
// Change returns, no request uses the memory or the rights that the region had
// before. Change returns EBUSY while a window is bound to the region.
func (r *Region) Change(c RegionChange) error {
	const op = "re-register memory"
	r.changing.Lock()
	defer r.changing.Unlock()
	s := r.state.Load()
	if s == nil {
		return failure.New(op, syscall.EINVAL, "region %#x was closed", r.number)
	}
	a, pd := s.RegionAttr, s.pd
	if c.Memory != nil {
		a = *c.Memory
		a.Access = s.Access
	}
	if c.Access != nil {
		a.Access = *c.Access
	}
	if c.PD != nil {
		if c.PD.dev != pd.dev {
			return failure.New(op, syscall.EINVAL, "a PD of another device")
		}
		pd = c.PD
	}
	if err := r.users.Idle(op); err != nil {
		return err
	}
	next, err := pd.newState(op, a)
	if err != nil {
		return err
	}
	if pd != s.pd {
		if err := pd.users.Enter(op, "MR"); err != nil {
			return err
		}
		defer s.pd.users.Leave("MR")
	}
	r.state.Store(next)
	s.pd.quiesce()
	return nil
}

// Region returns the region with that number, whatever its protection domain is, or nil.
func (d *Device) Region(number uint32) *Region {
	if e, ok := d.keys.Get(number >> 8); ok && e.region != nil && e.region.number == number {
		return e.region
	}
	return nil
}

// Number returns the region's number, which is its lkey and its rkey.
func (r *Region) Number() uint32 { return r.number }

// Attr returns the attributes of the region, the zero value if it is closed.
func (r *Region) Attr() RegionAttr {
	if s := r.state.Load(); s != nil {
		return s.RegionAttr
	}
	return RegionAttr{}
}

// Close closes the region. When Close returns, no request uses the memory
// through the region. A request that still names the region fails. Close
// returns EBUSY while a window is bound to the region.
func (r *Region) Close() error {
	r.changing.Lock()
	defer r.changing.Unlock()
	first, err := r.users.Close("close the region", nil)
	if !first {
		return err
	}
	s := r.state.Swap(nil)
	s.pd.dev.keys.Remove(r.number >> 8)
	s.pd.quiesce()
	s.pd.users.Leave("MR")
	return nil
}

// reach returns the state of the region if n bytes from addr may be accessed.
func (r *Region) reach(addr, n uint64, need rdma.Access) (*regionState, error) {
	s := r.state.Load()
	if s == nil {
		return nil, failure.New("access a region", syscall.EFAULT, "region %#x was closed", r.number)
	}
	off := addr - s.Addr
	switch {
	case need&^s.Access != 0:
		return nil, failure.New("access a region", syscall.EACCES, "region %#x grants %v, and %v is needed", r.number, s.Access, need)
	case addr < s.Addr || off > s.Length || n > s.Length-off:
		return nil, failure.New("access a region", syscall.EFAULT, "range %#x+%d lies outside of region %#x, which is %#x+%d", addr, n, r.number, s.Addr, s.Length)
	}
	return s, nil
}

// isSlice reports whether the memory of the region is a slice.
func (r *Region) isSlice() bool {
	s := r.state.Load()
	return s == nil || s.other == nil
}

// Space implements keydoor.Copied.
func (r *Region) Space(addr, n uint64, need rdma.Access) (keydoor.Space, uint64, error) {
	s, err := r.reach(addr, n, need)
	if err != nil || s.copied == nil {
		return nil, 0, err
	}
	return s.copied.Space(s.Start+addr-s.Addr, n, below(need))
}

// Reach implements mkey.Memory.
func (r *Region) Reach(addr, n uint64, need rdma.Access) error {
	s, err := r.reach(addr, n, need)
	if err != nil || s.other == nil {
		return err
	}
	return s.other.Reach(s.Start+addr-s.Addr, n, below(need))
}

// At implements mkey.Memory.
func (r *Region) At(addr, n uint64, need rdma.Access) ([]byte, error) {
	s, err := r.reach(addr, n, need)
	if err != nil {
		return nil, err
	}
	off := addr - s.Addr
	if s.other == nil {
		return s.buf[off : off+n], nil
	}
	b, err := s.other.At(s.Start+off, n, below(need))
	if err == nil && (len(b) == 0 || uint64(len(b)) > n) {
		return nil, failure.New("access a region", syscall.EFAULT, "the memory of region %#x gave %d bytes at %#x where 1 to %d were asked for", r.number, len(b), addr, n)
	}
	return b, err
}

// inPlace returns n bytes from addr of a region that is a slice.
func (r *Region) inPlace(addr, n uint64, need rdma.Access) ([]byte, error) {
	s, err := r.reach(addr, n, need)
	if err != nil {
		return nil, err
	}
	if s.other != nil {
		return nil, failure.New("access a region", syscall.EFAULT, "region %#x was re-registered, and its memory is not a slice now", r.number)
	}
	off := addr - s.Addr
	return s.buf[off : off+n], nil
}

// view is inPlace without an error: it returns nil if there is no slice. The
// transport calls it for every packet, and formatting an error takes as long as
// copying the packet.
func (r *Region) view(addr, n uint64, need rdma.Access) []byte {
	if !r.isSlice() {
		return nil
	}
	b, _ := r.inPlace(addr, n, need)
	return b
}

// atomic executes an atomic operation and returns the old value.
func (r *Region) atomic(a roce.Atomic) (old uint64, err error) {
	space, at, err := r.Space(a.VA, uint64(a.Size), rdma.RemoteAtomic)
	if err != nil {
		return 0, err
	}
	if space != nil {
		return keydoor.AtomicCopied(space, at, a.Size, a.Next)
	}
	b, err := r.At(a.VA, uint64(a.Size), rdma.RemoteAtomic)
	if err != nil {
		return 0, err
	}
	if len(b) != a.Size {
		return 0, failure.New("access a region", syscall.EFAULT, "the %d bytes at %#x of region %#x lie in two pieces of memory", a.Size, a.VA, r.number)
	}
	old, _ = keydoor.ChangeWord(b, a.Next)
	return old, nil
}
