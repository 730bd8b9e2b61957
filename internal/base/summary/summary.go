// Package summary counts requests by operation, as strace -c does with system calls.
package summary

import (
	"cmp"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"time"
)

// Table counts requests. The zero value is ready, and a nil one counts nothing.
type Table struct {
	mu  sync.Mutex // guards the following fields
	ops map[string]*Operation
	bad uint64

	lateTimes uint64
	latest    time.Duration
}

// Outcome is how a request ended.
type Outcome int

// The outcomes of a request.
const (
	Succeeded Outcome = iota
	Failed
	Flushed // not executed, or not completely, because its queue pair or program had ended
)

// Operation holds the counts of one operation.
type Operation struct {
	Operation       string  `json:"operation"`
	Count           uint64  `json:"count"`
	Bytes           uint64  `json:"bytes"`     // bytes of the requests that succeeded
	MedianMicros    float64 `json:"median_us"` // median of the requests that succeeded; 0: none was timed
	NinetyNine      float64 `json:"p99_us"`
	Errors          uint64  `json:"errors"`
	Flushed         uint64  `json:"flushed"`
	Retransmissions uint64  `json:"retransmitted_packets"`

	times histogram
}

// operation returns the row of an operation. The caller holds t.mu.
func (t *Table) operation(name string) *Operation {
	op := t.ops[name]
	if op == nil {
		if t.ops == nil {
			t.ops = map[string]*Operation{}
		}
		op = &Operation{Operation: name}
		t.ops[name] = op
	}
	return op
}

// Add counts n requests of an operation with the same outcome, bytes of data
// together. latency is the time that each took, or 0 if they were not timed.
func (t *Table) Add(operation string, outcome Outcome, n, bytes uint64, latency time.Duration) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	op := t.operation(operation)
	op.Count += n
	switch outcome {
	case Succeeded:
		op.Bytes += bytes
		if latency > 0 {
			op.times.add(latency, n)
		}
	case Flushed:
		op.Flushed += n
	default:
		op.Errors += n
	}
}

// Resent counts packets of an operation that were sent again.
func (t *Table) Resent(operation string, packets uint64) {
	if t == nil || packets == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.operation(operation).Retransmissions += packets
}

// BadSignature counts bad blocks that keys have reported.
func (t *Table) BadSignature(n uint64) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bad += n
}

// Late counts times at which the thread that executes the requests was late, by most at the worst one.
func (t *Table) Late(times uint64, most time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lateTimes += times
	t.latest = max(t.latest, most)
}

// Report is a table as JSON.
type Report struct {
	Operations    []*Operation `json:"operations"`
	BadSignatures uint64       `json:"bad_signatures"`

	// How often the thread that executes the requests ran 10 ms or more later than it meant to, and by how many
	// microseconds at most. The latencies of requests, and timeouts, include that time.
	LateTimes  uint64  `json:"late_times,omitempty"`
	LateMicros float64 `json:"late_longest_us,omitempty"`
}

// Report returns the counts, the operations with most requests first.
func (t *Table) Report() Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := Report{Operations: []*Operation{}, BadSignatures: t.bad, LateTimes: t.lateTimes, LateMicros: float64(t.latest) / 1e3}
	for _, op := range t.ops {
		c := *op
		c.MedianMicros, c.NinetyNine = float64(op.times.quantile(0.5))/1e3, float64(op.times.quantile(0.99))/1e3
		r.Operations = append(r.Operations, &c)
	}
	slices.SortFunc(r.Operations, func(a, b *Operation) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Operation, b.Operation))
	})
	return r
}

// Times counts the requests of an operation that succeeded and were timed.
type Times struct {
	Operation                  string
	Succeeded, Failed, Flushed uint64
	Timed                      uint64
	Sum                        time.Duration
	Within                     [len(Bounds)]uint64 // at most as long as each of Bounds
}

// Bounds are powers of two of a nanosecond, from about 1 µs to about 17 s.
var Bounds = [13]time.Duration{1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30, 1 << 32, 1 << 34}

// Times returns the counts of all operations.
func (t *Table) Times() (all []Times) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, op := range t.ops {
		row := Times{Operation: name, Succeeded: op.Count - op.Errors - op.Flushed, Failed: op.Errors, Flushed: op.Flushed, Timed: op.times.count, Sum: op.times.sum}
		seen, at := uint64(0), 0
		for i, bound := range Bounds {
			for ; at < bucket(uint64(bound)); at++ {
				seen += op.times.buckets[at]
			}
			row.Within[i] = seen
		}
		all = append(all, row)
	}
	return all
}

// WriteTo writes the report as a table.
func (r Report) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%-20s %10s %14s %12s %12s %8s %8s %8s\n", "operation", "requests", "bytes", "median", "99 %", "errors", "flushed", "resent")
	var sum Operation
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
	if r.LateTimes > 0 {
		fmt.Fprintf(&b, "the device's thread was late %d times, by up to %s: the machine is busy\n", r.LateTimes, micros(r.LateMicros))
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

func micros(us float64) string {
	if us == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f us", us)
}

// histogram counts durations in buckets of a sixteenth of a power of two: a quantile is
// right to about 6 %.
type histogram struct {
	buckets [64 * parts]uint64
	count   uint64
	sum     time.Duration
}

const parts = 16

func (h *histogram) add(d time.Duration, n uint64) {
	h.buckets[bucket(uint64(max(d, 0)))] += n
	h.count += n
	h.sum += d * time.Duration(n)
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
