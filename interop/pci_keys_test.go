package interop

import (
	"path/filepath"
	"testing"

	"github.com/softmkey/softmkey/interop/guest"
)

// Programs of a guest give memory keys signatures and crypto attributes by mlx5dv of their own
// libmlx5. They are those of examples/c, which compare what the peer sees with reference
// implementations: the AES-XTS of OpenSSL, CRCs one bit at a time.
func TestPCIKeys(t *testing.T) {
	if testing.Short() {
		t.Skip("virtual machines boot in the long form")
	}
	examples := []string{"crypto", "signature", "blocks", "layout", "domains", "pipelining", "objects", "completions"}
	parts := map[string]string{"objects": "atomics devmem events import windows"}
	script, steps, programs := "step gids eventually gid ffff 3\n", []string{"gids"}, []string(nil)
	dir := t.TempDir()
	for _, name := range examples {
		program := filepath.Join(dir, name)
		mustRun(t, "../examples/c", "gcc", "-Wall", "-O1", "-o", program, name+".c", "pair.c", "-libverbs", "-lmlx5", "-lcrypto")
		programs = append(programs, program)
		script += "step " + name + " timeout 60 " + name + " " + parts[name] + "\n"
		steps = append(steps, name)
	}
	eachKernel(t, guest.PCI{RDMA: true, Script: script, Programs: programs}, func(t *testing.T, softmkey, dir string, image guest.Image) {
		// The guest is its own peer.
		startPCI(t, softmkey, dir, "guest", "unix:"+filepath.Join(dir, "cable"), "pci.addr=10.96.0.1 pci.peer=10.96.0.1", image).done(steps...)
	})
}
