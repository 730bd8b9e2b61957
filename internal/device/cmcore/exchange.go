package cmcore

import (
	"time"

	"github.com/softmkey/softmkey/internal/net/mad"
)

// exchange is a message that the service repeats until an answer comes. A connection and
// a query have one each. The service's lock guards it.
type exchange struct {
	s    *Service
	path Path

	closed bool  // closed by the application: no more events
	place  place // in one of the service's tables

	timer   timer
	out     []byte        // the message
	wait    time.Duration // after each transmission
	left    int           // remaining repetitions
	mras    int           // MRAs that may still prolong the wait
	excused bool          // an MRA arrived for the last transmission
	giveUp  func()        // called when the last transmission was not answered
}

// Path returns the addresses of both ends.
func (x *exchange) Path() Path { return x.path }

// Flush is [Service.Flush].
func (x *exchange) Flush() { x.s.Flush() }

// report queues an event for the application. When its turn comes, what is called with the service's lock held and
// returns the application's callback, or nil; the callback is then called without the lock. If the exchange or the
// service has been closed meanwhile, neither is called.
func (x *exchange) report(what func() func()) {
	x.s.outbox = append(x.s.outbox, func() {
		var call func()
		x.s.mu.Lock()
		if !x.closed && !x.s.closed {
			call = what()
		}
		x.s.mu.Unlock()
		if call != nil {
			call()
		}
	})
}

// transmit sends a message and repeats it until the timer is stopped. No MRA prolongs the
// wait, unless the caller sets mras afterwards.
func (x *exchange) transmit(h mad.Header, m mad.Message, wait time.Duration, repetitions int, giveUp func()) {
	x.out = x.s.send(x.path, h, m)
	x.wait, x.left, x.mras, x.excused, x.giveUp = wait, repetitions, 0, false, giveUp
	x.timer.start(x.s, wait, x.expire)
}

func (x *exchange) expire() {
	if x.left == 0 {
		x.giveUp()
		return
	}
	x.left--
	x.excused = false
	x.s.resend(x.path, x.out)
	x.timer.start(x.s, x.wait, x.expire)
}

// excuse prolongs the wait for the answer to the last transmission, once.
func (x *exchange) excuse(d time.Duration) {
	if x.excused || x.mras == 0 {
		return
	}
	x.excused = true
	x.mras--
	x.timer.start(x.s, x.wait+d, x.expire)
}
