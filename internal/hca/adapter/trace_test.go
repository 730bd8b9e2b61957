package adapter_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// recorder keeps records as short lines.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

func (r *recorder) Trace(rec *adapter.Record) {
	if rec.Kind != adapter.TraceRequest && rec.Kind != adapter.TraceCompletion && rec.Kind != adapter.TraceSignature {
		return
	}
	line := fmt.Sprintf("%v %s", rec.Kind, rec.Action)
	for _, f := range rec.Fields {
		switch f.Name {
		case "request", "bytes":
			line += fmt.Sprintf(" %s=%d", f.Name, f.Number)
		case "opcode":
			line += " " + f.Text
		case "reported":
			line += fmt.Sprintf(" reported=%v", f.Value)
		}
	}
	if _, fate, found := strings.Cut(rec.Reason, "; "); found {
		line += ": " + fate
	}
	if (rec.Err == nil) != (rec.Reason == "") {
		line += " without its error"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
}

// TestTraceRequests: requests are named by their order in the queue, which a program knows, and
// not by the index of their block. A completion has the bytes that were moved.
func TestTraceRequests(t *testing.T) {
	var r recorder
	p := newPair(t, options{tracer: &r})
	src, from := p.a.mr(4096, 1)
	dst, to := p.b.mr(4096, 0xf)
	p.a.mem.put(from, bytes.Repeat([]byte{1}, 1024))
	k := p.a.newKey(keyKind{entries: 4, signature: true})
	k.configure().access(rwAccess).list(prm.Data{Length: 1024, LKey: src.LKey(), Addr: from}).signature(prm.SignatureBSF{CheckMask: 0xf0, Wire: crc32Zeros}).do(p.qa)
	p.qb.postRecv(prm.Data{Length: 4096, LKey: dst.LKey(), Addr: to})
	p.qa.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(to, dst.RKey()).data(from, 512, src.LKey()))
	p.qa.post(newWQE(prm.OpSend, 0, 0, prm.FlagCQUpdate).inline(pattern(100, 1)))
	for range 2 {
		p.qa.send.waitCQE()
	}
	p.qb.recv.waitCQE()
	p.qa.post(newWQE(prm.OpRead, 0, 0, prm.FlagCQUpdate).raddr(to, dst.RKey()).data(from, 64, src.LKey()))
	p.qa.send.waitCQE()
	// A completion is traced after the program can see it, under the lock that Close takes.
	for _, q := range []*qp{p.qa, p.qb} {
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	for _, want := range []string{
		"request UMR request=1", "request SET_PSV request=1", "completion success request=1 SET_PSV bytes=0",
		"request RDMA_WRITE request=2", "completion success request=2 RDMA_WRITE bytes=512",
		"request SEND request=3", "completion success request=3 SEND bytes=100",
		"completion success request=1 RECV bytes=100",
		"request RDMA_READ request=4", "completion success request=4 RDMA_READ bytes=64",
	} {
		if !slices.Contains(r.lines, want) {
			t.Errorf("no %q", want)
		}
	}
	if t.Failed() {
		t.Log(strings.Join(r.lines, "\n"))
	}
}

// TestTraceSignatureReport: a bad block's record says where its report waits, and why the next two have none: that
// report was not polled, and then the key was not configured anew.
func TestTraceSignatureReport(t *testing.T) {
	var r recorder
	p := newPair(t, options{tracer: &r})
	src, from := p.a.mr(4096, 1)
	dst, to := p.b.mr(4096, 1)
	k := p.b.newKey(keyKind{entries: 4, signature: true})
	k.configure().access(rwAccess).list(prm.Data{Length: 512, LKey: dst.LKey(), Addr: to}).signature(prm.SignatureBSF{CheckMask: 0xff, Wire: t10()}).do(p.qb)
	for i := range 3 {
		if i == 2 {
			p.qb.recv.wait() // the report
			p.qb.recv.waitCQE()
			p.qb.recv.waitCQE()
		}
		p.qb.postRecv(prm.Data{Length: 520, LKey: k.number, Addr: 0})
		p.qa.post(newWQE(prm.OpSend, 0, 0, prm.FlagCQUpdate).data(from, 520, src.LKey()))
		p.qa.send.waitCQE()
	}
	p.qb.recv.waitCQE()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, want := range []string{
		fmt.Sprintf("signature bad guard reported=true: the report is in CQ %#x: mlx5dv_mkey_check knows it once that is polled", p.qb.recv.Number()),
		fmt.Sprintf("signature bad guard reported=false: not reported: the key's last report waits in CQ %#x to be polled", p.qb.recv.Number()),
		"signature bad guard reported=false: not reported: since its last report was polled, the key was not configured anew",
	} {
		if !slices.Contains(r.lines, want) {
			t.Errorf("no %q", want)
		}
	}
	if t.Failed() {
		t.Log(strings.Join(r.lines, "\n"))
	}
}

// TestTraceLate makes the device's thread late three times in a moment: one record at once, and one that has the
// others when the context ends.
func TestTraceLate(t *testing.T) {
	var got []string
	p := newPair(t, options{tracer: tracerFunc(func(r *adapter.Record) {
		if r.Kind == adapter.TraceTransport {
			got = append(got, fmt.Sprintf("%s %s %d %d %t", r.Object, r.Action, r.Fields[0].Number, r.Fields[1].Number, r.Err != nil))
		}
	})})
	for _, ms := range []time.Duration{20, 50, 30} {
		p.a.ctx.Late(ms * time.Millisecond)
	}
	p.a.ctx.Close()
	if want := []string{"context late 1 20000 true", "context late 2 50000 true"}; !slices.Equal(got, want) {
		t.Errorf("records %q, want %q", got, want)
	}
}

// TestTraceRest moves messages through a key with a signature, as the memory of a WRITE and as that of a peer's READ.
// A message that ends inside a block has one record with the number of bytes behind the last whole block.
func TestTraceRest(t *testing.T) {
	var got []string
	p := newPair(t, options{tracer: tracerFunc(func(r *adapter.Record) {
		if r.Kind == adapter.TraceSignature {
			got = append(got, fmt.Sprintf("%s %d", r.Action, r.Fields[1].Number))
		}
	})})
	mr, at := p.a.mr(4096, 0xf)
	k := p.a.newKey(keyKind{entries: 4, signature: true})
	k.configure().access(rwAccess).list(prm.Data{Length: 2048, LKey: mr.LKey(), Addr: at}).signature(prm.SignatureBSF{CheckMask: 0xf0, Wire: crc32Zeros}).do(p.qa)
	to, there := p.b.mr(4096, 0xf)
	for _, test := range []struct {
		length uint32
		want   []string
	}{{2 * 516, nil}, {516 + 488, []string{"rest 488"}}, {3*516 + 512, []string{"rest 512"}}} {
		got = nil
		p.qa.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(there, to.RKey()).data(0, test.length, k.number))
		p.qa.done()
		if !slices.Equal(got, test.want) {
			t.Errorf("a WRITE of %d bytes: %q, want %q", test.length, got, test.want)
		}
		got = nil
		p.qb.post(newWQE(prm.OpRead, 0, 0, prm.FlagCQUpdate).raddr(0, k.number).data(there, test.length, to.LKey()))
		p.qb.done()
		if !slices.Equal(got, test.want) {
			t.Errorf("a READ of %d bytes: %q, want %q", test.length, got, test.want)
		}
	}
}
