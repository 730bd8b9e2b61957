package trace

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/internal/base/number"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/rdmacm"
	"github.com/softmkey/softmkey/rdma"
)

// Writer writes the records of devices as lines. Records come in the middle of work, so that
// Trace appends a line to a buffer and never waits for the file. One goroutine writes the buffer,
// a few times a second or when it is large. Records that find it full are left out and counted.
type Writer struct {
	options Options

	mu       sync.Mutex // guards the following fields
	lines    []byte
	left     int // records that were left out since the last line
	clock    clockText
	timeline timeline

	thinning thinning

	refusals []error         // the last refusals that the adapter recorded
	known    map[string]bool // refusals that a Writer of reasons has written

	large  chan struct{} // the buffer is large: write it
	ending chan struct{}

	abandoned bool // set before ending is closed
	ended     chan struct{}

	// The fields of the goroutine that writes.
	out   io.Writer
	spare []byte
	err   error // of the first write that failed; then nothing more is written

	closer io.Closer // nil: none
}

const (
	// flushEvery is how long a line may wait for the next ones.
	flushEvery = 50 * time.Millisecond
	// largeLines is the number of bytes in the buffer that are written at once.
	largeLines = 256 << 10
	// mostLines is the number of bytes in the buffer after which records are left out: a second
	// of the fastest programs' lines.
	mostLines = 64 << 20
)

// Format is the format of a trace.
type Format uint8

// The formats.
const (
	Text     Format = iota // lines for people
	JSON                   // an object for each line; docs/trace.schema.json describes them
	Perfetto               // an array of events in Chrome's trace format
)

// Formats are the names of the formats.
var Formats = []string{Text: "text", JSON: "json", Perfetto: "perfetto"}

// Options choose what a Writer writes, and how.
type Options struct {
	Kinds   map[adapter.RecordKind]bool // nil: all
	Objects []Object                    // empty: all
	Reasons bool                        // only records with a reason, without flushed requests
	Format  Format
	// Thin leaves out most requests, and counts them: the trace has a bounded number of lines a second, whatever
	// the devices do. Its format is JSON, with one more kind of line, "counts".
	Thin bool

	// Process returns the process that a context belongs to. nil: processes are not known.
	Process func(*adapter.Context) int
}

// Object chooses objects of a kind, and one of them if number is given.
type Object struct {
	kind   string
	number uint32
	one    bool
}

// New starts a Writer to w. Close closes closer if it is not nil.
func New(w io.Writer, closer io.Closer, options Options) *Writer {
	t := &Writer{options: options, out: w, closer: closer, large: make(chan struct{}, 1), ending: make(chan struct{}), ended: make(chan struct{})}
	go t.writeLines()
	return t
}

func (t *Writer) writeLines() {
	defer close(t.ended)
	every := flushEvery
	if t.options.Thin {
		every = thinnedEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-t.large:
		case <-t.ending:
			if t.abandoned {
				return
			}
			if t.options.Format == Perfetto {
				t.mu.Lock()
				t.lines = t.timeline.end(t.lines)
				t.mu.Unlock()
			}
			t.flush()
			return
		}
		t.flush()
	}
}

// flush writes the lines that wait.
func (t *Writer) flush() {
	t.mu.Lock()
	if t.left > 0 {
		t.appendLocked(&adapter.Record{
			Time: time.Now(), Kind: adapter.TraceEvent, Object: "trace", Action: "records left out",
			Reason: "the devices make lines faster than they are written", Fields: []adapter.Field{{Name: "records", Number: uint64(t.left)}},
		}, 0)
	}
	if t.options.Thin {
		t.lines = t.thinning.appendCounts(t.lines)
	}
	lines := t.lines
	t.lines, t.left = t.spare[:0], 0
	t.mu.Unlock()
	if len(lines) > 0 && t.err == nil {
		_, t.err = t.out.Write(lines)
	}
	if t.spare = lines; cap(lines) > 4*largeLines {
		t.spare = nil
	}
}

// Close writes the last lines and returns the first error.
func (t *Writer) Close() error {
	close(t.ending)
	<-t.ended
	err := t.err
	if t.closer != nil {
		err = cmp.Or(err, t.closer.Close())
	}
	return err
}

