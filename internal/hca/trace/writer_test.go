package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/rdma"
)

// sample is a record with a field of each kind.
func sample() *adapter.Record {
	return &adapter.Record{
		Time: time.Date(2026, 1, 2, 3, 4, 5, 1002003, time.Local), Kind: adapter.TraceRequest, Object: "qp", Number: 0x1234, Action: "SEND",
		Reason: "key 0x1234 is free since \"LOCAL_INV\" of request 7, \u00b5",
		Fields: []adapter.Field{
			{Name: "request", Number: 7}, {Name: "rkey", Number: 0x20}, {Name: "opcode", Text: "SEND"}, {Name: "empty", Value: ""}, {Name: "written", Value: false},
			{Name: "addr", Value: uint64(0x7f00)}, {Name: "list", Value: "8 bytes\tfrom \"there\""}, {Name: "sges", Value: &[]rdma.SGE{{Addr: 0x1000, Length: 8, LKey: 0x300}, {}}},
			{Name: "flags", Text: "SIGNALED|FENCE"}, {Name: "psn", Value: &adapter.PSNRange{First: 5, Last: 9}}, {Name: "stored", Value: ^uint64(0)},
		},
	}
}

func TestTraceText(t *testing.T) {
	var clock clockText
	const want = `03:04:05.001002 42 qp 0x1234 SEND request=7 rkey=0x20 opcode=SEND empty="" written=false addr=0x7f00 list="8 bytes\tfrom \"there\""` +
		` sges=[8 bytes from 0x1000 of key 0x300, 0 bytes from 0x0 of key 0x0] flags=SIGNALED|FENCE psn=5-9 stored=0xffffffffffffffff: key 0x1234 is free since "LOCAL_INV" of request 7, \u00b5` + "\n"
	for range 2 { // the second record takes the text of the clock's second from the cache
		if got := string(appendText(nil, sample(), 42, &clock)); got != strings.ReplaceAll(want, `\u00b5`, "\u00b5") {
			t.Errorf("\n%swant\n%s", got, want)
		}
	}
}

// TestTraceControlCharacters has text of others in a record, which can neither begin a line of its own nor control a
// terminal.
func TestTraceControlCharacters(t *testing.T) {
	const forged = "a\n03:04:05.001002 42 qp 0x1\x1b[2J\x9b"
	r := adapter.Record{Object: "command", Fields: []adapter.Field{{Name: "name", Text: "x\x1b[2J"}}, Reason: forged}
	got := string(appendText(nil, &r, 42, &clockText{}))
	if !strings.HasSuffix(got, ` name=x\x1b[2J: a\n03:04:05.001002 42 qp 0x1\x1b[2J\x9b`+"\n") {
		t.Errorf("%q", got)
	}
}

func TestTraceJSON(t *testing.T) {
	var got struct {
		Time           time.Time
		Process        int
		Kind, Object   string
		Number         uint32
		Action, Reason string
		Fields         map[string]any
	}
	r := sample()
	if err := json.Unmarshal(appendJSON(nil, r, 42), &got); err != nil {
		t.Fatal(err)
	}
	if !got.Time.Equal(r.Time) || got.Process != 42 || got.Kind != "request" || got.Object != "qp" || got.Number != 0x1234 || got.Action != "SEND" || got.Reason != r.Reason {
		t.Errorf("%+v", got)
	}
	for name, want := range map[string]any{
		"request": 7.0, "rkey": 32.0, "opcode": "SEND", "empty": "", "written": false, "addr": "0x7f00", "list": "8 bytes\tfrom \"there\"",
		"flags": []any{"SIGNALED", "FENCE"}, "psn": map[string]any{"first": 5.0, "last": 9.0}, "stored": "0xffffffffffffffff",
		"sges": []any{map[string]any{"addr": "0x1000", "length": 8.0, "lkey": 768.0}, map[string]any{"addr": "0x0", "length": 0.0, "lkey": 0.0}},
	} {
		if !reflect.DeepEqual(got.Fields[name], want) {
			t.Errorf("%s is %v, want %v", name, got.Fields[name], want)
		}
	}
}

