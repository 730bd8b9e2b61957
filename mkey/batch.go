package mkey

import (
	"cmp"
	"slices"
	"unsafe"

	"github.com/softmkey/softmkey/internal/keydoor"
)

// maxVecs is the largest number of pieces in one call of a Space. A step of 32 KiB in
// pieces of 64 bytes is one call; layouts of smaller pieces take more.
const maxVecs = 512

// batch collects the pieces of memory that a step copies with one call of their
// Space.
type batch struct {
	write bool
	space keydoor.Space
	vecs  []keydoor.Vec
	order []keydoor.Vec // buffer for the result of ordered
}

// add appends a piece. A piece that continues the last one, in memory and in its buffer,
// becomes a part of it.
func (b *batch) add(s keydoor.Space, addr uint64, buf []byte) error {
	if n := len(b.vecs); n > 0 {
		last := &b.vecs[n-1]
		if s == b.space && last.Addr+uint64(len(last.Buf)) == addr && follows(last.Buf, buf) {
			last.Buf = last.Buf[:len(last.Buf)+len(buf)]
			return nil
		}
		if s != b.space || n == maxVecs {
			if err := b.flush(); err != nil {
				return err
			}
		}
	}
	b.space = s
	b.vecs = append(b.vecs, keydoor.Vec{Addr: addr, Buf: buf})
	return nil
}

// follows reports whether b begins where a ends, in one array.
func follows(a, b []byte) bool {
	return cap(a) >= len(a)+len(b) &&
		uintptr(unsafe.Pointer(unsafe.SliceData(a)))+uintptr(len(a)) == uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}

// flush copies the pieces.
func (b *batch) flush() (err error) {
	if len(b.vecs) == 0 {
		return nil
	}
	if b.write {
		err = b.space.WriteV(b.ordered())
	} else {
		err = b.space.ReadV(b.ordered())
	}
	b.drop()
	return err
}

// ordered returns the pieces in rising order of their addresses. The blocks of a pattern
// with separate fields then follow one another, and a space can copy them as one range.
// Pieces that overlap are written in the order of the layout, so that the last one wins.
func (b *batch) ordered() []keydoor.Vec {
	if len(b.vecs) < 3 || rising(b.vecs) {
		return b.vecs
	}
	b.order = append(b.order[:0], b.vecs...)
	slices.SortFunc(b.order, func(x, y keydoor.Vec) int { return cmp.Compare(x.Addr, y.Addr) })
	if b.write && !rising(b.order) {
		return b.vecs
	}
	return b.order
}

// rising reports whether each piece begins at the end of the previous one or after it.
func rising(v []keydoor.Vec) bool {
	for i := 1; i < len(v); i++ {
		if v[i].Addr < v[i-1].Addr+uint64(len(v[i-1].Buf)) {
			return false
		}
	}
	return true
}

// drop removes the pieces without copying them.
func (b *batch) drop() {
	clear(b.vecs)
	clear(b.order)
	b.vecs, b.order = b.vecs[:0], b.order[:0]
	b.space = nil
}
