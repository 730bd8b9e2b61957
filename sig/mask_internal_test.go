package sig

import "testing"

func TestSpreadMask(t *testing.T) {
	for m := range 256 {
		var want uint64
		for bit := range 8 {
			if m>>bit&1 != 0 {
				want |= 0xFF << (8 * bit)
			}
		}
		if got := spread(Mask(m)); got != want {
			t.Errorf("spread(%#x) = %#x, want %#x", m, got, want)
		}
	}
}
