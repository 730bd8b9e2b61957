//go:build linux && (amd64 || arm64)

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/rdmacm"
	"github.com/softmkey/softmkey/rdma"
)

// tracer writes the records of devices as lines. Lines are collected and written
// a few times a second.
type tracer struct {
	kinds   map[adapter.RecordKind]bool // nil: all
	objects []objectFilter              // empty: all
	reasons bool                        // only records with a reason
	asJSON  bool
	process func(*adapter.Context) int

	mu     sync.Mutex
	out    *bufio.Writer
	dirty  bool
	closer io.Closer
	ending chan struct{}
	ended  chan struct{}
}

// objectFilter chooses objects of a kind, and one of them if number is given.
type objectFilter struct {
	kind   string
	number uint32
	one    bool
}

// flushEvery is how long a line may wait for the next ones.
const flushEvery = 50 * time.Millisecond

func newTracer(w io.Writer, closer io.Closer) *tracer {
	t := &tracer{out: bufio.NewWriterSize(w, 64<<10), closer: closer, ending: make(chan struct{}), ended: make(chan struct{})}
	go t.flush()
	return t
}

func (t *tracer) flush() {
	defer close(t.ended)
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-t.ending:
			return
		}
		t.mu.Lock()
		if t.dirty {
			t.out.Flush()
			t.dirty = false
		}
		t.mu.Unlock()
	}
}

// close writes the last lines and returns the first error.
func (t *tracer) close() error {
	close(t.ending)
	<-t.ended
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.out.Flush()
	if t.closer != nil {
		if err2 := t.closer.Close(); err == nil {
			err = err2
		}
	}
	return err
}

// wanted reports whether the filters let a record pass.
func (t *tracer) wanted(r *adapter.Record) bool {
	// Requests that are flushed after a failed one carry no new information.
	if t.reasons && (r.Reason == "" || r.Action == rdma.StatusWRFlushErr.String()) {
		return false
	}
	if t.kinds != nil && !t.kinds[r.Kind] {
		return false
	}
	if len(t.objects) == 0 {
		return true
	}
	for _, o := range t.objects {
		if o.kind == r.Object && (!o.one || o.number == r.Number) {
			return true
		}
	}
	return false
}

// Trace implements adapter.Tracer.
func (t *tracer) Trace(r *adapter.Record) {
	if !t.wanted(r) {
		return
	}
	pid := 0
	if t.process != nil && r.Context != nil {
		pid = t.process(r.Context)
	}
	t.write(r, pid)
}

// write writes a record of a process.
func (t *tracer) write(r *adapter.Record, pid int) {
	var line []byte
	if t.asJSON {
		line = jsonLine(r, pid)
	} else {
		line = textLine(r, pid)
	}
	t.mu.Lock()
	t.out.Write(line)
	t.dirty = true
	t.mu.Unlock()
}

// textLine writes a record for people.
func textLine(r *adapter.Record, pid int) []byte {
	b := make([]byte, 0, 200)
	b = r.Time.AppendFormat(b, "15:04:05.000000")
	b = fmt.Appendf(b, " %d %s %#x %s", pid, r.Object, r.Number, r.Action)
	for _, f := range r.Fields {
		b = fmt.Appendf(b, " %s=%s", f.Name, textValue(f.Name, f.Value))
	}
	if r.Reason != "" {
		b = append(append(b, ": "...), r.Reason...)
	}
	return append(b, '\n')
}

// textValue writes keys, addresses and numbers of objects in hexadecimal, and
// puts quotes around texts that would run into the next field.
func textValue(name string, v any) string {
	switch v := v.(type) {
	case uint32, uint64:
		switch {
		case strings.HasSuffix(name, "key"), strings.HasSuffix(name, "addr"), strings.HasSuffix(name, "cq"), name == "iova", name == "access", name == "qp", name == "srq", name == "imm", name == "invalidate":
			return fmt.Sprintf("%#x", v)
		}
		return fmt.Sprint(v)
	}
	s := fmt.Sprint(v)
	if s == "" || strings.ContainsAny(s, " =\"\n") && s[0] != '[' && s[0] != '{' {
		return strconv.Quote(s)
	}
	return s
}