// TestTraceSlowReader makes records faster than the reader of the trace takes them. Trace must not
// wait for the reader: records that exceed the buffer are left out, and the trace gives their
// number.
func TestTraceSlowReader(t *testing.T) {
	r, w := io.Pipe()
	tr := New(w, w, Options{})
	line := len(appendText(nil, sample(), 0, &clockText{}))
	const more = 1000
	records := 2*mostLines/line + more // one half is being written while the other one waits
	for range records {
		tr.Trace(sample())
	}
	tr.mu.Lock()
	waiting, left := len(tr.lines), tr.left
	tr.mu.Unlock()
	if waiting > mostLines+line || left < more {
		t.Errorf("%d bytes wait, %d records are left out", waiting, left)
	}
	read := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(r)
		read <- all
	}()
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	all := <-read
	lines := bytes.Count(all, []byte("request=7"))
	if !bytes.Contains(all, []byte("trace 0x0 records left out records=")) || lines >= records || lines < mostLines/line {
		t.Errorf("%d of %d records were written", lines, records)
	}
}

type failingWriter struct{}

var errFull = errors.New("no space left")

func (failingWriter) Write([]byte) (int, error) { return 0, errFull }

func TestTraceError(t *testing.T) {
	tr := New(failingWriter{}, nil, Options{})
	tr.Trace(sample())
	if err := tr.Close(); err != errFull {
		t.Errorf("close: %v", err)
	}
}

// TestTraceAllocations: a trace of requests that succeed makes no garbage.
func TestTraceAllocations(t *testing.T) {
	r := sample()
	r.Reason = ""
	r.Fields = []adapter.Field{{Name: "request", Number: 7}, {Name: "opcode", Text: "RDMA_WRITE"}, {Name: "sges", Value: &[]rdma.SGE{{Addr: 0x1000, Length: 8, LKey: 0x300}}}, {Name: "psn", Value: &adapter.PSNRange{First: 5, Last: 9}}}
	b := make([]byte, 0, 1<<10)
	var clock clockText
	clock.append(b, r.Time)
	if n := testing.AllocsPerRun(100, func() { appendText(b, r, 1, &clock); appendJSON(b, r, 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkTraceText(b *testing.B) {
	r := sample()
	r.Reason, r.Fields = "", append(r.Fields[:3:3], r.Fields[7])
	buf := make([]byte, 0, 1<<10)
	var clock clockText
	for b.Loop() {
		appendText(buf, r, 1, &clock)
	}
}

// TestTraceRefusals: uverbs reports every refused command, the adapter records some of them itself.
// Each has one line. A Writer of reasons writes a repeated refusal once: for each process, or for all if
// the device does not offer it.
func TestTraceRefusals(t *testing.T) {
	var all, reasons bytes.Buffer
	ts := Writers{New(&all, nil, Options{}), New(&reasons, nil, Options{Reasons: true})}
	recorded := func(errno syscall.Errno) error {
		err := failure.New("create a QP", errno, "no room")
		ts.Trace(&adapter.Record{Time: time.Now(), Kind: adapter.TraceRefused, Object: "qp", Action: "create", Reason: err.Error(), Err: err})
		return err
	}
	for pid := 1; pid <= 2; pid++ {
		for range 3 {
			ts.Refused(pid, "create QP", &operr.Error{Op: "create QP", Errno: syscall.ENOMEM, Reason: "refused", Err: recorded(syscall.ENOMEM)})
			ts.Refused(pid, "create QP", failure.New("create QP", syscall.EOPNOTSUPP, "QP type 255 (driver (DC))"))
			ts.Refused(pid, "destroy CQ", failure.New("destroy CQ", syscall.EINVAL, "no CQ 7"))
			ts.Refused(pid, "query", failure.New("query", syscall.ENODATA, "the end of a table"))
		}
	}
	for _, w := range ts {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, test := range []struct {
		what             string
		inAll, inReasons int
	}{
		{"qp 0x0 create: create a QP: no room", 6, 1}, // the record names no process here
		{"command 0x0 create QP: QP type 255 (driver (DC))", 6, 1},
		{"command 0x0 destroy CQ: no CQ 7", 6, 2},
		{"\n", 18, 4},
	} {
		if n, m := strings.Count(all.String(), test.what), strings.Count(reasons.String(), test.what); n != test.inAll || m != test.inReasons {
			t.Errorf("%q: %d and %d lines, want %d and %d", test.what, n, m, test.inAll, test.inReasons)
		}
	}
	if t.Failed() {
		t.Logf("%s\n%s", &all, &reasons)
	}
}
