package interop

import (
	"cmp"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/interop/guest"
)

// uml runs the tests of softmkey pci with a kernel in User-mode Linux, a process of this host, instead of QEMU.
var uml = flag.Bool("uml", false, "run guests in User-mode Linux, with the kernel that uml.sh has made")

// withoutUML skips a test whose guest User-mode Linux cannot run.
func withoutUML(t *testing.T, why string) {
	t.Helper()
	if *uml {
		t.Skip("User-mode Linux: " + why)
	}
}

// mapped is the reason of the tests whose guest runs programs on RDMA.
const mapped = "its kernel cannot map the adapter's doorbells into programs"

// umlRounds is the number of rounds of TestUMLSpeed.
var umlRounds = flag.Int("uml-rounds", 0, "measure speeds in so many rounds")

// umlKernel is the folder of the kernel, which is laid out as the package of a kernel.
const umlKernel = "../.cache/interop/uml"

// umlCommand returns the command of a machine in User-mode Linux whose adapter listens at a socket.
// The machine is several processes. They have a PID namespace, whose end ends them all.
func umlCommand(t *testing.T, socket, parameters string, image guest.Image) *exec.Cmd {
	dir := filepath.Dir(socket)
	machine := exec.Command(image.Kernel, append([]string{
		"mem=512M", "initrd=" + image.Initramfs, "uml_dir=" + dir, "con=null", "con0=fd:0,fd:1",
		"virtio_uml.device=" + socket + ":1234", // the number is uml.config's
		"virt_pci.max_delay_us=60000000",        // a read of a register, on a machine that is busy
	}, strings.Fields(parameters)...)...)
	machine.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	return machine
}

// speedScript is the /script of the two guests of TestUMLSpeed. The target's first subsystem has a disk
// with T10-PI, the others a disk of memory without it. The second address is that of User-mode Linux' own
// network, vec0.
const speedScript = `
subsystem() { # NAME DEVICE PORT
	mkdir subsystems/$1 subsystems/$1/namespaces/1
	echo 1 >subsystems/$1/attr_allow_any_host
	[ $1 = pi ] && echo 1 >subsystems/$1/attr_pi_enable
	echo $2 >subsystems/$1/namespaces/1/device_path
	echo 1 >subsystems/$1/namespaces/1/enable
	ln -s /sys/kernel/config/nvmet/subsystems/$1 ports/$3/subsystems/$1
}
port() { # NUMBER TRANSPORT ADDRESS
	mkdir ports/$1
	echo $2 >ports/$1/addr_trtype
	echo ipv4 >ports/$1/addr_adrfam
	echo $3 >ports/$1/addr_traddr
	echo 442$1 >ports/$1/addr_trsvcid
	[ $2 = rdma ] && echo 1 >ports/$1/param_pi_enable
}
target() {
	rmmod scsi_debug null_blk
	insmod /modules/scsi_debug.ko dif=1 dix=1 dev_size_mb=64 delay=0
	insmod /modules/null_blk.ko memory_backed=1 gb=1
	eventually [ -b /dev/sda ] && eventually [ -b /dev/nullb0 ] || return
	mount -t configfs configfs /sys/kernel/config
	cd /sys/kernel/config/nvmet
	port 1 rdma $addr
	port 2 tcp $addr
	port 3 tcp 10.96.0.1
	subsystem pi /dev/sda 1
	subsystem rdma /dev/nullb0 1
	subsystem tcp /dev/nullb0 2
	subsystem tcpvec /dev/nullb0 3
}
connect() { # TRANSPORT ADDRESS PORT SUBSYSTEM DISK
	id=11111111-2222-3333-4444-555555555555
	echo "transport=$1,traddr=$2,trsvcid=442$3,nqn=$4,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$id,hostid=$id,nr_io_queues=1" >/dev/nvme-fabrics && eventually [ -b /dev/$5 ]
}
measure() { # NAME DISK
	for size in 4k 128k; do
		for way in read write; do
			said=$(fio --name=f --filename=/dev/$2 --direct=1 --ioengine=libaio --iodepth=16 --rw=rand$way --bs=$size --size=64m --time_based --runtime=SECONDS --minimal) || echo "pci: fio failed"
			case $way in read) fields=7,8 ;; *) fields=48,49 ;; esac
			echo "pci: speed $1 $way $size $(echo "$said" | grep "^3;" | cut -d ';' -f $fields | tr ';' ' ')"
		done
	done
}
# stream NAME ADDRESS: both directions of TCP.
stream() {
	for way in "" -R; do
		said=$(iperf3 -c $2 -t SECONDS -f m $way | grep receiver) || echo "pci: iperf3 failed"
		echo "pci: speed $1 tcp${way:--S} stream $(echo "$said" | awk '{for (i = 1; i <= NF; i++) if ($i == "Mbits/sec") print $(i-1), 0}')"
	done
}
checked() { echo $1 >/sys/block/nvme0n1/integrity/read_verify; echo $1 >/sys/block/nvme0n1/integrity/write_generate; }
$ip addr add 10.96.0.$([ $role = target ] && echo 1 || echo 2)/24 dev vec0
$ip link set vec0 mtu ${mtu:-1500} up
if [ $role = target ]; then
	step target target
	(while :; do iperf3 -s -1 -p 5201 >/dev/null || sleep 1; done) &
else
	step pi try connect rdma $peer 1 pi nvme0n1
	step rdma try connect rdma $peer 1 rdma nvme1n1
	step tcp try connect tcp $peer 2 tcp nvme2n1
	step tcpvec try connect tcp 10.96.0.1 3 tcpvec nvme3n1
	for round in ROUNDS; do
		checked 1
		measure pi nvme0n1
		checked 0
		measure offload nvme0n1
		measure rdma nvme1n1
		measure tcp nvme2n1
		measure tcpvec nvme3n1
		stream ethernet $peer
		stream vector 10.96.0.1
	done
fi
`

