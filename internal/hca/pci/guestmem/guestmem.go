package guestmem

import (
	"cmp"
	"encoding/binary"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/keydoor"
)

// MaxRanges is the number of ranges that a map takes. A virtual machine monitor has some tens of
// them, or one for each page that the guest's IOMMU maps for the adapter. Each range may be a
// mapping (mmap) of this process, of which Linux allows 65,530 (vm.max_map_count).
const MaxRanges = 1 << 15

// Range is a range of guest-physical addresses.
type Range struct {
	Addr, Size uint64

	// View is the memory, of Size bytes, or nil for addresses that the device cannot
	// reach, for example those of another device's registers.
	View     []byte
	ReadOnly bool

	// Release is called once, when nothing touches View any more. It may be nil.
	Release func()
}

// Map is the set of ranges. The zero value is empty. Its methods are safe for concurrent
// use.
type Map struct {
	mu     sync.RWMutex // held for reading during copies
	ranges []Range      // sorted by address; they do not overlap
}

// Add adds a range. EINVAL: it is empty or wraps around; EEXIST: it overlaps another one;
// ENOSPC: there are MaxRanges already. Release is not called after an error.
func (m *Map) Add(r Range) error {
	const op = "map guest memory"
	if r.Size == 0 || r.Addr+r.Size-1 < r.Addr || r.View != nil && uint64(len(r.View)) != r.Size {
		return failure.New(op, syscall.EINVAL, "%#x bytes at %#x with a view of %#x", r.Size, r.Addr, len(r.View))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.ranges) >= MaxRanges {
		return failure.New(op, syscall.ENOSPC, "%#x bytes at %#x: there are %d ranges already", r.Size, r.Addr, MaxRanges)
	}
	i := m.after(r.Addr)
	if i > 0 && m.ranges[i-1].last() >= r.Addr {
		return failure.New(op, syscall.EEXIST, "%#x bytes at %#x overlap %#x bytes at %#x", r.Size, r.Addr, m.ranges[i-1].Size, m.ranges[i-1].Addr)
	}
	if i < len(m.ranges) && m.ranges[i].Addr <= r.last() {
		return failure.New(op, syscall.EEXIST, "%#x bytes at %#x overlap %#x bytes at %#x", r.Size, r.Addr, m.ranges[i].Size, m.ranges[i].Addr)
	}
	m.ranges = slices.Insert(m.ranges, i, r)
	return nil
}

func (r *Range) last() uint64 { return r.Addr + r.Size - 1 }

// after returns the index of the first range that begins after addr. m.mu is held.
func (m *Map) after(addr uint64) int {
	i, found := slices.BinarySearchFunc(m.ranges, addr, func(r Range, addr uint64) int { return cmp.Compare(r.Addr, addr) })
	if found {
		i++
	}
	return i
}

// Remove takes the ranges away that lie in size bytes from addr, and returns how many bytes
// they have. After its return nothing touches them. EINVAL: a range lies there in part
// only; then nothing is taken away.
func (m *Map) Remove(addr, size uint64) (uint64, error) {
	return m.remove(addr, addr+size-1, size != 0 && addr+size-1 >= addr)
}

// Clear takes all ranges away.
func (m *Map) Clear() { m.remove(0, ^uint64(0), true) }

func (m *Map) remove(first, last uint64, valid bool) (uint64, error) {
	const op = "unmap guest memory"
	if !valid {
		return 0, failure.New(op, syscall.EINVAL, "from %#x to %#x: no range", first, last)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	i := m.after(first)
	if i > 0 && m.ranges[i-1].last() >= first {
		i--
	}
	j := i
	var bytes uint64
	for ; j < len(m.ranges) && m.ranges[j].Addr <= last; j++ {
		r := &m.ranges[j]
		if r.Addr < first || r.last() > last {
			return 0, failure.New(op, syscall.EINVAL, "from %#x to %#x: %#x bytes at %#x lie there in part", first, last, r.Size, r.Addr)
		}
		bytes += r.Size
	}
	for k := i; k < j; k++ {
		if m.ranges[k].Release != nil {
			m.ranges[k].Release()
		}
	}
	m.ranges = slices.Delete(m.ranges, i, j)
	return bytes, nil
}

// view returns the memory from addr on, up to n bytes of it in one range. m.mu is held.
func (m *Map) view(addr, n uint64, write bool) ([]byte, error) {
	i := m.after(addr) - 1
	if i < 0 || m.ranges[i].last() < addr {
		return nil, failure.New("guest memory", syscall.EFAULT, "address %#x is not mapped", addr)
	}
	r := &m.ranges[i]
	switch {
	case r.View == nil:
		return nil, failure.New("guest memory", syscall.EFAULT, "address %#x cannot be reached by the device", addr)
	case write && r.ReadOnly:
		return nil, failure.New("guest memory", syscall.EFAULT, "address %#x may only be read", addr)
	}
	off := addr - r.Addr
	return r.View[off : off+min(n, r.Size-off)], nil
}

// Read fills dst from addr, or returns EFAULT.
func (m *Map) Read(addr uint64, dst []byte) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.copy(addr, dst, false)
}

