package adapter

import (
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/rdma"
)

// pageTable is the memory of a key of mode MTT: pages of a guest that need not follow one
// another. It is a keydoor.Copied and its own keydoor.Space. Its addresses begin at 0 with the
// first page.
type pageTable struct {
	mem   Memory
	shift uint8
	pages []uint64
}

// Reach implements mkey.Memory.
func (t *pageTable) Reach(addr, n uint64, need rdma.Access) error {
	if end := addr + n; end < addr || end > uint64(len(t.pages))<<t.shift {
		return failure.New("page table", syscall.EFAULT, "range %#x+%d lies outside of %d pages of 2^%d bytes", addr, n, len(t.pages), t.shift)
	}
	return nil
}

// At implements mkey.Memory.
func (t *pageTable) At(addr, n uint64, need rdma.Access) ([]byte, error) {
	return programMemory{}.At(addr, n, need)
}

// Space implements keydoor.Copied.
func (t *pageTable) Space(addr, n uint64, need rdma.Access) (keydoor.Space, uint64, error) {
	return t, addr, t.Reach(addr, n, need)
}

// ReadV implements keydoor.Space.
func (t *pageTable) ReadV(vecs []keydoor.Vec) error { return t.each(vecs, t.mem.ReadV) }

// WriteV implements keydoor.Space.
func (t *pageTable) WriteV(vecs []keydoor.Vec) error { return t.each(vecs, t.mem.WriteV) }

// mostVecs is the number of pieces in one call of a guest's memory.
const mostVecs = 64

var vecRoom = sync.Pool{New: func() any { return new([mostVecs]Vec) }}

// each cuts the pieces at the ends of pages and passes them on, in order. Pages that follow
// one another in memory are not cut.
func (t *pageTable) each(vecs []Vec, do func([]Vec) error) error {
	room := vecRoom.Get().(*[mostVecs]Vec)
	defer func() {
		clear(room[:])
		vecRoom.Put(room)
	}()
	out := room[:0]
	for i := range vecs {
		at, b := vecs[i].Addr, vecs[i].Buf
		if err := t.Reach(at, uint64(len(b)), 0); err != nil {
			return err
		}
		for len(b) > 0 {
			index, within := at>>t.shift, at&(1<<t.shift-1)
			n := uint64(1)<<t.shift - within
			for next := index + 1; n < uint64(len(b)) && t.pages[next] == t.pages[next-1]+1<<t.shift; next++ {
				n += 1 << t.shift
			}
			n = min(n, uint64(len(b)))
			if len(out) == mostVecs {
				if err := do(out); err != nil {
					return err
				}
				out = room[:0]
			}
			out = append(out, Vec{Addr: t.pages[index] + within, Buf: b[:n]})
			at, b = at+n, b[n:]
		}
	}
	if len(out) == 0 {
		return nil
	}
	return do(out)
}
