package udp

import (
	"runtime"
	"time"
)

// spin decides whether Recv polls instead of blocking. Recv polls if the previous wait was short,
// whether that wait polled or blocked: more datagrams are then likely to arrive soon. When no
// more arrive, one wait polls in vain for the full time.
type spin struct {
	most  time.Duration // longest wait that polls
	worth bool          // the last wait was shorter than most
	waits bool          // the current call of Recv has found no datagram yet
	since time.Time     // start of the current wait
	tries int           // polls of the current wait
}

// mostSpin is about the cost of blocking and waking up on a virtual machine. Recv yields to other goroutines while it
// polls. Blocking also costs the sender, which has to wake the receiver.
const mostSpin = 50 * time.Microsecond

func newSpin() spin {
	if runtime.NumCPU() == 1 {
		return spin{} // polling would stop the goroutine that is waited for
	}
	return spin{most: mostSpin}
}

// begin starts a call of Recv.
func (s *spin) begin() { s.waits = false }

// on is called when no datagram has arrived. It reports whether to poll again.
func (s *spin) on() bool {
	if !s.waits {
		s.waits, s.since, s.tries = true, time.Now(), 0
	}
	// The clock is read after every eighth poll only, because reading it takes a tenth of the
	// time of a poll.
	s.tries++
	return s.worth && (s.tries%8 != 0 || time.Since(s.since) < s.most)
}

// end is called when a datagram has arrived.
func (s *spin) end() {
	if s.waits {
		s.worth = time.Since(s.since) < s.most
	}
}
