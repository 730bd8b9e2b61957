package pci

import (
	"bytes"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// TestDeviceMemory allocates device memory as a driver does, and as it does not, and looks at it through BAR 0.
func TestDeviceMemory(t *testing.T) {
	d := booted(t, Config{})
	command := func(op prm.Command, align, size uint32, from uint64, room uint32) prm.CommandStatus {
		in := build(op, 0, 0x20, [3]uint64{0x78, 8, uint64(align)}, [3]uint64{0x80, 64, from})
		if op == prm.CmdDeallocMEMIC {
			prm.SetBits(in, 0xc0, 32, uint64(size))
		} else {
			prm.SetBits(in, 0xc0, 32, uint64(room))
			prm.SetBits(in, 0xe0, 32, uint64(size))
		}
		_, out := d.exec(in, 16)
		return prm.CommandStatus(out[0])
	}
	for _, c := range []struct {
		name        string
		align, size uint32
		from        uint64
		room        uint32
		want        prm.CommandStatus
	}{
		{"nothing", 0, 0, memicStart, 4096, prm.CmdBadParam},
		{"more than the most", 0, memicMost + 1, memicStart, memicSize, prm.CmdBadParam},
		{"an alignment above a page's", memicLogAlignment + 1, 64, memicStart, 4096, prm.CmdBadParam},
		{"before the memory", 0, 64, memicStart - 4096, 4096, prm.CmdBadParam},
		{"in the middle of a page", 0, 64, memicStart + 64, 4096, prm.CmdBadParam},
		{"behind the BAR", 0, 64, barSize, 4096, prm.CmdBadParam},
		{"a range that ends behind the BAR", 0, 64, barSize - 4096, 8192, prm.CmdBadParam},
		{"a range that wraps around", 0, 64, ^uint64(4095), 8192, prm.CmdBadParam},
		{"a page", 6, 64, memicStart + 4096, 4096, prm.CmdOK},
		{"the same page", 0, 64, memicStart + 4096, 4096, prm.CmdExceedLimit},
		{"another one in a range that begins there", 0, 64, memicStart + 4096, 8192, prm.CmdOK},
	} {
		if got := command(prm.CmdAllocMEMIC, c.align, c.size, c.from, c.room); got != c.want {
			t.Errorf("%s: status %v, want %v", c.name, got, c.want)
		}
	}
	const page = memicStart + 4096
	see := func(want byte) {
		t.Helper()
		b := bytes.Repeat([]byte{0xee}, 8)
		d.dev.ReadBAR(page+8, b)
		if !bytes.Equal(b, bytes.Repeat([]byte{want}, 8)) {
			t.Errorf("the page has %x, want bytes of %#x", b, want)
		}
	}
	see(0)
	d.dev.WriteBAR(page+8, bytes.Repeat([]byte{7}, 8))
	see(7)
	d.dev.WriteBAR(memicStart, bytes.Repeat([]byte{7}, 8)) // not allocated
	if status := command(prm.CmdDeallocMEMIC, 0, 64, page, 0); status != prm.CmdOK {
		t.Errorf("it cannot be freed: %v", status)
	}
	see(0)
	d.dev.WriteBAR(page+8, bytes.Repeat([]byte{7}, 8))
	see(0)
	if status := command(prm.CmdDeallocMEMIC, 0, 64, page, 0); status != prm.CmdBadParam {
		t.Errorf("it can be freed twice: %v", status)
	}
	// A reset frees everything.
	if status := command(prm.CmdAllocMEMIC, 0, 64, page, 4096); status != prm.CmdOK {
		t.Fatal(status)
	}
	d.dev.WriteBAR(page+8, bytes.Repeat([]byte{7}, 8))
	d.dev.Reset()
	see(0)
}
