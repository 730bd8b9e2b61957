package interop

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/interop/guest"
)

// toolsScript is the /script of a guest in which an operator looks around. A step that must fail says so.
const toolsScript = `
# counted: queue pairs get sets of counters of their own, and a write counts in those of its queue pair.
counted() {
	rdma statistic qp set link mlx5_0/1 auto type on || return
	ib_write_bw -x 3 -D 60 >/dev/null 2>&1 &
	for i in 1 2 3 4 5 6 7 8 9; do sleep 1; ib_write_bw -x 3 -D 60 $addr >/dev/null 2>&1 && break; done &
	eventually count
	code=$?
	cat /tmp/statistic
	kill $!
	killall ib_write_bw
	wait
	rdma statistic qp set link mlx5_0/1 auto off
	return $code
}
count() { rdma statistic qp show link mlx5_0/1 >/tmp/statistic; grep -q "rx_write_requests [1-9]" /tmp/statistic; }
step gids eventually gid ffff 3
step driver ethtool -i $nic
step link ethtool $nic
step statistics ethtool -S $nic
step features ethtool -k $nic
step coalescing ethtool -c $nic
step coalesce ethtool -C $nic adaptive-rx off rx-usecs 16 rx-frames 8
step rings ethtool -g $nic
step channels ethtool -l $nic
step rss ethtool -x $nic
step timestamps ethtool -T $nic
step selftest ethtool -t $nic online
ethtool -m $nic >/tmp/said 2>&1 && echo "pci: module failed"
cat /tmp/said
ethtool -a $nic >/tmp/said 2>&1
cat /tmp/said
step private ethtool --show-priv-flags $nic
step vlan $ip link add link $nic name v100 type vlan id 100
step vlan-up $ip link set v100 up
step vlan-address $ip addr add 10.98.100.1/24 dev v100
step vlan-gid eventually gid 6401 7
step vlan-gone $ip link del v100
step bond $ip link add bond1 type bond mode active-backup
step bond-down $ip link set $nic down
step bond-in $ip link set $nic master bond1
step bond-up $ip link set bond1 up
step bond-out $ip link set $nic nomaster
step bond-gone $ip link del bond1
step up $ip link set $nic up
step rdma-dev rdma dev show
step rdma-link rdma link show
step rdma-resource rdma resource show
step rdma-statistic rdma statistic show
step rdma-statistic-qp counted
step devlink devlink dev show
step devlink-info devlink dev info
step devlink-health devlink health show
step devlink-port devlink port show
dmesg -r | sed -n 's/^<[0-4]>/pci: log: /p'
`

// explainedLog are parts of warnings and errors that a guest with a virtual function of an adapter prints, too.
var explainedLog = []string{
	"ACCESS_REG(0x805) op_mod(0x1) failed, status bad parameter", // ethtool -m: a virtual function has no module (MCIA)
	"fw query isn't supported by the FW",                         // devlink dev info: nor an image of its firmware (MCQI)
}

// TestPCITools runs ethtool, ip, rdma and devlink in a guest: each step of the script succeeds, and the driver prints no
// warning or error that is not explained.
func TestPCITools(t *testing.T) {
	withoutUML(t, "its kernel has no bonding")
	p := guest.PCI{RDMA: true, Script: toolsScript, Modules: []string{"bonding"}, Programs: []string{"ethtool", "rdma", "devlink"}}
	for _, program := range p.Programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("NOT RUN: %v (Debian: ethtool iproute2)", err)
		}
	}
	eachKernel(t, p, func(t *testing.T, softmkey, dir string, image guest.Image) {
		g := startPCI(t, softmkey, dir, "guest", "unix:"+filepath.Join(dir, "cable"), "pci.addr=10.98.0.1 pci.peer=10.98.0.1", image)
		said := g.lines("pci: ready")
		for line := range strings.Lines(toolsScript) {
			name, isStep := strings.CutPrefix(line, "step ")
			name, _, _ = strings.Cut(name, " ")
			if isStep && !strings.Contains(said, "pci: "+name+" done") {
				t.Errorf("%s was not done", name)
			}
		}
		for line := range strings.Lines(said) {
			text, logged := strings.CutPrefix(line, "pci: log: ")
			explained := slices.ContainsFunc(explainedLog, func(part string) bool { return strings.Contains(text, part) })
			if logged && strings.Contains(text, "mlx5") && !explained {
				t.Errorf("the kernel warns: %s", text)
			}
			if strings.Contains(line, "module failed") {
				t.Error("ethtool -m finds a module")
			}
		}
	})
}
