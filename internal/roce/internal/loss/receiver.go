package loss

import "time"

// nakInterval is the shortest time between two NAKs for one lost packet.
const nakInterval = int64(200 * time.Microsecond)

// A Receiver decides what happens to a request that arrives.
type Receiver struct {
	silent bool  // a NAK for the expected packet was sent: later packets are dropped without another
	high   int   // distance from the expected packet to the last dropped one
	at     int64 // time of the NAK
}

// Verdict is what happens to a request.
type Verdict uint8

// The verdicts.
const (
	Execute Verdict = iota // it is the expected one
	Repeat                 // it was executed before: it is acknowledged or answered again
	Drop                   // a request before it is missing, which was reported
	NAK                    // a request before it is missing: this is reported
)

// Arrived records that request psn arrived while another one is expected. It reports a missing request once, and again
// only if the peer has gone back, which shows in a PSN no later than the last one seen, and the expected request was lost
// again.
func (r *Receiver) Arrived(psn, expected uint32, now int64) Verdict {
	switch d := Diff(psn, expected); {
	case d == 0:
		r.silent = false
		return Execute
	case d < 0:
		return Repeat
	default:
		again := d <= r.high && now-r.at > nakInterval
		r.high = d
		if r.silent && !again {
			return Drop
		}
		r.silent, r.at = true, now
		return NAK
	}
}

// Refused records that the expected request was answered with a NAK that makes the peer go back to it.
func (r *Receiver) Refused(now int64) { *r = Receiver{silent: true, at: now} }
