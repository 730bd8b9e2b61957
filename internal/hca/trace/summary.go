package trace

import (
	"cmp"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/rdma"
)

// Tee passes records to several tracers.
type Tee []adapter.Tracer

// Trace implements adapter.Tracer.
func (ts Tee) Trace(r *adapter.Record) {
	for _, t := range ts {
		t.Trace(r)
	}
}

// Summary counts the requests of a run by operation, as strace -c does with system calls. It may be
// read after the devices are closed.
type Summary struct {
	mu   sync.Mutex // guards the following fields
	ops  map[string]*opSummary
	open map[openID]time.Time
	bad  uint64
}

// openID names a request that has not ended.
type openID struct {
	context *adapter.Context
	qp      uint32
	request uint64
}

// opSummary is the requests of one operation.
type opSummary struct {
	Operation       string  `json:"operation"`
	Count           uint64  `json:"count"`
	Bytes           uint64  `json:"bytes"`
	MedianMicros    float64 `json:"median_us"` // of requests that succeeded; 0: none was timed
	NinetyNine      float64 `json:"p99_us"`
	Errors          uint64  `json:"errors"`
	Flushed         uint64  `json:"flushed"`
	Retransmissions uint64  `json:"retransmitted_packets"`

	times histogram
}

// Trace implements adapter.Tracer.
func (s *Summary) Trace(r *adapter.Record) {
	switch r.Kind {
	case adapter.TraceRequest, adapter.TraceCompletion, adapter.TraceEnd, adapter.TraceSignature:
	default:
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Kind == adapter.TraceSignature {
		s.bad++
		return
	}
	id := openID{context: r.Context, qp: r.Number, request: r.Fields[0].Number}
	if r.Kind == adapter.TraceRequest {
		if s.open == nil {
			s.open = map[openID]time.Time{}
		}
		s.open[id] = r.Time
		return
	}
	var opcode string
	var bytes, again uint64
	for i := range r.Fields {
		switch f := &r.Fields[i]; f.Name {
		case "opcode":
			opcode = f.Text
		case "bytes":
			bytes = f.Number
		case "retransmitted":
			again = f.Number
		}
	}
	op := s.ops[opcode]
	if op == nil {
		if s.ops == nil {
			s.ops = map[string]*opSummary{}
		}
		op = &opSummary{Operation: opcode}
		s.ops[opcode] = op
	}
	op.Count++
	op.Retransmissions += again
	var begin time.Time
	if !strings.HasPrefix(opcode, "RECV") {
		begin = s.open[id]
		delete(s.open, id)
	}
	switch r.Action {
	case rdma.StatusSuccess.String():
		op.Bytes += bytes
		if !begin.IsZero() {
			op.times.add(r.Time.Sub(begin))
		}
	case rdma.StatusWRFlushErr.String(), "dropped":
		op.Flushed++
	default:
		op.Errors++
	}
}

// Report is a summary as JSON.
type Report struct {
	Operations    []*opSummary `json:"operations"`
	BadSignatures uint64       `json:"bad_signatures"`
}

// Report returns the summary of what was traced, the operations with most requests first.
func (s *Summary) Report() Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := Report{Operations: []*opSummary{}, BadSignatures: s.bad}
	for _, op := range s.ops {
		c := *op
		c.MedianMicros, c.NinetyNine = float64(op.times.quantile(0.5))/1e3, float64(op.times.quantile(0.99))/1e3
		r.Operations = append(r.Operations, &c)
	}
	slices.SortFunc(r.Operations, func(a, b *opSummary) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Operation, b.Operation))
	})
	return r
}

// WriteTo writes the summary as a table.
func (r Report) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%-20s %10s %14s %12s %12s %8s %8s %8s\n", "operation", "requests", "bytes", "median", "99 %", "errors", "flushed", "resent")
	var sum opSummary
	for _, o := range r.Operations {
		fmt.Fprintf(&b, "%-20s %10d %14d %12s %12s %8d %8d %8d\n", o.Operation, o.Count, o.Bytes, micros(o.MedianMicros), micros(o.NinetyNine), o.Errors, o.Flushed, o.Retransmissions)
		sum.Count += o.Count
		sum.Bytes += o.Bytes
		sum.Errors += o.Errors
		sum.Flushed += o.Flushed
		sum.Retransmissions += o.Retransmissions
	}
	fmt.Fprintf(&b, "%-20s %10d %14d %12s %12s %8d %8d %8d\n", "total", sum.Count, sum.Bytes, "", "", sum.Errors, sum.Flushed, sum.Retransmissions)
	fmt.Fprintf(&b, "bad signatures: %d\n", r.BadSignatures)
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

func micros(us float64) string {
	if us == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f us", us)
}

// histogram counts durations in buckets of a sixteenth of a power of two: quantiles are right to
// about 6 %.
type histogram struct {
	buckets [64 * parts]uint64
	count   uint64
}

const parts = 16

func (h *histogram) add(d time.Duration) {
	h.buckets[bucket(uint64(max(d, 0)))]++
	h.count++
}

// bucket returns the bucket of n nanoseconds.
func bucket(n uint64) int {
	if n < parts {
		return int(n)
	}
	shift := bits.Len64(n) - 5 // n>>shift has 5 bits
	return shift*parts + int(n>>shift)
}

// quantile returns the middle of the bucket with quantile q; 0 if nothing was added.
func (h *histogram) quantile(q float64) time.Duration {
	rank, seen := uint64(q*float64(h.count)), uint64(0)
	for i, n := range h.buckets {
		if seen += n; n > 0 && seen > rank {
			if i < 2*parts {
				return time.Duration(i)
			}
			shift := i/parts - 1
			low := uint64(i%parts+parts) << shift
			return time.Duration(low + 1<<shift/2)
		}
	}
	return 0
}
