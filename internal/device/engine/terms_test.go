package engine

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/softmkey/softmkey/rdma"
)

// TestTerms has the codes of times and numbers: the default, none, the neighbours of a code, the longest, and one more.
func TestTerms(t *testing.T) {
	const unit = 4096 * time.Nanosecond
	for d, want := range map[time.Duration]uint8{
		0: 14, -1: 0, 1: 1, unit: 1, 2 * unit: 1, 2*unit + 1: 2, 67 * time.Millisecond: 14, 500 * time.Millisecond: 17, unit << 31: 31,
	} {
		if m, err := (&ConnectOptions{Timeout: d}).Terms(); err != nil || m.Timeout != want {
			t.Errorf("timeout %v: code %d, %v; want %d", d, m.Timeout, err, want)
		}
	}
	for d, want := range map[time.Duration]uint8{
		0: 12, -1: 1, 10 * time.Microsecond: 1, 11 * time.Microsecond: 2, 491520 * time.Microsecond: 31, 491521 * time.Microsecond: 0,
	} {
		if m, err := (&ConnectOptions{RNRDelay: d}).Terms(); err != nil || m.MinRNRTimer != want {
			t.Errorf("delay %v: code %d, %v; want %d", d, m.MinRNRTimer, err, want)
		}
	}
	none := ConnectOptions{Access: new(rdma.Access), Retries: -1, RNRRetries: -1, MaxRdAtomic: -1}
	if m, err := none.Terms(); err != nil || m.AccessFlags != 0 || m.RetryCnt != 0 || m.RNRRetry != 0 || m.MaxRdAtomic != 0 || m.MaxDestRdAtomic != 0 {
		t.Errorf("none of anything: %+v, %v", m, err)
	}
	for _, o := range []ConnectOptions{{Timeout: unit<<31 + 1}, {RNRDelay: time.Second}, {Retries: 8}, {RNRRetries: 8}, {MaxRdAtomic: MaxRdAtomic + 1}} {
		if _, err := o.Terms(); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
