package icrc

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/softmkey/softmkey/internal/base/cpu"
)

// TestUpdate compares every implementation with the standard library, for all lengths up to several
// chunks, at odd alignments and from random registers.
func TestUpdate(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, 5000)
	for i := range buf {
		buf[i] = byte(r.Uint32())
	}
	for _, w := range cpu.Available() {
		t.Run(w.String(), func(t *testing.T) {
			for n := range 4300 {
				p, start := buf[n%67:][:n], r.Uint32()
				want := crc32.Update(start, crc32.IEEETable, p)
				if got := update(w, start, p); got != want {
					t.Fatalf("%d bytes from %#x: %#x, want %#x", n, start, got, want)
				}
				// The bytes before and after the destination must not
				// change.
				room := bytes.Repeat([]byte{0xa5}, n+2)
				if got := copyUpdate(w, start, nil, room[1:1+n], p, p); got != want {
					t.Fatalf("copying %d bytes from %#x: %#x, want %#x", n, start, got, want)
				}
				head := buf[n%61:][:n%37]
				want = crc32.Update(crc32.Update(start, crc32.IEEETable, head), crc32.IEEETable, p)
				if got := copyUpdate(w, start, head, room[1:1+n], p, room[1:1+n]); got != want {
					t.Fatalf("copying %d bytes behind %d from %#x: %#x, want %#x", n, len(head), start, got, want)
				}
				if !bytes.Equal(room[1:1+n], p) || room[0] != 0xa5 || room[1+n] != 0xa5 {
					t.Fatalf("%d bytes were not copied as they are", n)
				}
			}
		})
	}
}

func TestDoesNotAllocate(t *testing.T) {
	p := make([]byte, 4108)
	if n := testing.AllocsPerRun(100, func() { Update(1, p) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestCheckValue compares the CRC with the check value of the CRC catalogue.
func TestCheckValue(t *testing.T) {
	if got := Update(0, []byte("123456789")); got != 0xCBF43926 {
		t.Errorf("%#x", got)
	}
}

func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{76, 268, 1036, 4108, 8908} {
		p := make([]byte, n)
		for _, w := range cpu.Available() {
			b.Run(fmt.Sprintf("%d/%v", n, w), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					update(w, 0, p)
				}
			})
		}
		q := make([]byte, n)
		for _, w := range cpu.Available() {
			b.Run(fmt.Sprintf("copy/%d/%v", n, w), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					copyUpdate(w, 0, q[:12], q, p, p)
				}
			})
		}
		b.Run(fmt.Sprintf("%d/stdlib", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				crc32.ChecksumIEEE(p)
			}
		})
	}
}
