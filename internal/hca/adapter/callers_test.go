package adapter_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/roce/inproc"
)

// TestCommandsOfContexts sends every command to a program's context and to a guest's. A guest has commands that programs
// do not need, because their library asks the kernel instead; programs have DCTs. Both have a command of the least
// size, and neither one that is longer or shorter or whose answer has too little room.
func TestCommandsOfContexts(t *testing.T) {
	ofGuests := []prm.Command{
		prm.CmdAttachMCG, prm.CmdDetachMCG, prm.CmdQueryCQ, prm.CmdModifyCQ, prm.CmdRTS2RTSQP, prm.CmdSQErr2RTSQP, prm.CmdSQD2RTSQP, prm.CmdModifyRMP, prm.CmdQueryRMP,
		prm.CmdCreateXRCSRQ, prm.CmdDestroyXRCSRQ, prm.CmdQueryXRCSRQ, prm.CmdArmXRCSRQ, prm.CmdAllocXRCD, prm.CmdDeallocXRCD,
	}
	ofPrograms := []prm.Command{prm.CmdCreateDCT, prm.CmdDestroyDCT, prm.CmdDrainDCT, prm.CmdQueryDCT}
	ofBoth := []prm.Command{
		prm.CmdQueryHCACap, prm.CmdQueryNICVPort, prm.CmdQueryLAG, prm.CmdAllocPD, prm.CmdDeallocPD, prm.CmdAllocDomain, prm.CmdDeallocDomain,
		prm.CmdCreateUmem, prm.CmdDestroyUmem, prm.CmdCreateCQ, prm.CmdDestroyCQ, prm.CmdCreateQP, prm.CmdDestroyQP, prm.CmdQueryQP,
		prm.CmdRst2InitQP, prm.CmdInit2InitQP, prm.CmdInit2RTRQP, prm.CmdRTR2RTSQP, prm.CmdToErrQP, prm.CmdToRstQP, prm.CmdCreateRMP, prm.CmdDestroyRMP,
		prm.CmdCreateMKey, prm.CmdDestroyMKey, prm.CmdCreatePSV, prm.CmdDestroyPSV, prm.CmdCreateObject, prm.CmdQueryObject, prm.CmdDestroyObject,
	}
	for _, guest := range []bool{false, true} {
		p := start(t, inproc.NewNetwork(nil), netip.MustParseAddr("10.0.0.1"), options{guest: guest})
		for c := range prm.Command(0x1000) {
			exec := func(in, out int) prm.CommandStatus {
				b, _ := p.ctx.Exec(0, command(c, 0, in), out)
				st, _ := prm.StatusOf(b)
				return st
			}
			has := slices.Contains(ofBoth, c) || slices.Contains(map[bool][]prm.Command{false: ofPrograms, true: ofGuests}[guest], c)
			s := c.Spec()
			if st := exec(max(s.In, prm.CommandHeaderSize), max(s.Out, prm.CommandHeaderSize)); (st == prm.CmdBadOp) == has {
				t.Errorf("%v, guest %t: status %v", c, guest, st)
			}
			if !has {
				continue
			}
			if st := exec(s.In-1, s.Out); st != prm.CmdBadInputLen {
				t.Errorf("%v of %d bytes: status %v", c, s.In-1, st)
			}
			if st := exec(s.Most+1, s.Out); st != prm.CmdBadInputLen {
				t.Errorf("%v of %d bytes: status %v", c, s.Most+1, st)
			}
			if st := exec(s.In, s.Out-1); s.Out > prm.CommandHeaderSize && st != prm.CmdBadOutputLen {
				t.Errorf("%v, room for %d bytes: status %v", c, s.Out-1, st)
			}
		}
	}
}
