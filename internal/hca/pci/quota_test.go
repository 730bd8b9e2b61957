package pci

import (
	"testing"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// TestQuota makes CQs by commands with long lists of pages until the function refuses. There is
// room again after one was destroyed, and for all after TEARDOWN_HCA.
func TestQuota(t *testing.T) {
	d := newDriver(t, Config{})
	var cqs []uint32
	exec := func(op prm.Command, number uint32, n int) prm.CommandStatus {
		t.Helper()
		in := build(op, 0, n)
		if op == prm.CmdCreateCQ {
			prm.CQContext{LogSize: 6, UAR: barFirstUAR, EQN: 1, DBAddr: 0x1000}.Put(in)
		} else if number != 0 {
			prm.PutNumber(in, number)
		}
		status, out := d.exec(in, 16)
		if status != deliverOK {
			t.Fatalf("%v: delivery status %#x", op, status)
		}
		if op == prm.CmdCreateCQ && out[0] == 0 {
			cqs = append(cqs, prm.NumberOf(out))
		}
		return prm.CommandStatus(out[0])
	}
	boot := func() {
		for _, c := range readBoot(t) {
			if op, _ := prm.OpcodeOf(c.In); op == prm.CmdCreateCQ {
				return
			}
			d.exec(c.In, len(c.Out))
		}
	}
	boot()
	const size = 1 << 16
	q := &d.dev.firmware().memory
	before := q.bytes
	q.bytes = mostObjectBytes - pageFactor*size*3/2 // as if there were so many
	for _, step := range []struct {
		name  string
		op    prm.Command
		bytes int
		want  prm.CommandStatus
	}{
		{"a CQ with a long list", prm.CmdCreateCQ, size, prm.CmdOK},
		{"a CQ too many", prm.CmdCreateCQ, size, prm.CmdExceedLimit},
		{"a small object", prm.CmdAllocPD, 16, prm.CmdOK},
		{"the end of the CQ", prm.CmdDestroyCQ, 16, prm.CmdOK},
		{"a CQ in its place", prm.CmdCreateCQ, size, prm.CmdOK},
	} {
		var number uint32
		if step.op == prm.CmdDestroyCQ {
			number = cqs[0]
		}
		if s := exec(step.op, number, step.bytes); s != step.want {
			t.Errorf("%s: status %v, want %v", step.name, s, step.want)
		}
	}
	exec(prm.CmdTeardownHCA, 0, 16)
	boot()
	if n := q.bytes; n != before {
		t.Errorf("%d bytes are counted after TEARDOWN_HCA and a boot, want %d", n, before)
	}
}
