package geometry

import (
	"errors"
	"syscall"
	"testing"
)

// TestStream counts bytes one by one.
func TestStream(t *testing.T) {
	for _, s := range []Stream[int64]{{1, 0}, {512, 0}, {8, 4}, {16, 8}} {
		var data, length int64 // of the stream so far
		for range 300 {
			if got := s.Len(data); got != length {
				t.Fatalf("%+v: %d bytes of data make %d, want %d", s, data, got, length)
			}
			if s.Data(length) != data || s.Missing(length) != 0 {
				t.Fatalf("%+v: %d bytes hold %d, want %d; %d missing", s, length, s.Data(length), data, s.Missing(length))
			}
			data++
			length++
			if s.Signed() && data%s.Block == 0 {
				for ; length%s.Stride() != 0; length++ {
					if s.Data(length) != data || s.Missing(length) != s.Stride()-length%s.Stride() {
						t.Fatalf("%+v: within a field at %d: %d, %d missing", s, length, s.Data(length), s.Missing(length))
					}
				}
			}
		}
	}
}

func TestBoundary(t *testing.T) {
	for _, s := range []Stream[uint64]{{1, 0}, {512, 8}, {520, 4}, {4096, 8}} {
		for _, unit := range []uint64{512, 520, 4048, 4096, 4160} {
			n := s.Block
			for s.Len(n)%unit != 0 || s.Len(n)%16 != 0 {
				n += s.Block
			}
			if got := s.Boundary(s.Block, unit); got != n {
				t.Errorf("%+v, units of %d: %d, want %d", s, unit, got, n)
			}
		}
		if s.Boundary(s.Block, 0) != s.Block {
			t.Errorf("%+v without crypto: %d", s, s.Boundary(s.Block, 0))
		}
	}
}

func TestDefaultUnit(t *testing.T) {
	plain, t10, crc := Stream[int64]{1, 0}, Stream[int64]{512, 8}, Stream[int64]{4096, 4}
	for _, c := range []struct {
		encrypted, other Stream[int64]
		want             int64
	}{{plain, plain, 512}, {t10, plain, 520}, {plain, crc, 4096}, {crc, t10, 4100}} {
		if got := DefaultUnit(c.encrypted, c.other); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestCheckJob(t *testing.T) {
	for _, c := range []struct {
		n, unit int64
		ok      bool
	}{{0, 512, true}, {512, 512, true}, {528, 512, true}, {520, 512, false}, {528, 520, false}, {1040, 520, true}, {536, 520, false}, {544, 520, true}, {1008, 512, true}, {8, 512, false}} {
		if err := CheckJob(c.n, c.unit); (err == nil) != c.ok || err != nil && !errors.Is(err, syscall.EMSGSIZE) {
			t.Errorf("%d bytes in units of %d: %v", c.n, c.unit, err)
		}
	}
}
