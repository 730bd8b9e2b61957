package aesxts

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/cpu"
	"github.com/softmkey/softmkey/internal/base/fatal"
)

// guarded returns n bytes of memory that end or begin at a page without access.
func guarded(t *testing.T, n int) (end, begin []byte) {
	t.Helper()
	page := os.Getpagesize()
	size := (n + page - 1) / page * page
	m, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	fatal.If(t, err)
	t.Cleanup(func() { unix.Munmap(m) })
	for _, g := range [][]byte{m[:page], m[page+size:]} {
		fatal.If(t, unix.Mprotect(g, unix.PROT_NONE))
	}
	return m[page+size-n : page+size : page+size], m[page : page+n : page+n]
}

// TestGuardPages places source and destination directly before and after a page without
// access, so that an access outside of them faults.
func TestGuardPages(t *testing.T) {
	const most = 4 * 700
	srcEnd, srcBegin := guarded(t, most)
	dstEnd, dstBegin := guarded(t, most)
	for _, tier := range cpu.Available() {
		for _, size := range []int{32, 64} {
			t.Run(fmt.Sprintf("%v/%d", tier, size*4), func(t *testing.T) {
				r := newRand()
				key := randomBytes(r, size)
				k, twin := newKey(t, tier, key), newKey(t, cpu.Generic, key)
				want := make([]byte, most)
				for _, decrypt := range []bool{false, true} {
					for unit := 16; unit <= 700; unit += 1 + unit/50 {
						n := 1 + unit%4
						length := n * unit
						data := randomBytes(r, length)
						twin.Crypt(decrypt, want, unit, data, unit, unit, n, 1, 2)
						for _, b := range [][2][]byte{
							{dstEnd[most-length:], srcEnd[most-length:]},
							{dstBegin[:length], srcBegin[:length]},
							{dstEnd[most-length:], srcBegin[:length]},
							{srcEnd[most-length:], srcEnd[most-length:]},
							{srcBegin[:length], srcBegin[:length]},
						} {
							copy(b[1], data)
							k.Crypt(decrypt, b[0], unit, b[1], unit, unit, n, 1, 2)
							if !bytes.Equal(b[0], want[:length]) {
								t.Fatalf("decrypt=%v unit=%d n=%d: differs from the plain twin", decrypt, unit, n)
							}
						}
					}
				}
			})
		}
	}
}
