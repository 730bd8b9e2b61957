package device

import (
	"cmp"
	"math/bits"
	"time"

	"github.com/softmkey/softmkey/verbs"
)

// Retry is how long a connection waits for a peer that does not answer. It sends a packet
// again after each Timeout, at most Count times, so it fails after Timeout · (Count + 1).
type Retry struct {
	Timeout time.Duration // rounded up to 4.096 µs · 2^n, at most MaxTimeout
	Count   uint8         // 0 to 7
}

// DefaultRetry is long enough for a peer that is stopped for some seconds. It does not delay
// the retransmission of lost packets, because acknowledgements show a loss much earlier.
var DefaultRetry = Retry{Timeout: 500 * time.Millisecond, Count: defaultCount()}

// defaultCount returns the retry count of package verbs.
func defaultCount() uint8 {
	o, _ := new(verbs.ConnectOptions).WithDefaults() // the defaults are in range
	return uint8(o.RetryCnt)
}

// Apply sets the options of a connection. The zero value of r means DefaultRetry.
func (r Retry) Apply(o *verbs.ConnectOptions) {
	r = cmp.Or(r, DefaultRetry)
	o.Timeout, o.RetryCnt = timeoutExponent(r.Timeout), int(r.Count)
	if r.Count == 0 {
		o.RetryCnt = verbs.Zero
	}
}

// timeoutUnit is the unit of a queue pair's timeout: 4.096 µs · 2^n.
const timeoutUnit = 4096 * time.Nanosecond

// MaxTimeout is the longest timeout of a queue pair.
const MaxTimeout = timeoutUnit << 31

// timeoutExponent returns the exponent of the shortest timeout of a queue pair that
// is not shorter than d. It is at least 1, because 0 means to wait for ever.
func timeoutExponent(d time.Duration) int {
	units := d / timeoutUnit
	if d%timeoutUnit > 0 {
		units++
	}
	return min(max(bits.Len64(uint64(max(units, 1)-1)), 1), 31)
}
