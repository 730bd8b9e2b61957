package cmcore

import "time"

// Limits of the timeouts that peers choose, as exponents of 4.096 µs: 67 ms and 8.6 s for
// an answer, 137 s for one that an MRA announced.
const (
	minTimeout = 14
	maxTimeout = 21
	maxService = 25
)

// interval returns 4.096 µs · 2^exp, the unit of all timeouts of the
// communication manager, with exp between lo and hi.
func interval(exp, lo, hi uint8) time.Duration {
	return 4096 * time.Nanosecond << min(max(exp, lo), hi)
}

// timer is the one timer of a connection or query. Its function runs with the
// service's lock, and never after stop or a later start.
type timer struct {
	t   *time.Timer
	gen uint64
}

// start arms the timer and replaces an earlier setting. The lock is held.
func (t *timer) start(s *Service, d time.Duration, f func()) {
	t.stop()
	gen := t.gen
	t.t = time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.unlock()
		if t.gen == gen && !s.closed {
			f()
		}
	})
}

// stop disarms the timer. The lock is held.
func (t *timer) stop() {
	t.gen++
	if t.t != nil {
		t.t.Stop()
		t.t = nil
	}
}
