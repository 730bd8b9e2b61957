package interop

import (
	"path/filepath"
	"testing"

	"github.com/softmkey/softmkey/interop/guest"
)

// TestDMABuf registers a dma-buf under softmkey run in a guest, because few hosts of tests have an exporter. Debian's
// kernels have udmabuf from 6.12 on.
func TestDMABuf(t *testing.T) {
	if testing.Short() {
		t.Skip("virtual machines boot in the long form")
	}
	example := filepath.Join(t.TempDir(), "dmabuf")
	mustRun(t, "../examples/c", "gcc", "-Wall", "-O1", "-o", example, "dmabuf.c", "pair.c", "-libverbs", "-lmlx5")
	program, err := command()
	check(t, err)
	const script = "step dmabuf softmkey run --device 10.96.0.1 -v -- /sbin/dmabuf\n"
	kernels := pciKernels(t)
	onKernels(t, guest.PCI{RDMA: true, Script: script, Programs: []string{program, example}}, kernels[len(kernels)-1:], func(t *testing.T, softmkey, dir string, image guest.Image) {
		startPCI(t, softmkey, dir, "guest", "unix:"+filepath.Join(dir, "cable"), "pci.addr=10.96.0.1 pci.peer=10.96.0.1", image).done("dmabuf")
	})
}
