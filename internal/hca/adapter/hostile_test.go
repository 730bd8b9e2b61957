package adapter_test

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/rdma"
)

// TestUnmapped unmaps the memory of queues that are in use: the queue fails, and the program's
// other queues go on.
func TestUnmapped(t *testing.T) {
	copied := options{}
	for _, what := range []string{"send queue", "receive queue", "doorbell record", "completion ring", "CQ doorbell record"} {
		t.Run(what, func(t *testing.T) {
			p := newPair(t, copied)
			c := p.a.cq(4, nil)
			q := c.loopback()
			other := p.a.cq(16, nil)
			r := other.loopback()
			q.post(newWQE(prm.OpNop, 0, 0, prm.FlagCQUpdate))
			c.waitCQE()
			switch what {
			case "send queue":
				p.a.mem.unmap(q.sq, 64*64)
			case "receive queue":
				p.a.mem.put32(q.db, 1)
				p.a.mem.unmap(q.rq, 64)
			case "doorbell record":
				p.a.mem.unmap(q.db, 8)
			case "completion ring":
				p.a.mem.unmap(c.buf, 4*64)
			case "CQ doorbell record":
				p.a.mem.unmap(c.db, 8)
			}
			q.head++
			p.a.mem.Write(q.db+4, []byte{0, 0, byte(q.head >> 8), byte(q.head)})
			for range 5 {
				q.head++
				p.a.mem.Write(q.db+4, []byte{0, 0, byte(q.head >> 8), byte(q.head)})
				p.a.ring(0x800, uint64(q.head))
				p.a.ctx.Scan()
			}
			at := r.post(newWQE(prm.OpNop, 0, 0, prm.FlagCQUpdate))
			if e := other.waitCQE(); e.Counter != at || e.Opcode != prm.CQERequester {
				t.Errorf("the other queue: %+v", e)
			}
		})
	}
}

// TestProgramEndedBeforeClose lets the program of a QP end, so that its memory is gone before its
// context is closed. The QP raises no event and leaves no record of a failure.
func TestProgramEndedBeforeClose(t *testing.T) {
	var mu sync.Mutex
	var records []adapter.Record
	p := newPair(t, options{tracer: tracerFunc(func(r *adapter.Record) {
		mu.Lock()
		defer mu.Unlock()
		if r.Kind == adapter.TraceEvent || r.Kind == adapter.TraceRefused {
			records = append(records, *r)
		}
	})})
	c := p.a.cq(4, nil)
	q := c.loopback()
	q.post(newWQE(prm.OpNop, 0, 0, prm.FlagCQUpdate))
	c.waitCQE()
	p.a.mem.mu.Lock()
	p.a.mem.ended = true
	p.a.mem.mu.Unlock()
	for range 3 {
		p.a.ctx.Scan()
	}
	// A QP that fails now looks for receive requests to flush.
	q.modify(adapter.QPModify{State: rdma.StateErr}, ibv.AttrState)
	p.a.ctx.Close()
	mu.Lock()
	defer mu.Unlock()
	for _, r := range records {
		t.Errorf("%s of %s %#x: %v", r.Action, r.Object, r.Number, r.Reason)
	}
}

type tracerFunc func(*adapter.Record)

func (f tracerFunc) Trace(r *adapter.Record) { f(r) }

// TestDoorbellAhead rings for more than the queue holds.
func TestDoorbellAhead(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o).a
		c := p.cq(64, nil)
		q := c.loopback()
		p.mem.put32(q.db+4, 30000)
		p.ring(0x800, 1)
		p.ctx.Scan()
		if e := c.waitCQE(); e.Opcode != prm.CQERequesterErr || e.Syndrome != prm.SyndromeLocalQPOp {
			t.Errorf("completion %+v", e)
		}
	})
}

