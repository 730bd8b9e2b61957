package device

import (
	"cmp"
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
var DefaultRetry = Retry{Timeout: 500 * time.Millisecond, Count: 7}

// Apply sets the options of a connection. The zero value of r means DefaultRetry.
func (r Retry) Apply(o *verbs.ConnectOptions) {
	r = cmp.Or(r, DefaultRetry)
	o.Timeout, o.Retries = r.Timeout, int(r.Count)
	if r.Count == 0 {
		o.Retries = -1
	}
}

// MaxTimeout is the longest timeout of a queue pair.
const MaxTimeout = 4096 * time.Nanosecond << 31
