package adapter_test

import (
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/rdma"
)

// TestQueryReset asks for the port of a QP in RESET, where SPDK takes it from.
func TestQueryReset(t *testing.T) {
	p := lone(t)
	c := p.cq(16, nil)
	if a, _ := p.qp(c, c, nil).Query(); a.Port != 1 || a.State != rdma.StateReset {
		t.Errorf("port %d in %v", a.Port, a.State)
	}
}

// TestFirstErrorOnly fails a request that is followed by requests that complete on the first
// error only, on success too, and on every error: the first kind is flushed without a
// completion.
func TestFirstErrorOnly(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		const firstError = 1 << 2
		mr, at := p.a.mr(64, 1)
		bad := newWQE(prm.OpWrite, 0, 0, firstError).raddr(0x1000, 0xbad00).data(at, 8, mr.LKey())
		p.qa.post(bad, newWQE(prm.OpNop, 0, 0, firstError), newWQE(prm.OpNop, 0, 0, prm.FlagCQUpdate), newWQE(prm.OpNop, 0, 0, firstError), newWQE(prm.OpNop, 0, 0, 0))
		for i, want := range []struct {
			syndrome prm.Syndrome
			after    uint16 // the failed request
		}{{prm.SyndromeRemoteAccess, 0}, {prm.SyndromeFlush, 2}, {prm.SyndromeFlush, 4}} {
			if c := p.qa.send.waitCQE(); c.Opcode != prm.CQERequesterErr || c.Syndrome != want.syndrome || c.Counter != want.after {
				t.Errorf("completion %d: %+v, want syndrome %#x of request %d", i, c, want.syndrome, want.after)
			}
		}
	})
}

// TestNumberReuse registers memory again: a region of the same PD, length and rights gets the
// number that was freed last.
func TestNumberReuse(t *testing.T) {
	p := lone(t)
	reg := func(pd *adapter.PD, n uint64, access uint32) *adapter.MR {
		m, err := p.ctx.RegMR(nil, pd, p.mem.alloc(4096), n, base, access)
		fatal.If(t, err)
		return m
	}
	other, err := p.ctx.AllocPD()
	fatal.If(t, err)
	a, b := reg(p.pd, 4096, 7), reg(p.pd, 4096, 7)
	for _, m := range []*adapter.MR{a, b} {
		fatal.If(t, m.Close())
	}
	for name, m := range map[string]*adapter.MR{"length": reg(p.pd, 4095, 7), "rights": reg(p.pd, 4096, 1), "PD": reg(other, 4096, 7)} {
		if n := m.LKey(); n == a.LKey() || n == b.LKey() {
			t.Errorf("a region of another %s has the number %#x of one that was deregistered", name, n)
		}
	}
	again := []*adapter.MR{reg(p.pd, 4096, 7), reg(p.pd, 4096, 7), reg(p.pd, 4096, 7)}
	if again[0].LKey() != b.LKey() || again[1].LKey() != a.LKey() || again[2].LKey() == a.LKey() {
		t.Errorf("numbers %#x, %#x, %#x; %#x was freed last and %#x before it", again[0].LKey(), again[1].LKey(), again[2].LKey(), b.LKey(), a.LKey())
	}
}
