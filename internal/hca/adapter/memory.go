package adapter

import (
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/operr"
)

// Vec is a piece of the program's memory and the bytes that are read from it or
// written to it.
type Vec = mkey.Vec

// Memory is the memory of a context's program, a [mkey.Space]. Its methods are safe for
// concurrent use; errors are an errno's, EFAULT for memory that is not there. Values are
// compared: the type is a pointer.
type Memory interface {
	Read(addr uint64, dst []byte) error  // all of dst, or an error
	Write(addr uint64, src []byte) error // all of src, or an error
	ReadV(vecs []Vec) error              // in one batch
	WriteV(vecs []Vec) error             // in one batch, in order

	// Map returns a view of n bytes that is shared with the program, or nil if the
	// range can only be copied. It is asked when a queue is created; the view is used
	// until the queue is destroyed.
	Map(addr uint64, n int) []byte
}

// buffer is a range of the program's memory that holds a queue or doorbell record.
type buffer struct {
	mem  Memory
	addr uint64
	size int
	view []byte // nil: copied
}

// open looks whether the range can be shared. A range that cannot be read is refused
// here already.
func (b *buffer) open(op, what string, mem Memory, addr uint64, size int) error {
	*b = buffer{mem: mem, addr: addr, size: size}
	if size == 0 {
		return nil
	}
	if addr+uint64(size) < addr {
		return operr.New(op, syscall.EFAULT, "%s at %#x: %d bytes go beyond the last address", what, addr, size)
	}
	if view := mem.Map(addr, size); len(view) == size && uintptr(unsafe.Pointer(unsafe.SliceData(view)))%8 == 0 {
		b.view = view
		return nil
	}
	var probe [4]byte
	for _, at := range []uint64{addr, addr + uint64(size) - 4} {
		if err := mem.Read(at, probe[:]); err != nil {
			return &operr.Error{Op: op, Errno: syscall.EFAULT, Reason: what + " cannot be read", Err: err}
		}
	}
	return nil
}

// read copies from an offset.
func (b *buffer) read(off int, dst []byte) error {
	if b.view != nil {
		copy(dst, b.view[off:])
		return nil
	}
	return b.mem.Read(b.addr+uint64(off), dst)
}

// load32 reads an aligned big-endian number in one piece.
func (b *buffer) load32(off int) (uint32, error) {
	if b.view != nil {
		return swap32(atomic.LoadUint32((*uint32)(unsafe.Pointer(&b.view[off])))), nil
	}
	var w [4]byte
	err := b.mem.Read(b.addr+uint64(off), w[:])
	return uint32(w[0])<<24 | uint32(w[1])<<16 | uint32(w[2])<<8 | uint32(w[3]), err
}

// publish writes src, whose last 4 bytes become visible after the others: they hold the
// owner bit of a completion.
func (b *buffer) publish(off int, src []byte) error {
	n := len(src) - 4
	if b.view != nil {
		copy(b.view[off:], src[:n])
		atomic.StoreUint32((*uint32)(unsafe.Pointer(&b.view[off+n])), *(*uint32)(unsafe.Pointer(&src[n])))
		return nil
	}
	at := b.addr + uint64(off)
	vecs := [2]Vec{{Addr: at, Buf: src[:n]}, {Addr: at + uint64(n), Buf: src[n:]}}
	return b.mem.WriteV(vecs[:])
}

// swap32 turns a big-endian number that was loaded as a native one around.
func swap32(v uint32) uint32 {
	b := (*[4]byte)(unsafe.Pointer(&v))
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}
