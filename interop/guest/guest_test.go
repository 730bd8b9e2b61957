package guest

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// TestArchive unpacks an archive with busybox.
func TestArchive(t *testing.T) {
	a := archive{}
	a.add("/sbin/deep/program", entry{mode: modeExec, data: []byte("abcde")})
	a.add("/etc/empty", entry{mode: modeFile})
	unpack := exec.Command("busybox", "cpio", "-idv")
	unpack.Dir, unpack.Stdin = t.TempDir(), strings.NewReader(string(a.bytes()))
	text, err := unpack.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	list := exec.Command("busybox", "find", ".", "-type", "f", "-exec", "busybox", "stat", "-c", "%n %a %s", "{}", ";")
	list.Dir = unpack.Dir
	out, err := list.Output()
	fatal.If(t, err)
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(got)
	if want := []string{"./etc/empty 644 0", "./sbin/deep/program 755 5"}; !slices.Equal(got, want) {
		t.Errorf("unpacked %q, want %q", got, want)
	}
}

// TestModuleOrder checks that every module is inserted after its dependencies. The pairs
// come from an order that is known to work.
func TestModuleOrder(t *testing.T) {
	m, err := findModules("../../.cache/interop/kernel/lib/modules")
	fatal.If(t, err)
	for _, name := range wanted {
		fatal.If(t, m.require(name))
	}
	var order []string
	for _, file := range m.ordered {
		order = append(order, strings.TrimSuffix(filepath.Base(file), ".ko"))
	}
	for _, pair := range [][2]string{
		{"virtio", "virtio_pci"}, {"virtio_ring", "virtio_pci"}, {"net_failover", "virtio_net"}, {"failover", "net_failover"},
		{"ib_core", "ib_uverbs"}, {"ib_uverbs", "rdma_rxe"}, {"udp_tunnel", "rdma_rxe"}, {"rdma_cm", "rdma_ucm"}, {"iw_cm", "rdma_cm"},
	} {
		first, second := slices.Index(order, pair[0]), slices.Index(order, pair[1])
		if first < 0 || second < first {
			t.Errorf("%s does not come before %s in %v", pair[0], pair[1], order)
		}
	}
	if m.require("no_such_module") == nil {
		t.Error("a module that does not exist was found")
	}
}
