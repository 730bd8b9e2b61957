package udp

import (
	"runtime"
	"time"
)

// spin decides whether Recv polls instead of blocking. It polls if the previous wait was
// short, whether that one polled or blocked: the stream or conversation is then probably
// still going on. When it ends, one wait polls for the full time in vain.
type spin struct {
	most  time.Duration // longest wait that polls
	worth bool          // the last wait was shorter than most
	waits bool
	since time.Time
	tries int
}

func newSpin(most time.Duration) spin {
	if most == 0 {
		most = DefaultSpin
	}
	if runtime.NumCPU() == 1 {
		most = 0 // polling would stop the goroutine that is waited for
	}
	return spin{most: most}
}

// begin starts a call of Recv.
func (s *spin) begin() { s.waits = false }

// on is called when no datagram has arrived. It reports whether to poll again.
func (s *spin) on() bool {
	if !s.waits {
		s.waits, s.since, s.tries = true, time.Now(), 0
	}
	// Reading the clock takes a tenth of the time of a poll.
	s.tries++
	return s.worth && (s.tries%8 != 0 || time.Since(s.since) < s.most)
}

// end is called when a datagram has arrived.
func (s *spin) end() {
	if s.waits {
		s.worth = time.Since(s.since) < s.most
	}
}
