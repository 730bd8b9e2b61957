package interop

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/softmkey/softmkey/internal/tool/nvmet/nvme"
	"github.com/softmkey/softmkey/internal/tool/nvmet/pitable"
	"github.com/softmkey/softmkey/interop/guest"
	"github.com/softmkey/softmkey/verbs"
)

// linuxStatus returns the status of Linux's target over a disk of scsi_debug. Where the specification is different:
//   - There is no Compare.
//   - The disk checks guards and reference tags whatever PRCHK says, those of a write although they are escaped. Its
//     errors become internal errors.
//   - The command's reference tag need not be that of the block. The blocks are checked against it.
//   - With PRACT, a write gives all blocks the same reference tag if PRCHK does not ask for its check.
func linuxStatus(r *pitable.Row) nvme.Status {
	disk := pitable.Command{PRInfo: nvme.PRGuard | nvme.PRRef, Ref: r.LBA}
	switch {
	case r.Op == nvme.Compare:
		return nvme.InvalidOpcode
	case r.Op == nvme.Read && disk.Check(r.Medium, true) != nvme.Success:
		return nvme.InternalError
	case r.Op == nvme.Read:
		return r.Check(r.Medium, true)
	case r.Act() && (r.PRInfo&nvme.PRRef == 0 || r.Ref != r.LBA):
		return nvme.InternalError
	case r.Act():
		return nvme.Success
	}
	s := r.Check(r.Wire, true)
	if s == nvme.Success && disk.Check(r.Wire, false) != nvme.Success {
		return nvme.InternalError
	}
	return s
}

// TestPCIProtection executes the commands of pitable at two targets: softmkey target, which must answer as the
// specification says, and Linux's in a guest.
func TestPCIProtection(t *testing.T) {
	eachKernel(t, nvmeGuest(pitable.Block, "ordered"), func(t *testing.T, softmkey, dir string, image guest.Image) {
		tap(t, "pcitap0", "10.92.0.1/24")
		mustRun(t, "", "ip", "addr", "add", "10.92.0.3/24", "dev", "pcitap0")
		// Pages that are free are zero, so that only those in use are found.
		g := startPCI(t, softmkey, dir, "target", "pcitap0", "pci.addr=10.92.0.2 pci.peer=10.92.0.1 pci.role=target oops=panic init_on_free=1", image)
		clean, dif := filepath.Join(dir, "img"), filepath.Join(dir, "dif")
		check(t, os.WriteFile(clean, make([]byte, 8<<20), 0o600))
		mustRun(t, "", softmkey, "protect", "-q", "--sig", "t10dif", clean, dif)
		file, err := os.OpenFile(dif, os.O_RDWR, 0)
		check(t, err)
		defer file.Close()
		startTarget(t, softmkey, "--sig", "t10dif", "--device", "10.92.0.3", "--nqn", "s1", dif)
		dev, err := verbs.Open(netip.MustParseAddr("10.92.0.1"), nil)
		check(t, err)
		closeLater(t, dev)

		ours := &pitable.Target{Queue: pitable.Connect(t, dev, netip.MustParseAddrPort("10.92.0.3:4420"), "s1")}
		ours.Put = func(n int, block []byte) {
			_, err := file.WriteAt(block, int64(n)*pitable.Stride)
			check(t, err)
		}
		for _, r := range ours.Run(t) {
			if want := r.Status(r.Wire, r.Medium); r.Got != want {
				t.Errorf("softmkey target: %s, PRINFO %04b: %v, want %v", r.What, r.PRInfo, r.Got, want)
			}
		}

		g.lines("pci: obeys")
		theirs := &pitable.Target{Queue: pitable.Connect(t, dev, netip.MustParseAddrPort("10.92.0.2:4420"), "s1")}
		blocks, tuples := theirs.Prepare(), []byte(nil)
		for i := range len(blocks) / pitable.Stride {
			tuples = append(tuples, blocks[i*pitable.Stride+pitable.Block:][:8]...)
		}
		// The disk is in the guest's memory: the data in one page, the fields in another.
		memory := g.memory()
		dataPages, tuplePages := memory.pages(blocks[:pitable.Block]), memory.pages(tuples)
		theirs.Put = func(n int, block []byte) {
			for at := range dataPages {
				memory.write(at+int64(n)*pitable.Block, block[:pitable.Block])
			}
			for at := range tuplePages {
				memory.write(at+int64(n)*8, block[pitable.Block:])
			}
		}
		same, all := 0, 0
		for _, r := range theirs.Run(t) {
			if want := linuxStatus(&r); r.Got != want {
				t.Errorf("Linux's target: %s, PRINFO %04b: %v, want %v", r.What, r.PRInfo, r.Got, want)
			}
			if r.Op != nvme.Compare {
				all++
				if r.Got == r.Status(r.Wire, r.Medium) {
					same++
				}
			}
		}
		t.Logf("Linux's target answers %d of %d reads and writes as the specification says", same, all)
		g.begin("end", "")
		g.lines("pci: ready")
	})
}
