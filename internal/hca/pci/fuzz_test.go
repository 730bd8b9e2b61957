package pci

import (
	"testing"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// FuzzCommand executes a command with arbitrary bytes on a function that a recorded boot
// has brought up. Each must be answered, and the function must stay usable.
func FuzzCommand(f *testing.F) {
	boot := readBoot(f)
	known := make(map[prm.Command]bool)
	for _, c := range boot {
		op, _ := prm.OpcodeOf(c.In)
		if !known[op] {
			known[op] = true
			f.Add(c.In, uint16(len(c.Out)))
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, outLen uint16) {
		if len(in) < minCommand || len(in) > 1<<16 {
			return
		}
		d := newDriver(t, Config{})
		for _, c := range boot[:len(boot)/2] {
			d.exec(c.In, len(c.Out))
		}
		if status, _ := d.exec(in, max(minCommand, int(outLen))); status != deliverOK {
			t.Fatalf("delivery status %#x", status)
		}
		if status, out := d.exec(build(prm.CmdQueryISSI, 0, 16), 112); status != deliverOK || out[0] != 0 {
			t.Fatalf("QUERY_ISSI: delivery %#x, status %#x", status, out[0])
		}
	})
}
