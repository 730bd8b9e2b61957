package cmcore

import (
	"time"

	"github.com/softmkey/softmkey/internal/base/mad"
)

// exchange is a message that the service repeats until an answer comes. A connection and
// a query have one each. The service's lock guards it.
type exchange struct {
	s    *Service
	path Path

	timer   timer
	out     []byte        // the message
	wait    time.Duration // after each transmission
	left    int           // remaining repetitions
	excused bool          // an MRA arrived for the last transmission
	giveUp  func()        // called when the last transmission was not answered
}

// transmit sends a message and repeats it until the timer is stopped.
func (x *exchange) transmit(h mad.Header, m mad.Message, wait time.Duration, repetitions int, giveUp func()) {
	x.out = x.s.send(x.path, h, m)
	x.wait, x.left, x.excused, x.giveUp = wait, repetitions, false, giveUp
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
	if x.excused {
		return
	}
	x.excused = true
	x.timer.start(x.s, x.wait+d, x.expire)
}
