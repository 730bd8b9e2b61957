package interop

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/softmkey/softmkey/interop/guest"
)

// TestPCIControl takes the link of a guest's adapter away and gives it back, fails one of its QPs, and then the whole
// adapter, which the guest's driver resets.
func TestPCIControl(t *testing.T) {
	withoutUML(t, mapped)
	const script = `
port() { grep -q "$1" /sys/class/infiniband/mlx5_0/ports/1/state && [ "$(cat /sys/class/net/$nic/carrier)" = "$2" ]; }
queue() { rdma resource show qp | grep RC; }
state() { rdma resource show qp lqpn "$1" | grep -q "state $2"; }
said() { dmesg | grep -q "$1"; }
step gids eventually gid ffff 3
ibv_rc_pingpong -g 3 >/dev/null &
obey
`
	eachKernel(t, guest.PCI{RDMA: true, Script: script, Programs: []string{"rdma"}}, func(t *testing.T, softmkey, dir string, image guest.Image) {
		socket := filepath.Join(dir, "control")
		g := startPCI(t, softmkey, dir, "guest", "unix:"+filepath.Join(dir, "cable"), "pci.addr=10.96.0.1 pci.peer=10.96.0.1", image, "--control", socket)
		control := func(args ...string) {
			t.Helper()
			mustRun(t, "", softmkey, append([]string{"control", socket}, args...)...)
		}
		g.lines("pci: obeys")
		g.order("up", "eventually port ACTIVE 1")
		control("port", "down")
		g.order("down", "eventually port DOWN 0")
		control("port", "up")
		g.order("again", "eventually port ACTIVE 1")

		g.order("queue", "eventually queue")
		text := g.text()
		m := regexp.MustCompile(`queue: .*lqpn (\d+) .*type RC`).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no QP: %s", text)
		}
		control("qp", m[1], "error")
		g.order("error", "eventually state "+m[1]+" ERR")

		control("device", "fatal")
		g.order("fatal", "eventually said 'Fatal error'")
		g.order("reset", "eventually said 'recovery succeeded'")
		g.order("recovered", "eventually interface && $ip link set $nic up && eventually port ACTIVE 1")
		g.begin("end", "")
		g.done("up", "down", "again", "queue", "error", "fatal", "reset", "recovered")
	})
}