// jsonLine writes a record for programs.
func jsonLine(r *adapter.Record, pid int) []byte {
	fields := map[string]any{}
	for _, f := range r.Fields {
		switch v := f.Value.(type) {
		case bool, string, int, int64, uint8, uint16, uint32, uint64, float64:
			fields[f.Name] = v
		default:
			fields[f.Name] = fmt.Sprint(v)
		}
	}
	line, err := json.Marshal(struct {
		Time    time.Time      `json:"time"`
		Process int            `json:"process"`
		Kind    string         `json:"kind"`
		Object  string         `json:"object"`
		Number  uint32         `json:"number"`
		Action  string         `json:"action"`
		Reason  string         `json:"reason,omitempty"`
		Fields  map[string]any `json:"fields,omitempty"`
	}{r.Time, pid, r.Kind.String(), r.Object, r.Number, r.Action, r.Reason, fields})
	if err != nil {
		line = strconv.AppendQuote(nil, err.Error())
	}
	return append(line, '\n')
}

// tracers passes records to several.
type tracers []*tracer

// Trace implements adapter.Tracer.
func (ts tracers) Trace(r *adapter.Record) {
	for _, t := range ts {
		t.Trace(r)
	}
}

// traceCM writes a program's commands to rdma_cm, and its events.
func (ts tracers) traceCM(r rdmacm.Record) {
	out := &adapter.Record{Time: time.Now(), Kind: adapter.TraceObject, Object: "cm_id", Number: r.ID, Action: r.Action}
	pid := 0
	if p, ok := r.Process.(cmProcess); ok {
		pid = p.Process()
	}
	if r.Event {
		out.Kind = adapter.TraceEvent
	}
	if r.Errno != 0 {
		out.Kind, out.Reason = adapter.TraceRefused, r.Errno.Error()
		if r.Reason != nil {
			out.Reason = r.Reason.Error()
		}
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

// parseKinds reads a list of kinds of records.
func parseKinds(list []string) (map[adapter.RecordKind]bool, error) {
	if len(list) == 0 {
		return nil, nil
	}
	names := map[string]adapter.RecordKind{}
	var known []string
	for k := adapter.TraceObject; k <= adapter.TraceRefused; k++ {
		names[k.String()] = k
		known = append(known, k.String())
	}
	kinds := map[adapter.RecordKind]bool{}
	for _, name := range list {
		k, ok := names[name]
		if !ok {
			return nil, fmt.Errorf("run: --trace-kind %q: the kinds are %s", name, strings.Join(known, ", "))
		}
		kinds[k] = true
	}
	return kinds, nil
}

// traceable are the objects that records name.
var traceable = []string{"pd", "mr", "mw", "cq", "qp", "srq", "xrcd", "ah", "mkey", "psv", "dek", "login", "uar", "context", "cm_id"}

// parseObjects reads a list of "qp" and "qp=0x1234".
func parseObjects(list []string) ([]objectFilter, error) {
	var filters []objectFilter
	for _, s := range list {
		kind, number, one := strings.Cut(s, "=")
		f := objectFilter{kind: kind, one: one}
		if !slices.Contains(traceable, kind) {
			return nil, fmt.Errorf("run: --trace-object %q: the objects are %s", s, strings.Join(traceable, ", "))
		}
		if one {
			n, err := strconv.ParseUint(number, 0, 32)
			if err != nil {
				return nil, fmt.Errorf("run: --trace-object %q: %q is no number of an object", s, number)
			}
			f.number = uint32(n)
		}
		filters = append(filters, f)
	}
	return filters, nil
}
