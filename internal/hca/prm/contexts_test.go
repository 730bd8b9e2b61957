package prm

import "testing"

// TestContexts: fields of contexts whose effect the device does not have are refused by name.
func TestContexts(t *testing.T) {
	for _, v := range []struct {
		c      Command
		off, n int // in the context
		value  uint64
		kernel bool
		want   string
	}{
		{CmdCreateCQ, 0x04, 1, 1, true, "as_notify 0x1: must be 0"},
		{CmdCreateCQ, 0x07, 1, 1, true, "apu_cq 0x1: must be 0"},
		{CmdCreateCQ, 0x08, 3, 1, false, ""},
		{CmdCreateCQ, 0x08, 3, 2, false, "cqe_sz 0x2: must be 0 or 1"},
		{CmdCreateCQ, 0x08, 3, 7, false, "cqe_sz 0x7: must be 0 or 1"},
		{CmdCreateCQ, 0x0b, 4, 9, false, ""}, // cc and oi
		{CmdCreateCQ, 0x0c, 1, 1, false, "bit 0xc of the context is reserved: must be 0"},
		{CmdCreateCQ, 0x0d, 1, 1, false, "scqe_break_moderation_en 0x1: must be 0"},
		{CmdCreateQP, 0x13, 2, 1, true, "pm_state 0x1: must be 0 or 3"},
		{CmdCreateQP, 0x13, 2, 3, false, ""},
		{CmdCreateQP, 0x16, 2, 1, true, "req_e2e_credit_mode 0x1: must be 0"},
		{CmdCreateQP, 0x20, 1, 1, true, "wq_signature 0x1: must be 0"},
		{CmdCreateQP, 0x5b, 1, 1, true, ""},
		{CmdCreateQP, 0x5b, 1, 1, false, "rlky 0x1: only a kernel driver has it"},
		{CmdInit2RTRQP, 0x37f, 1, 1, true, "secondary_address_path 0x1: must be 0"},
		{CmdCreateQP, 0x49e, 1, 1, true, "cd_slave_send 0x1: must be 0"},
		{CmdRTR2RTSQP, 0x49f, 1, 1, true, "cd_master 0x1: must be 0"},
		{CmdCreateMKey, 0x20, 24, 0xffffff, false, ""},
		{CmdCreateMKey, 0x20, 24, 7, false, "qpn 0x7: must be 0 or 16777215"},
		{CmdModifyRMP, 0x184, 1, 1, false, "wq.wq_signature 0x1: must be 0"},
		{CmdCreateTIR, 0x24, 1, 1, true, "tls_en 0x1: must be 0"},
	} {
		ctx := v.c.Context()
		in := make([]byte, (ctx.Off+ctx.Bits)/8)
		SetBits(in, ctx.Off+v.off, v.n, v.value)
		if got := ctx.Check(in, v.kernel); got != v.want {
			t.Errorf("%v, %#x at bit %#x: %q, want %q", v.c, v.value, v.off, got, v.want)
		}
		if got := ctx.Check(in[:ctx.Off/8], v.kernel); got != "" { // what a command does not have is 0
			t.Errorf("%v without a context: %q", v.c, got)
		}
	}
	// No two lines of a context have the same bit: a line that is meant for the next field would hide it.
	for c, ctx := range contexts {
		seen := make([]string, ctx.Off+ctx.Bits)
		for _, f := range ctx.fields {
			for bit := f.off; bit < f.off+f.bits; bit++ {
				if seen[bit] != "" {
					t.Fatalf("%v, bit %#x: %s and %s", c, bit-ctx.Off, seen[bit], f.name)
				}
				seen[bit] = f.name
			}
		}
	}
}