// Abandon ends the Writer without the records that it has not written yet. If closer has a method Abandon, it is called
// in place of Close.
func (t *Writer) Abandon() error {
	t.abandoned = true
	if c, ok := t.closer.(interface{ Abandon() }); ok {
		t.closer = nil
		defer c.Abandon()
	}
	return t.Close()
}

// wanted reports whether the filters let a record pass.
func (t *Writer) wanted(r *adapter.Record) bool {
	// Requests that are flushed after a failed one carry no new information.
	o := &t.options
	if o.Reasons && (r.Reason == "" || r.Action == rdma.StatusWRFlushErr.String()) {
		return false
	}
	if o.Kinds != nil && !o.Kinds[r.Kind] {
		return false
	}
	return len(o.Objects) == 0 || slices.ContainsFunc(o.Objects, func(f Object) bool {
		return f.kind == r.Object && (!f.one || f.number == r.Number)
	})
}

// Trace implements adapter.Tracer.
func (t *Writer) Trace(r *adapter.Record) {
	// Bare errnos of different refusals are equal, so a bare errno cannot identify a refusal.
	if _, bare := r.Err.(syscall.Errno); r.Kind == adapter.TraceRefused && r.Err != nil && !bare {
		t.mu.Lock()
		if len(t.refusals) == mostRefusals {
			t.refusals = slices.Delete(t.refusals, 0, 1)
		}
		t.refusals = append(t.refusals, r.Err)
		t.mu.Unlock()
	}
	if !t.wanted(r) {
		return
	}
	if t.options.Thin {
		t.mu.Lock()
		keeps := t.thinning.keeps(r, func() int { return t.process(r) })
		t.mu.Unlock()
		if !keeps {
			return
		}
	}
	pid := t.process(r)
	if r.Kind == adapter.TraceRefused && t.repeated(r, pid) {
		return
	}
	t.write(r, pid)
}

// process returns the process of a record; 0 if it is not known.
func (t *Writer) process(r *adapter.Record) int {
	if t.options.Process == nil || r.Context == nil {
		return 0
	}
	return t.options.Process(r.Context)
}

const (
	// mostRefusals is the number of refusals that may be on their way from the adapter to Refused:
	// more than the threads of a program that have commands refused at one moment.
	mostRefusals = 64
	// mostKnown bounds the refusals whose repetition a Writer of reasons leaves out.
	mostKnown = 1000
)

// refused writes a refused command, unless the adapter has recorded its error already.
func (t *Writer) refused(pid int, r *adapter.Record) {
	t.mu.Lock()
	at := slices.IndexFunc(t.refusals, func(e error) bool { return errors.Is(r.Err, e) })
	if at >= 0 {
		t.refusals = slices.Delete(t.refusals, at, at+1)
	}
	t.mu.Unlock()
	if at < 0 && t.wanted(r) && !t.repeated(r, pid) {
		t.write(r, pid)
	}
}

// repeated reports whether a Writer of reasons has written the same refusal. A program that looks
// for a feature, as UCX does for DC, asks many times in many processes.
func (t *Writer) repeated(r *adapter.Record, pid int) bool {
	if !t.options.Reasons {
		return false
	}
	if errors.Is(r.Err, syscall.EOPNOTSUPP) {
		pid = 0 // no process gets it
	}
	key := fmt.Sprint(pid, " ", r.Object, " ", r.Number, " ", r.Action, ": ", r.Reason)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known[key] || len(t.known) == mostKnown {
		return t.known[key]
	}
	if t.known == nil {
		t.known = make(map[string]bool)
	}
	t.known[key] = true
	return false
}

// write writes a record of a process.
func (t *Writer) write(r *adapter.Record, pid int) {
	t.mu.Lock()
	if len(t.lines) >= mostLines {
		t.left++
		t.mu.Unlock()
		return
	}
	before := len(t.lines)
	t.appendLocked(r, pid)
	wake := before < largeLines && len(t.lines) >= largeLines
	t.mu.Unlock()
	if wake {
		select {
		case t.large <- struct{}{}:
		default:
		}
	}
}

func (t *Writer) appendLocked(r *adapter.Record, pid int) {
	switch t.options.Format {
	case JSON:
		t.lines = appendJSON(t.lines, r, pid)
	case Perfetto:
		t.lines = t.timeline.append(t.lines, r, pid)
	default:
		t.lines = appendText(t.lines, r, pid, &t.clock)
	}
}

