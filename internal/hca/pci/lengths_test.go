package pci

import (
	"testing"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// TestLargeCounts executes commands whose counts have 32 bits, all of them set or only the top one. On a
// processor with words of 32 bits such a count is negative as an int. Each command is answered, and the
// function executes the next one.
func TestLargeCounts(t *testing.T) {
	d := booted(t, Config{})
	for _, count := range []uint64{0xffffffff, 0x80000000, 0x7fffffff} {
		for _, row := range []struct {
			name string
			op   prm.Command
			mod  uint16
			off  uint64
			want prm.CommandStatus
		}{
			{"MANAGE_PAGES, give", prm.CmdManagePages, 1, 0x60, prm.CmdExceedLimit},
			{"MANAGE_PAGES, take", prm.CmdManagePages, 2, 0x60, prm.CmdOK},
			{"MANAGE_PAGES, give back nothing", prm.CmdManagePages, 0, 0x60, prm.CmdOK},
		} {
			in := build(row.op, row.mod, 64, [3]uint64{row.off, 32, count})
			if status, out := d.exec(in, 64); status != deliverOK || prm.CommandStatus(out[0]) != row.want {
				t.Errorf("%s of %#x: delivery status %#x, status %v, want %v", row.name, count, status, prm.CommandStatus(out[0]), row.want)
			}
		}
	}
}
