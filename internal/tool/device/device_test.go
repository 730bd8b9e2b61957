package device

import (
	"testing"
	"time"
)

func TestTimeoutExponent(t *testing.T) {
	for d, want := range map[time.Duration]int{
		0: 1, 1: 1, 4096: 1, 8192: 1, 8193: 2, 67 * time.Millisecond: 14, 500 * time.Millisecond: 17, time.Second: 18,
		MaxTimeout: 31, MaxTimeout - 1: 31, 1 << 62: 31,
	} {
		if got := timeoutExponent(d); got != want {
			t.Errorf("%v: %d, want %d", d, got, want)
		}
	}
}
