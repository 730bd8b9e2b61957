package pci

import (
	"strings"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// TestEveryBitOfContexts sets each bit of each context once, in the driver's commands and in those of a program: a command
// is refused for it exactly if the table of contexts says so.
func TestEveryBitOfContexts(t *testing.T) {
	commands, bits, refused := 0, 0, 0
	var reason string
	d := booted(t, Config{Tracer: reasons(func(why string) { reason = why })})
	_, out := d.exec(build(prm.CmdCreateUser, 0, 0x40), 16)
	user := prm.Bits(out, 0x50, 16)
	done := map[*prm.Context]bool{} // commands share contexts: the first stands for all
	for c := range prm.Command(0xb00) {
		ctx, spec := c.Context(), c.Spec()
		if ctx == nil || done[ctx] {
			continue
		}
		done[ctx] = true
		for _, uid := range []uint64{0, user} {
			if uid == 0 && !spec.Has(prm.ByDriver) || uid != 0 && !spec.Has(prm.ByUser) {
				continue
			}
			commands++
			for bit := range ctx.Bits {
				in := build(c, 0, max(spec.In, (ctx.Off+ctx.Bits)/8), [3]uint64{0x10, 16, uid}, [3]uint64{uint64(ctx.Off + bit), 1, 1})
				reason = ""
				_, out := d.exec(in, 0x200)
				bits++
				why := ctx.Check(in, uid == 0)
				if was := why != "" && strings.HasSuffix(reason, why); was != (why != "") || was && prm.CommandStatus(out[0]) != prm.CmdBadParam {
					t.Errorf("%v of user %d, bit %#x: status %v, %q, want %q", c, uid, bit, prm.CommandStatus(out[0]), reason, why)
				} else if was {
					refused++
				} else if strings.Contains(reason, "must be 0") && strings.Contains(reason, "context") {
					t.Errorf("%v of user %d, bit %#x: %q", c, uid, bit, reason)
				}
			}
		}
	}
	if refused == 0 || commands < 15 {
		t.Errorf("%d commands, %d bits refused", commands, refused)
	}
	t.Logf("%d bits of %d contexts: %d are refused", bits, commands, refused)
}

// reasons is a tracer that passes the reason of each refused command on.
type reasons func(string)

func (f reasons) Trace(r *adapter.Record) {
	if r.Reason != "" {
		f(r.Reason)
	}
}
