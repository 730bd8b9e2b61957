package pci

import (
	"testing"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// TestSRQLimit sets the limits of the two shared receive queues that Linux makes when it boots, one
// of them of an XRC domain, and queries them.
func TestSRQLimit(t *testing.T) {
	d := newDriver(t, Config{})
	found := 0
	for _, c := range readBoot(t) {
		_, out := d.exec(c.In, len(c.Out))
		op, _ := prm.OpcodeOf(c.In)
		number := prm.NumberOf(out)
		exec := func(op prm.Command, n, outLen int, fields ...[3]uint64) (prm.CommandStatus, []byte) {
			in := build(op, 0, n, fields...)
			prm.PutNumber(in, number)
			_, out := d.exec(in, outLen)
			return prm.CommandStatus(out[0]), out
		}
		posted := func(record uint64) { d.put(record, []byte{0, 0, 0, 2}) }
		const limit = 1
		var st prm.CommandStatus
		var got uint64
		switch op {
		case prm.CmdCreateRMP:
			posted(prm.ParseWorkQueue(c.In).DBAddr)
			if st, _ := exec(prm.CmdModifyRMP, 0x110, 16, [3]uint64{0xbe, 1, 1}, [3]uint64{0x2b0, 16, limit}); st != prm.CmdBadParam {
				t.Errorf("a change of something else: status %v", st)
			}
			if st, _ := exec(prm.CmdArmXRCSRQ, 16, 16, [3]uint64{0x70, 16, limit}); st != prm.CmdBadResource {
				t.Errorf("ARM_XRC_SRQ for an RMP: status %v", st)
			}
			st, _ = exec(prm.CmdModifyRMP, 0x110, 16, [3]uint64{0xbf, 1, 1}, [3]uint64{0x2b0, 16, limit})
			_, out = exec(prm.CmdQueryRMP, 16, 0x110)
			got = prm.Bits(out, 0x2b0, 16)
			if state := prm.Bits(out, 0x108, 4); state != 1 {
				t.Errorf("state %d of the RMP", state)
			}
		case prm.CmdCreateXRCSRQ:
			posted(prm.ParseCreateXRCSRQ(c.In).DBAddr)
			st, _ = exec(prm.CmdArmXRCSRQ, 16, 16, [3]uint64{0x70, 16, limit})
			_, out = exec(prm.CmdQueryXRCSRQ, 16, 0x70)
			got = prm.Bits(out, 0x160, 16)
		default:
			continue
		}
		found++
		if st != prm.CmdOK || got != limit {
			t.Errorf("%v: status %v, limit %d", op, st, got)
		}
	}
	if found != 2 {
		t.Errorf("%d queues in the boot", found)
	}
}
