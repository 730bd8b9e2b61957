package roce

import (
	"time"

	"github.com/softmkey/softmkey/internal/roce/internal/congestion"
)

// Pacing spreads packets over time. Timers are late by up to some milliseconds
// on a busy machine, so packets worth that time may leave in one burst.
const (
	paceBurst = 2e6   // ns of sending that may leave in one burst
	paceWait  = 0.5e6 // ns of sending that each wait allows
)

// A bucket counts the bytes that pacing allows.
type bucket struct {
	credit int64 // bytes that may be sent now
	at     int64 // time at which credit was last added; 0: never
}

// wait adds the credit of the time that has passed, up to burst bytes, for a rate in bytes
// per nanosecond. It returns 0 if a packet may be sent now, otherwise the time to wait in
// nanoseconds.
func (b *bucket) wait(now int64, rate float64, burst int64) int64 {
	if b.at == 0 {
		b.credit, b.at = burst, now
	}
	// At a low rate, the time between two calls is worth less than a byte. Keep
	// at unchanged then, so that the time still counts.
	if n := int64(rate * float64(now-b.at)); n > 0 {
		b.credit, b.at = min(b.credit+n, burst), now
	}
	if b.credit > 0 {
		return 0
	}
	return int64(float64(-b.credit)/rate + paceWait)
}

// The default of Options.UnreliableRate is the rate at which half of the receive buffer is
// filled in pauseOfReceiver, within these limits in bytes per second. The peer's buffer is
// probably as large as this one.
const (
	pauseOfReceiver    = 20 * time.Millisecond
	leastDefaultRate   = 100e6
	largestDefaultRate = 400e6
)

// A lineRate paces the packets of all UC and UD QPs of a port. Their receivers report
// neither loss nor delay, so packets leave at the rate of a line that the receiver is
// expected to keep up with. It is guarded by Port.sending.
type lineRate struct {
	bucket
	rate  float64 // bytes per nanosecond; 0: unlimited
	burst int64   // bytes
}

// newLineRate returns the pacing for an Options.UnreliableRate, with a receive buffer of n
// bytes, or 0 if its size is unknown.
func newLineRate(rate int64, n int) lineRate {
	if rate < 0 {
		return lineRate{}
	}
	perSecond := float64(rate)
	if rate == 0 {
		perSecond = min(max(float64(n/2)/pauseOfReceiver.Seconds(), leastDefaultRate), largestDefaultRate)
	}
	l := lineRate{rate: perSecond / 1e9}
	l.burst = int64(l.rate * paceBurst)
	if n > 0 {
		l.burst = min(l.burst, int64(n)/4)
	}
	l.burst = max(l.burst, congestion.Least)
	return l
}

// wait returns the time to wait before the next packet in nanoseconds, or 0.
func (l *lineRate) wait(now int64) int64 {
	if l.rate == 0 {
		return 0
	}
	return l.bucket.wait(now, l.rate, l.burst)
}