// TestRefused requests features that the device does not have, which must fail at once.
func TestRefused(t *testing.T) {
	p := newPair(t, options{}).a
	c := p.cq(4, nil)
	good := adapter.QPAttr{Type: rdma.RC, PD: p.pd, SendCQ: c.CQ, RecvCQ: c.CQ, RQ: adapter.Range(p.mem, p.mem.alloc(4096)), SQ: adapter.Range(p.mem, p.mem.alloc(4096)), DB: adapter.Range(p.mem, p.mem.alloc(8)), SQCount: 16, RQCount: 16, RQShift: 4}
	for _, v := range []struct {
		name   string
		errno  syscall.Errno
		change func(*adapter.QPAttr)
	}{
		{"driver", syscall.EOPNOTSUPP, func(a *adapter.QPAttr) { a.Type = 0xff }},
		{"raw packets", syscall.EOPNOTSUPP, func(a *adapter.QPAttr) { a.Type = 8 }},
		{"blocks", syscall.EINVAL, func(a *adapter.QPAttr) { a.SQCount = 3 }},
		{"shift", syscall.EINVAL, func(a *adapter.QPAttr) { a.RQShift = 20 }},
		{"no CQ", syscall.EINVAL, func(a *adapter.QPAttr) { a.SendCQ = nil }},
		{"unmapped queue", syscall.EFAULT, func(a *adapter.QPAttr) { a.RQ = adapter.Range(p.mem, 0x1000) }},
		{"address wraps", syscall.EFAULT, func(a *adapter.QPAttr) { a.RQ = adapter.Range(p.mem, ^uint64(0)-10) }},
	} {
		a := good
		v.change(&a)
		if _, err := p.ctx.CreateQP(a); !errors.Is(err, v.errno) {
			t.Errorf("%s: %v, want %v", v.name, err, v.errno)
		}
	}
	if _, err := p.ctx.CreateQP(good); err != nil {
		t.Error(err)
	}
	if _, err := p.ctx.RegMR(nil, p.pd, 0x1000, 10, 0x1000, 1); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("memory that is not there: %v", err)
	}
	if err := p.pd.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("close of a PD in use: %v", err)
	}
	if _, err := p.ctx.CreateSRQ(adapter.SRQAttr{Type: 2, PD: p.pd, MaxWR: 8}); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("tag matching: %v", err)
	}
	in := make([]byte, 16)
	for c := range 0x1000 {
		prm.SetBits(in, 0, 16, uint64(c))
		out, err := p.ctx.Exec(0, in, 4112)
		st, _ := prm.StatusOf(out)
		if _, made := prm.DestructionOf(in, out, 0); err == nil && made && prm.Command(c) != prm.CmdAllocPD && prm.Command(c) != prm.CmdAllocDomain {
			t.Errorf("command %#x made an object of nothing", c)
		}
		if err == nil != (st == prm.CmdOK) || err != nil && !errors.Is(err, adapter.ErrCommand) {
			t.Errorf("command %#x: %v with status %v", c, err, st)
		}
	}
}

// hostile drives a context with arbitrary commands, requests and doorbells, and unmaps memory
// under it.
func hostile(t testing.TB, input []byte, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	net := inproc.NewNetwork(nil)
	p := start(t, net, netip.MustParseAddr("10.9.0.1"), options{})
	c := p.cq(32, nil)
	p.mem.absent = true
	qps := []*qp{c.loopback(), p.datagrams(c, c)}
	mr, at := p.mr(1<<12, 0xf)
	k := p.newKey(keyKind{entries: 4, signature: true})
	numbers := []uint32{mr.LKey(), k.number, 0, 0xffffffff}
	next := func(n int) []byte {
		b := make([]byte, n)
		m := copy(b, input)
		input = input[m:]
		for i := m; i < n; i++ {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	ops := []prm.Opcode{prm.OpNop, prm.OpSend, prm.OpSendImm, prm.OpSendInv, prm.OpWrite, prm.OpRead, prm.OpCmpSwap, prm.OpFetchAdd, prm.OpMaskedCmpSwap, prm.OpMaskedFetchAdd, prm.OpSetPSV, prm.OpUMR, 0x1b, 0x2f}
	for round := range 40 {
		q := qps[rng.IntN(len(qps))]
		b := next(64 * (1 + rng.IntN(6)))
		switch rng.IntN(4) {
		case 0:
			in := next(16 + rng.IntN(300))
			in[0] = []byte{1, 2, 6, 10}[rng.IntN(4)]
			in[1] &= 3
			if out, err := p.ctx.Exec(0, in, 16+rng.IntN(300)); err == nil {
				if d, ok := prm.DestructionOf(in, out, 0); ok && round%2 == 0 {
					d.Put(in)
					p.ctx.Exec(0, in[:16], 16)
				}
			}
			p.ctx.Exec(0, in, 4112)
		case 1:
			p.mem.put32(q.db, uint32(rng.IntN(40)))
			p.mem.put(q.rq, b)
		default:
			// A request with a valid control segment, so that its other segments are decoded too.
			w := &wqe{b: b}
			w.b[0], w.b[1], w.b[2], w.b[3] = 0, 0, 0, byte(ops[rng.IntN(len(ops))])
			prm.PutUint32(w.b[12:], numbers[rng.IntN(len(numbers))])
			if rng.IntN(2) == 0 && len(w.b) >= 48 {
				prm.PutData(w.b[32:], prm.Data{Length: uint32(rng.IntN(5000)), LKey: numbers[rng.IntN(len(numbers))], Addr: at})
			}
			q.post(w)
		}
		if rng.IntN(8) == 0 {
			q.head += uint16(rng.IntN(100))
			p.mem.put32(q.db+4, uint32(q.head))
		}
		if rng.IntN(16) == 0 {
			p.mem.unmap(base+uint64(rng.IntN(1<<16)), 4096)
		}
		c.arm(rng.IntN(2) == 0)
		p.ctx.Poll()
		p.ctx.Scan()
		for range 32 {
			c.next()
		}
		if s, _ := q.Query(); s.State == rdma.StateErr && rng.IntN(2) == 0 {
			q.Modify(&adapter.QPModify{State: rdma.StateReset}, ibv.AttrState)
		}
	}
	p.ctx.Close()
}

// TestHostile runs the fuzz target on random input.
func TestHostile(t *testing.T) {
	for seed := range uint64(30) {
		hostile(t, nil, seed)
	}
}

func FuzzAdapter(f *testing.F) {
	f.Add([]byte{}, uint64(1))
	f.Add(make([]byte, 512), uint64(2))
	f.Fuzz(func(t *testing.T, input []byte, seed uint64) { hostile(t, input, seed) })
}