// Writers pass records to several.
type Writers []*Writer

// Trace implements adapter.Tracer.
func (ts Writers) Trace(r *adapter.Record) {
	for _, t := range ts {
		t.Trace(r)
	}
}

// Close closes all of them, or abandons them if keep is not set, and returns the first error.
func (ts Writers) Close(keep bool) (err error) {
	for _, t := range ts {
		end := t.Close
		if !keep {
			end = t.Abandon
		}
		err = cmp.Or(err, end())
	}
	return err
}

// Refused writes a command of a process that was refused: uverbs calls it for every one, also for
// those whose refusal the adapter has recorded.
func (ts Writers) Refused(pid int, command string, err error) {
	if errors.Is(err, syscall.EPROTONOSUPPORT) || errors.Is(err, syscall.ENODATA) {
		return // the library tries another method, or looks for the end of a table
	}
	r := &adapter.Record{
		Time: time.Now(), Kind: adapter.TraceRefused, Object: "command", Action: command,
		Reason: strings.TrimPrefix(err.Error(), command+": "), Err: err,
	}
	for _, t := range ts {
		t.refused(pid, r)
	}
}

// TraceCM writes a program's commands to rdma_cm, and its events.
func (ts Writers) TraceCM(r rdmacm.Record) {
	out := &adapter.Record{Time: time.Now(), Kind: adapter.TraceObject, Object: "cm_id", Number: r.ID, Action: r.Action}
	pid := 0
	if p, ok := r.Process.(interface{ Process() int }); ok {
		pid = p.Process()
	}
	if r.Event {
		out.Kind = adapter.TraceEvent
	}
	if r.Errno != 0 {
		out.Kind, out.Reason = adapter.TraceRefused, r.Errno.Error()
	}
	if r.Reason != nil {
		out.Reason = r.Reason.Error()
	}
	for _, a := range []struct {
		name string
		addr netip.AddrPort
	}{{"local", r.Local}, {"remote", r.Remote}} {
		if a.addr.IsValid() {
			out.Fields = append(out.Fields, adapter.Field{Name: a.name, Value: a.addr})
		}
	}
	if r.Status != 0 {
		out.Fields = append(out.Fields, adapter.Field{Name: "status", Value: r.Status})
	}
	for _, t := range ts {
		if t.wanted(out) {
			t.write(out, pid)
		}
	}
}

// Kinds returns the names of the kinds of records.
func Kinds() (names []string) {
	for k := adapter.TraceObject; k <= adapter.TraceTransport; k++ {
		names = append(names, k.String())
	}
	return names
}

// ParseKinds reads a list of kinds of records.
func ParseKinds(list []string) (map[adapter.RecordKind]bool, error) {
	if len(list) == 0 {
		return nil, nil
	}
	known := Kinds()
	kinds := map[adapter.RecordKind]bool{}
	for _, name := range list {
		i := slices.Index(known, name)
		if i < 0 {
			return nil, fmt.Errorf("--trace-kind %q: the kinds are %s", name, strings.Join(known, ", "))
		}
		kinds[adapter.TraceObject+adapter.RecordKind(i)] = true
	}
	return kinds, nil
}

// traceable are the objects that records name.
var traceable = []string{"pd", "mr", "mw", "cq", "qp", "srq", "rmp", "umem", "xrcd", "ah", "mkey", "psv", "dek", "login", "uar", "context", "command", "cm_id"}

// ParseObjects reads a list of "qp" and "qp=0x1234".
func ParseObjects(list []string) ([]Object, error) {
	var filters []Object
	for _, s := range list {
		kind, value, one := strings.Cut(s, "=")
		f := Object{kind: kind, one: one}
		if !slices.Contains(traceable, kind) {
			return nil, fmt.Errorf("--trace-object %q: the objects are %s", s, strings.Join(traceable, ", "))
		}
		if one {
			n, err := number.Parse(value, 32)
			if err != nil {
				return nil, fmt.Errorf("--trace-object %q: %q is no number of an object", s, value)
			}
			f.number = uint32(n)
		}
		filters = append(filters, f)
	}
	return filters, nil
}
