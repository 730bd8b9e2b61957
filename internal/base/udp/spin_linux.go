package udp

import (
	"runtime"
	"time"
)

// spin decides whether to wait awake. It does if the last wait was short, however it
// was spent: a stream or a conversation goes on, and when it ends that costs one
// wait of the longest time.
type spin struct {
	most  time.Duration // waits of up to so long are spent awake
	worth bool          // the last one was as short
	waits bool
	since time.Time
	tries int
}

func newSpin(most time.Duration) spin {
	if most == 0 {
		most = DefaultSpin
	}
	if runtime.NumCPU() == 1 {
		most = 0 // it would keep those from running that are waited for
	}
	return spin{most: most}
}

// begin is called when somebody wants to receive.
func (s *spin) begin() { s.waits = false }

// on is called when nothing is there, and reports whether to ask again.
func (s *spin) on() bool {
	if !s.waits {
		s.waits, s.since, s.tries = true, time.Now(), 0
	}
	// The clock takes a tenth of the time that asking does.
	s.tries++
	return s.worth && (s.tries%8 != 0 || time.Since(s.since) < s.most)
}

// end is called when something has come.
func (s *spin) end() {
	if s.waits {
		s.worth = time.Since(s.since) < s.most
	}
}
