package perf

import (
	"fmt"
	"slices"

	"github.com/softmkey/softmkey/internal/tool/keyplan"
	"github.com/softmkey/softmkey/roce"
)

// The tests.
const (
	Bandwidth = "bandwidth"
	Latency   = "latency"
)

// The operations.
const (
	Write    = keyplan.Write
	Send     = keyplan.Send
	Read     = keyplan.Read
	FetchAdd = "fetch-add"
)

// Ops returns the operations that a case may measure.
func Ops() []string { return []string{Write, Send, Read, FetchAdd} }

// Case is one measurement.
type Case struct {
	Test   string        `json:"test"`  // Bandwidth or Latency
	Op     string        `json:"op"`    // one of Ops
	Key    string        `json:"key"`   // name of the terms in tables
	Terms  keyplan.Terms `json:"terms"` // the keys; the side that the data comes from is the sender
	Size   int           `json:"size"`  // bytes of data in a message
	Depth  int           `json:"depth"` // messages in flight on each queue pair; latency: 1
	QPs    int           `json:"qps"`
	Inline int           `json:"inline"` // largest message in bytes that is sent inline, if there is no key
	Verify bool          `json:"verify"` // compare the data that arrived with the data that was sent
}

// The limits of a case.
const (
	maxSize         = 1 << 30
	maxMemory int64 = 2 << 30 // of all queue pairs
	maxDepth        = 1 << 13
	maxQPs          = 1 << 16
	maxInline       = 1 << 11
)

// plan checks a case, which may come from a peer, and returns the plan of its terms.
func (c *Case) plan() (*keyplan.Plan, error) {
	switch {
	case c.Test != Bandwidth && c.Test != Latency:
		return nil, fmt.Errorf("test %.40q: must be %s or %s", c.Test, Bandwidth, Latency)
	case !slices.Contains(Ops(), c.Op):
		return nil, fmt.Errorf("operation %.40q: must be one of %v", c.Op, Ops())
	case c.Size < 1 || c.Size > maxSize:
		return nil, fmt.Errorf("messages of %d bytes: must be 1 to %d", c.Size, maxSize)
	case c.Op == FetchAdd && c.Size != 8:
		return nil, fmt.Errorf("fetch-add with %d bytes: atomics have 8", c.Size)
	case c.Depth < 1 || c.Depth > maxDepth:
		return nil, fmt.Errorf("depth %d: must be 1 to %d", c.Depth, maxDepth)
	case c.QPs < 1 || c.QPs > maxQPs:
		return nil, fmt.Errorf("%d queue pairs: must be 1 to %d", c.QPs, maxQPs)
	case c.Inline < 0 || c.Inline > maxInline:
		return nil, fmt.Errorf("inline up to %d bytes: must be 0 to %d", c.Inline, maxInline)
	case int64(c.Size)*int64(c.QPs) > maxMemory:
		return nil, fmt.Errorf("%d queue pairs with %d bytes each: at most %d bytes", c.QPs, c.Size, maxMemory)
	}
	t := c.Terms
	if t.Op = ""; c.Op == Read {
		t.Op = Read
	}
	p, err := keyplan.New(t, 0)
	switch {
	case err != nil:
		return nil, err
	case c.Op == FetchAdd && !(p.Sender.Plain() && p.Receiver.Plain()):
		return nil, fmt.Errorf("fetch-add through a memory key with signatures or crypto: atomics use plain regions")
	}
	return p, p.CheckData(int64(c.Size))
}

// Result is the outcome of a case.
type Result struct {
	Case
	MTU      int     `json:"mtu"`
	Messages uint64  `json:"messages"`
	Seconds  float64 `json:"seconds"`

	GBps float64 `json:"gb_per_second,omitempty"`       // of data, bandwidth only
	Rate float64 `json:"messages_per_second,omitempty"` // bandwidth only

	// In microseconds, latency only; half of a round trip unless Whole.
	Min    float64 `json:"min_us,omitempty"`
	Median float64 `json:"median_us,omitempty"`
	P99    float64 `json:"p99_us,omitempty"`
	Whole  bool    `json:"whole_operation,omitempty"`

	CPU    float64 `json:"cpu_seconds,omitempty"` // processor time of both processes, together
	Resent uint64  `json:"packets_resent"`        // retransmitted packets of both sides

	// Transport holds the counters of the client's device, Peer those of the server's:
	// retransmissions, losses, timeouts, congestion marks and notifications.
	Transport roce.Counters `json:"transport"`
	Peer      roce.Counters `json:"peer_transport"`

	// Paths holds the client's congestion windows at the end of the case.
	Paths []roce.PathState `json:"paths,omitempty"`

	Bad string `json:"bad_signature,omitempty"`
}