// Write copies src to addr, or returns EFAULT. A piece of 2, 4 or 8 bytes with an
// aligned address is written at once.
func (m *Map) Write(addr uint64, src []byte) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.copy(addr, src, true)
}

// ReadV fills each piece's buffer from its address.
func (m *Map) ReadV(vecs []keydoor.Vec) error { return m.copyV(vecs, false) }

// WriteV copies each piece's buffer to its address, in order.
func (m *Map) WriteV(vecs []keydoor.Vec) error { return m.copyV(vecs, true) }

func (m *Map) copyV(vecs []keydoor.Vec, write bool) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for i := range vecs {
		if err := m.copy(vecs[i].Addr, vecs[i].Buf, write); err != nil {
			return err
		}
	}
	return nil
}

// Map returns nil: the guest's memory can only be copied, because its monitor may take it
// away at any time.
func (m *Map) Map(addr uint64, n int) []byte { return nil }

// copy copies between b and the memory at addr, which may lie in several ranges. m.mu is
// held for reading.
//
// The memory is a file of the monitor, which can truncate it. An access beyond the file's end
// raises SIGBUS; here it is a panic, and then an error.
func (m *Map) copy(addr uint64, b []byte, write bool) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			err = faultError(fault, addr)
		}
	}()
	for len(b) > 0 {
		view, err := m.view(addr, uint64(len(b)), write)
		if err != nil {
			return err
		}
		if write {
			store(view, b[:len(view)])
		} else {
			load(b[:len(view)], view)
		}
		b = b[len(view):]
		if addr += uint64(len(view)); addr == 0 && len(b) > 0 {
			return failure.New("guest memory", syscall.EFAULT, "%d bytes beyond the last address", len(b))
		}
	}
	return nil
}

// faultError returns the error of a copy at addr that has panicked. It panics again unless the
// cause is an access to memory.
func faultError(cause any, addr uint64) error {
	if _, ok := cause.(interface {
		runtime.Error
		Addr() uintptr
	}); !ok {
		panic(cause)
	}
	return failure.New("guest memory", syscall.EFAULT, "the file of the memory at address %#x has been truncated", addr)
}

// store copies src to the memory. Aligned words are stored at once and after all that was
// stored before: the owner bits of queue entries and doorbell records are words, and the indexes of virtio's queues
// half-words. copy moves the bytes of a half-word one by one, so that the other side may see one of each value.
func store(view, src []byte) {
	at := unsafe.Pointer(unsafe.SliceData(view))
	switch {
	case len(src) == 2 && uintptr(at)%2 == 0:
		*(*uint16)(at) = binary.NativeEndian.Uint16(src)
	case len(src) == 4 && uintptr(at)%4 == 0:
		atomic.StoreUint32((*uint32)(at), binary.NativeEndian.Uint32(src))
	case len(src) == 8 && uintptr(at)%8 == 0:
		atomic.StoreUint64((*uint64)(at), binary.NativeEndian.Uint64(src))
	default:
		copy(view, src)
	}
}

// load is the counterpart of store.
func load(dst, view []byte) {
	at := unsafe.Pointer(unsafe.SliceData(view))
	switch {
	case len(dst) == 2 && uintptr(at)%2 == 0:
		binary.NativeEndian.PutUint16(dst, *(*uint16)(at))
	case len(dst) == 4 && uintptr(at)%4 == 0:
		binary.NativeEndian.PutUint32(dst, atomic.LoadUint32((*uint32)(at)))
	case len(dst) == 8 && uintptr(at)%8 == 0:
		binary.NativeEndian.PutUint64(dst, atomic.LoadUint64((*uint64)(at)))
	default:
		copy(dst, view)
	}
}
