package bareudp

import (
	"testing"
	"time"
)

// times returns a function that returns true n times.
func times(n int) func() bool {
	return func() bool { n--; return n >= 0 }
}

func TestStream(t *testing.T) {
	for _, data := range []int{1, 256, 1024, 4096} {
		if gbps, err := Stream(data, times(100)); err != nil || gbps <= 0 {
			t.Errorf("%d bytes: %v GB/s, %v", data, gbps, err)
		}
	}
	for _, bad := range []int{0, 65500} {
		if _, err := Stream(bad, times(1)); err == nil {
			t.Errorf("%d bytes: no error", bad)
		}
	}
}

func TestPing(t *testing.T) {
	s, err := Serve()
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 64, 4096} {
		if median, err := Ping(size, s.Addr(), times(100)); err != nil || median <= 0 {
			t.Errorf("%d bytes: %v, %v", size, median, err)
		}
	}
	if _, err := Ping(70000, s.Addr(), times(1)); err == nil {
		t.Error("a datagram of 70000 bytes")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestForEndsInTime checks that the function of For returns true until its time is over.
func TestForEndsInTime(t *testing.T) {
	more := For(time.Hour)
	for range 2 {
		if !more() {
			t.Error("an hour is over")
		}
	}
	if more = For(-1); more() {
		t.Error("less than no time is not over")
	}
}
