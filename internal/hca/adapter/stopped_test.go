package adapter_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/rdma"
)

// waiting keeps the records of a stop as lines.
type waiting struct {
	mu    sync.Mutex
	lines []string
}

func (r *waiting) Trace(rec *adapter.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case rec.Kind == adapter.TraceTransport && rec.Action == "waiting":
		r.lines = append(r.lines, fmt.Sprintf("request %d waits: %s", rec.Fields[0].Number, rec.Fields[1].Text))
	case rec.Kind == adapter.TraceEvent && strings.Contains(rec.Reason, "stopped"):
		_, why, _ := strings.Cut(rec.Reason, "stopped")
		r.lines = append(r.lines, "stopped"+why)
	}
}

// TestPipeliningStopsAtOnce posts requests without a fence behind a WRITE and behind a SEND with a
// bad signature: none of them starts, and the trace says why, and which.
func TestPipeliningStopsAtOnce(t *testing.T) {
	for _, op := range []prm.Opcode{prm.OpWrite, prm.OpSend} {
		both(t, func(t *testing.T, o options) {
			var r waiting
			o.tracer = &r
			p := newPair(t, o)
			qa, qb := p.a.rc(), p.b.rc()
			qa.pipeline()
			qa.join(qb)
			src, from := p.a.mr(8192, 1)
			dst, to := p.b.mr(8192, 0xf)
			k := p.a.newKey(keyKind{entries: 4, signature: true})
			p.a.mem.put(from, append(bytes.Repeat([]byte{0xa5}, 512), 1, 2, 3, 4, 5, 6, 7, 8))
			k.configure().access(rwAccess).list(prm.Data{Length: 520, LKey: src.LKey(), Addr: from}).signature(prm.SignatureBSF{CheckMask: 0xff, Memory: t10()}).do(qa)
			qb.postRecv(prm.Data{Length: 4096, LKey: dst.LKey(), Addr: to})
			qb.postRecv(prm.Data{Length: 4096, LKey: dst.LKey(), Addr: to + 4096})
			bad := newWQE(op, 0, 0, prm.FlagCQUpdate)
			if op == prm.OpWrite {
				bad.raddr(to, dst.RKey())
			}
			qa.post(bad.data(0, 512, k.number),
				newWQE(prm.OpNop, 0, 0, 0), newWQE(prm.OpSend, 0, 0, prm.FlagCQUpdate).inline([]byte("good")))
			if b := qa.send.wait(); prm.CQEOpcode(b[63]>>4) != prm.CQESigErr {
				t.Fatalf("kind %d, want a report", b[63]>>4)
			}
			if c := qa.send.waitCQE(); c.SendOp != op {
				t.Fatalf("completion %+v", c)
			}
			if e := <-p.a.events; e.typ != rdma.EventSQDrained || e.obj != qa.QP {
				t.Fatalf("event %+v", e)
			}
			want := []string{
				fmt.Sprintf("stopped before request 3: bad signature of key %#x; cancel what depends on it, then RTS", k.number),
				"request 3 waits: NOP", "request 4 waits: SEND",
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if !slices.Equal(r.lines, want) {
				t.Errorf("trace %q, want %q", r.lines, want)
			}
		})
	}
}