// TestUMLSpeed measures NVMe over RDMA with T10-PI beside NVMe over TCP, and TCP over the Ethernet port beside
// User-mode Linux' own network, between two guests. It logs the medians of the rounds. "pi" is with
// integrity that the host's block layer makes and checks, "offload" with integrity that the adapter
// makes and checks alone, "rdma" without integrity, "tcpvec" over User-mode Linux' own network.
func TestUMLSpeed(t *testing.T) {
	if !*uml || *umlRounds == 0 {
		t.Skip("NOT RUN: speeds are measured with -uml and -uml-rounds")
	}
	for _, mtu := range []string{"1500", "9000"} {
		t.Run("mtu="+mtu, func(t *testing.T) {
			script := strings.NewReplacer("SECONDS", "3", "ROUNDS", strings.Repeat("x ", *umlRounds)).Replace(speedScript)
			speed := guest.PCI{
				RDMA: true, Script: script, Programs: []string{"fio"},
				Modules: []string{"nvme_rdma", "nvmet_rdma", "nvme_tcp", "nvmet_tcp", "sd_mod", "scsi_debug", "null_blk"},
			}
			eachKernel(t, speed, func(t *testing.T, softmkey, dir string, image guest.Image) {
				bridge(t, "umlbr0", "vnet_hdr", "umltap0", "umltap1")
				cable := "unix:" + filepath.Join(dir, "cable")
				start := func(name, parameters, tap string) *pciGuest {
					return startPCI(t, softmkey, dir, name, cable, parameters+" oops=panic pci.mtu="+mtu+" vec0:transport=tap,ifname="+tap+",depth=128,gro=1,mtu="+mtu, image)
				}
				target := start("target", "pci.role=target pci.addr=10.94.0.1 pci.peer=10.94.0.2", "umltap0")
				host := start("host", "pci.role=host pci.addr=10.94.0.2 pci.peer=10.94.0.1", "umltap1")
				host.done("pi", "rdma", "tcp", "tcpvec")
				target.done("target")
				speeds(t, host.lines("pci: ready"))
			})
		})
	}
}

// speeds logs the medians of the lines "pci: speed NAME WAY SIZE KIB/S IOPS".
func speeds(t *testing.T, said string) {
	rates := map[string][][2]float64{}
	var names []string
	for line := range strings.Lines(said) {
		var name, way, size string
		var rate [2]float64
		if n, _ := fmt.Sscanf(line, "pci: speed %s %s %s %g %g", &name, &way, &size, &rate[0], &rate[1]); n != 5 {
			continue
		}
		key := fmt.Sprintf("%-8s %-6s %-6s", name, way, size)
		if rates[key] == nil {
			names = append(names, key)
		}
		rates[key] = append(rates[key], rate)
	}
	if len(names) == 0 {
		t.Error("no speed was measured")
	}
	for _, key := range names {
		all := rates[key]
		slices.SortFunc(all, func(a, b [2]float64) int { return cmp.Compare(a[0], b[0]) })
		m := all[len(all)/2]
		t.Logf("%s %8.0f KiB/s or Mbit/s, %7.0f per second; %v", key, m[0], m[1], all)
	}
}

// bridge makes tap devices with flags of `ip tuntap` that are connected by a bridge, for the time of the test.
func bridge(t *testing.T, name, flags string, taps ...string) {
	t.Helper()
	mustRun(t, "", "ip", "link", "add", name, "type", "bridge")
	t.Cleanup(func() { exec.Command("ip", "link", "del", name).Run() })
	mustRun(t, "", "ip", "link", "set", name, "up")
	for _, tap := range taps {
		mustRun(t, "", "ip", append([]string{"tuntap", "add", tap, "mode", "tap"}, strings.Fields(flags)...)...)
		t.Cleanup(func() { exec.Command("ip", "link", "del", tap).Run() })
		mustRun(t, "", "ip", "link", "set", tap, "mtu", "9000", "master", name, "up")
	}
}
