package crc

import (
	"github.com/softmkey/softmkey/internal/base/cpu"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"testing"

	"golang.org/x/sys/unix"
)

// guarded is memory between two pages without access: an access one byte outside ends the
// test.
type guarded []byte

func newGuarded(t *testing.T, size int) guarded {
	t.Helper()
	page := unix.Getpagesize()
	whole := (size + page - 1) / page * page
	b, err := unix.Mmap(-1, 0, whole+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	fatal.If(t, err)
	t.Cleanup(func() {
		if err := unix.Munmap(b); err != nil {
			t.Error(err)
		}
	})
	for _, edge := range [][]byte{b[:page], b[page+whole:]} {
		fatal.If(t, unix.Mprotect(edge, unix.PROT_NONE))
	}
	return guarded(b[page : page+whole])
}

// head and tail return n bytes at either edge.
func (g guarded) head(n int) []byte { return g[:n:n] }
func (g guarded) tail(n int) []byte { return g[len(g)-n:] }

// Source, destination and fields end or begin at unmapped pages, for every tail length
// and several counts.
func TestGuardPages(t *testing.T) {
	const most = 20 * 4200
	src, dst, fields := newGuarded(t, most), newGuarded(t, most), newGuarded(t, 65*8)
	eachTier(t, func(t *testing.T, tier cpu.Tier) {
		r := newRand(t, 4)
		for kind := range kinds {
			for size := 8; size <= 4160; size += 8 {
				if size > 700 && size < 4000 && size%512 != 0 {
					continue
				}
				p := newPlan(tier, kind, size, false)
				counts := []int{1, 3, 4, 5, 8, 9, 17}
				for _, n := range counts {
					for _, edge := range []func(guarded, int) []byte{guarded.head, guarded.tail} {
						j := Job{
							Src: edge(src, n*size), SrcStride: size,
							Fields: edge(fields, n*kind.FieldSize()), FieldStride: kind.FieldSize(),
						}
						if r.IntN(2) == 0 {
							j.Dst, j.DstStride = edge(dst, n*size), size
						}
						want := make([]uint64, n)
						p.Generate(want, &j)
						if diff := p.Verify(want, &j); diff != 0 {
							t.Fatalf("%v, %d blocks of %d: %#x", kind, n, size, diff)
						}
						// If interleaved, the last field ends at
						// the edge.
						stride := size + kind.FieldSize()
						all := edge(src, n*stride)
						j = Job{Src: all, SrcStride: stride, Fields: all[size:], FieldStride: stride}
						p.Generate(want, &j)
						if diff := p.Verify(want, &j); diff != 0 {
							t.Fatalf("%v, %d blocks of %d, interleaved: %#x", kind, n, size, diff)
						}
					}
				}
			}
		}
	})
}
