package adapter_test

import (
	"strings"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/roce/inproc"
)

// TestEveryBitOfContexts sets each bit of each context once: a command is refused for it exactly if the table of contexts
// says so. Package pci has the same test for the commands of a guest.
func TestEveryBitOfContexts(t *testing.T) {
	commands, bits, refused := 0, 0, 0
	for _, guest := range []bool{false, true} {
		p := start(t, inproc.NewNetwork(nil), testAddr, options{guest: guest})
		for c := range prm.Command(0xb00) {
			caller := prm.ByProgram
			if guest {
				caller = prm.ByDriver
			}
			ctx, spec := c.Context(), c.Spec()
			if ctx == nil || !spec.Has(caller) {
				continue
			}
			if out, _ := p.ctx.Exec(0, command(c, 0, max(spec.In, 16)), 0x200); prm.CommandStatus(out[0]) == prm.CmdBadOp {
				continue // package pci executes it
			}
			commands++
			for bit := range ctx.Bits {
				in := command(c, 0, max(spec.In, (ctx.Off+ctx.Bits)/8))
				prm.SetBits(in, ctx.Off+bit, 1, 1)
				out, err := p.ctx.Exec(0, in, 0x200)
				status, _ := prm.StatusOf(out)
				bits++
				why := ctx.Check(in, guest)
				was := err != nil && strings.Contains(err.Error(), "(a field of the context has another value than it may have): ")
				if was != (why != "") || was && (status != prm.CmdBadParam || !strings.Contains(err.Error(), why)) {
					t.Errorf("%v, guest %t, bit %#x: status %v, %v, want %q", c, guest, bit, status, err, why)
				} else if was {
					refused++
				}
			}
		}
	}
	if refused == 0 || commands < 20 {
		t.Errorf("%d commands, %d bits refused", commands, refused)
	}
	t.Logf("%d bits of %d contexts: %d are refused", bits, commands, refused)
}

// TestCollapsedCQ: every completion is written to the first entry, and the number of its request says how far the
// device is. Without overrun ignore, the consumer index counts as that of a ring.
func TestCollapsedCQ(t *testing.T) {
	for _, ignore := range []bool{true, false} {
		p := start(t, inproc.NewNetwork(nil), testAddr, options{})
		ring := p.cq(8, func(a *adapter.CQAttr) { a.Collapsed, a.IgnoreOverrun = true, ignore })
		q := ring.loopback()
		first := func() prm.CQE { c, _ := prm.ParseCQE(p.mem.get(ring.buf, 64)); return c }
		for i := range 20 {
			index := q.post(newWQE(prm.OpNop, 0, 0, prm.FlagCQUpdate))
			if !ignore && i == 8 {
				p.ctx.Poll()
				if e := <-p.events; e.obj != ring.CQ || first().Counter == index {
					t.Errorf("event %v of a CQ that nobody polls, %+v", e, first())
				}
				break
			}
			for deadline := time.Now().Add(20 * time.Second); first().Opcode != prm.CQERequester || first().Counter != index; p.ctx.Poll() {
				if time.Now().After(deadline) {
					t.Fatalf("request %d: the first entry has %+v", index, first())
				}
			}
		}
		for i := uint64(1); i < 8; i++ {
			if b := p.mem.get(ring.buf+64*i, 64); b[63]>>4 != byte(prm.CQEInvalid) {
				t.Errorf("entry %d was written: %x", i, b)
			}
		}
	}
}
