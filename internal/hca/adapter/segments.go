package adapter

import (
	"sort"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/operr"
)

// Segment is a piece of memory: Len bytes from Addr on.
type Segment struct {
	Mem  Memory
	Addr uint64
	Len  uint64
}

// Segments is memory in pieces, in order: where a queue, a doorbell record or a list of
// pages lies. A program's queue is one range of addresses ([Range]), a queue in a umem
// begins at an offset of it ([Segments.From]), and a guest's queue is a list of pages
// ([Pages]).
type Segments []Segment

// Range returns the memory from an address on, up to the last address.
func Range(mem Memory, addr uint64) Segments { return Segments{{mem, addr, ^addr}} }

// Pages returns pages of 1<<shift bytes at the given addresses, in order. Pages that follow
// one another in memory become one segment.
func Pages(mem Memory, shift uint, addrs []uint64) Segments {
	var s Segments
	for _, a := range addrs {
		if n := len(s); n > 0 && s[n-1].Addr+s[n-1].Len == a {
			s[n-1].Len += 1 << shift
			continue
		}
		s = append(s, Segment{mem, a, 1 << shift})
	}
	return s
}

// Len returns the number of bytes.
func (s Segments) Len() (n uint64) {
	for i := range s {
		n += s[i].Len
	}
	return n
}

// From returns the memory from an offset on. It is empty if the offset lies at the end or
// beyond it.
func (s Segments) From(off uint64) Segments {
	for i := range s {
		if off < s[i].Len {
			rest := append(Segments(nil), s[i:]...)
			rest[0].Addr, rest[0].Len = rest[0].Addr+off, rest[0].Len-off
			return rest
		}
		off -= s[i].Len
	}
	return nil
}

// buffer is the memory of a queue, a doorbell record or a list, which is read and written by
// offsets.
type buffer struct {
	pieces []bufferPiece
	size   int
}

// bufferPiece is the part of a buffer that lies in one segment.
type bufferPiece struct {
	mem  Memory
	addr uint64
	off  int // in the buffer
	size int
	view []byte // nil: copied
}

// open takes the first size bytes of s, and looks which of them can be shared. Memory that
// cannot be read is refused here already.
func (b *buffer) open(op, what string, s Segments, size int) error {
	*b = buffer{size: size}
	left := uint64(size)
	for i := 0; left > 0; i++ {
		if i == len(s) {
			return failure.New(op, syscall.EFAULT, "%s has %d bytes, its memory only %d", what, size, size-int(left))
		}
		g := &s[i]
		n := min(g.Len, left)
		p := bufferPiece{mem: g.Mem, addr: g.Addr, off: size - int(left), size: int(n)}
		if err := p.open(op, what); err != nil {
			return err
		}
		b.pieces = append(b.pieces, p)
		left -= n
	}
	return nil
}

// openRecord is open for a doorbell record. It lies in one segment, since both of its words
// are read at once.
func (b *buffer) openRecord(op string, s Segments) error {
	const what = "the doorbell record"
	if err := b.open(op, what, s, prm.DoorbellSize); err != nil {
		return err
	}
	if len(b.pieces) != 1 {
		return failure.New(op, syscall.EINVAL, "%s lies in %d pieces of memory: must be in one", what, len(b.pieces))
	}
	return nil
}

func (p *bufferPiece) open(op, what string) error {
	if view := p.mem.Map(p.addr, p.size); len(view) == p.size && uintptr(unsafe.Pointer(unsafe.SliceData(view)))%8 == 0 {
		p.view = view
		return nil
	}
	var probe [4]byte
	n := min(len(probe), p.size)
	for _, at := range []uint64{p.addr, p.addr + uint64(p.size-n)} {
		if err := p.mem.Read(at, probe[:n]); err != nil {
			return &operr.Error{Op: op, Errno: syscall.EFAULT, Reason: what + " cannot be read", Err: err}
		}
	}
	return nil
}

// shared reports whether the whole buffer is shared with the program.
func (b *buffer) shared() bool {
	for i := range b.pieces {
		if b.pieces[i].view == nil {
			return false
		}
	}
	return len(b.pieces) > 0
}

// piece returns the piece that holds an offset.
func (b *buffer) piece(off int) *bufferPiece {
	if len(b.pieces) == 1 {
		return &b.pieces[0]
	}
	i := sort.Search(len(b.pieces), func(i int) bool { return b.pieces[i].off > off })
	return &b.pieces[i-1]
}

// read copies from an offset.
func (b *buffer) read(off int, dst []byte) error { return b.copy(off, dst, false) }

// write copies to an offset.
func (b *buffer) write(off int, src []byte) error { return b.copy(off, src, true) }

func (b *buffer) copy(off int, data []byte, write bool) error {
	for len(data) > 0 {
		p := b.piece(off)
		within := off - p.off
		n := min(len(data), p.size-within)
		var err error
		switch {
		case p.view != nil && write:
			copy(p.view[within:], data[:n])
		case p.view != nil:
			copy(data[:n], p.view[within:])
		case write:
			err = p.mem.Write(p.addr+uint64(within), data[:n])
		default:
			err = p.mem.Read(p.addr+uint64(within), data[:n])
		}
		if err != nil {
			return err
		}
		data, off = data[n:], off+n
	}
	return nil
}

// load32 reads an aligned big-endian number in one piece.
func (b *buffer) load32(off int) (uint32, error) {
	if b.size == 0 {
		return 0, nil // a QP without queues has no record
	}
	if p := b.piece(off); p.view != nil && off-p.off+4 <= p.size {
		return swap32(atomic.LoadUint32((*uint32)(unsafe.Pointer(&p.view[off-p.off])))), nil
	}
	var w [4]byte
	err := b.read(off, w[:])
	return uint32(w[0])<<24 | uint32(w[1])<<16 | uint32(w[2])<<8 | uint32(w[3]), err
}

// publish writes src, whose last 4 bytes become visible after the others: they hold the
// owner bit of a completion.
func (b *buffer) publish(off int, src []byte) error {
	n := len(src) - 4
	p := b.piece(off)
	within := off - p.off
	switch {
	case within+len(src) > p.size:
		if err := b.write(off, src[:n]); err != nil {
			return err
		}
		return b.publishLast(off+n, src[n:])
	case p.view != nil:
		copy(p.view[within:], src[:n])
		return b.publishLast(off+n, src[n:])
	}
	at := p.addr + uint64(within)
	vecs := [2]Vec{{Addr: at, Buf: src[:n]}, {Addr: at + uint64(n), Buf: src[n:]}}
	return p.mem.WriteV(vecs[:])
}

// publishLast writes the 4 bytes that publish writes last.
func (b *buffer) publishLast(off int, last []byte) error {
	if p := b.piece(off); p.view != nil && off-p.off+4 <= p.size {
		atomic.StoreUint32((*uint32)(unsafe.Pointer(&p.view[off-p.off])), *(*uint32)(unsafe.Pointer(&last[0])))
		return nil
	}
	return b.write(off, last)
}

// swap32 turns a big-endian number that was loaded as a native one around.
func swap32(v uint32) uint32 {
	b := (*[4]byte)(unsafe.Pointer(&v))
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}
