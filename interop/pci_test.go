package interop

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/softmkey/softmkey/interop/guest"
)

// pciGuest is a virtual machine with an adapter of softmkey pci.
type pciGuest struct {
	t       *testing.T
	name    string
	console string // file name
	ended   chan struct{}
	kill    func() // kills the machine
	pid     int
	typed   io.WriteCloser // what is typed on the console
}

// startPCI starts the adapter with more flags, and QEMU. The parameters are for the guest's /init.
func startPCI(t *testing.T, softmkey, dir, name, network, parameters string, image guest.Image, flags ...string) *pciGuest {
	t.Helper()
	startAdapter(t, softmkey, dir, name, network, flags...)
	return startMachine(t, dir, name, name, parameters, image)
}

// startAdapter starts softmkey pci, which listens at NAME.sock. For User-mode Linux it starts cmd/umladapter, which takes
// none of the flags: a test that passes --fault runs without loss there. The returned function kills it.
func startAdapter(t *testing.T, softmkey, dir, name, network string, flags ...string) (kill func()) {
	t.Helper()
	socket := filepath.Join(dir, name+".sock")
	args := append([]string{"pci", "--socket", socket, "--net", network, "-v"}, flags...)
	if *uml {
		softmkey, args = filepath.Join(filepath.Dir(softmkey), "umladapter"), []string{"-socket", socket, "-net", network}
	}
	adapter := exec.Command(softmkey, args...)
	var said bytes.Buffer
	adapter.Stderr = &said
	check(t, adapter.Start())
	t.Cleanup(func() {
		adapter.Process.Signal(os.Interrupt)
		adapter.Wait()
		if strings.Contains(said.String(), " rq 0x") || strings.Contains(said.String(), " sq 0x") {
			t.Errorf("%s: a queue failed:\n%s", name, said.String())
		}
		t.Logf("%s: the adapter said:\n%s", name, said.String())
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			return func() { adapter.Process.Kill() }
		} else if time.Now().After(end) {
			t.Fatal("the adapter does not listen")
		}
	}
}

// startMachine starts a machine with the adapter that listens at ADAPTER.sock.
func startMachine(t *testing.T, dir, name, adapter, parameters string, image guest.Image) *pciGuest {
	t.Helper()
	g := &pciGuest{t: t, name: name, console: filepath.Join(dir, name+".console"), ended: make(chan struct{})}
	console, err := os.Create(g.console)
	check(t, err)
	defer console.Close()
	command := qemuCommand
	if *uml {
		command = umlCommand
	}
	machine := command(t, filepath.Join(dir, adapter+".sock"), parameters, image)
	machine.Stdout, machine.Stderr = console, console
	g.typed, err = machine.StdinPipe()
	check(t, err)
	check(t, machine.Start())
	g.pid = machine.Process.Pid
	go func() {
		machine.Wait()
		close(g.ended)
	}()
	g.kill = func() {
		machine.Process.Kill() // the adapter must cope with this at any moment
		<-g.ended
	}
	t.Cleanup(func() {
		g.kill()
		if t.Failed() {
			text, _ := os.ReadFile(g.console)
			t.Logf("%s: the end of the console:\n%s", name, text[max(0, len(text)-4000):])
		}
	})
	return g
}

// qemuCommand returns the command of a machine in QEMU whose adapter listens at a socket.
func qemuCommand(t *testing.T, socket, parameters string, image guest.Image) *exec.Cmd {
	root, err := filepath.Abs("../.cache/interop/qemu")
	check(t, err)
	return guest.QEMU(root, socket, parameters, image)
}

// order has the guest's /script, which runs obey of /init, do a step, and waits for its result.
func (g *pciGuest) order(name, command string) {
	g.t.Helper()
	g.begin(name, command)
	if !g.succeeded(name) {
		g.t.Fatalf("%s: %s failed", g.name, name)
	}
}

// begin is order without waiting.
func (g *pciGuest) begin(name, command string) {
	g.t.Helper()
	if _, err := fmt.Fprintf(g.typed, "%s %s\n", name, command); err != nil {
		g.t.Fatal(err)
	}
}

// succeeded waits for the end of a step, and reports whether it succeeded.
func (g *pciGuest) succeeded(name string) (ok bool) {
	g.t.Helper()
	g.wait(name, func(console string) bool {
		ok = strings.Contains(console, "pci: "+name+" done")
		return ok || strings.Contains(console, "pci: "+name+" failed")
	})
	return ok
}

// lines waits for a line of the guest's /init and returns all of its lines so far.
func (g *pciGuest) lines(until string) string {
	g.t.Helper()
	var said string
	g.wait(until, func(console string) bool {
		var lines strings.Builder
		for line := range strings.Lines(console) {
			if strings.HasPrefix(line, "pci: ") {
				lines.WriteString(strings.TrimRight(line, "\r\n") + "\n")
			}
		}
		said = lines.String()
		return strings.Contains(said, until)
	})
	return said
}

// text returns all that the machine has printed on its console so far.
func (g *pciGuest) text() string {
	g.t.Helper()
	text, err := os.ReadFile(g.console)
	check(g.t, err)
	return string(text)
}

// wait waits for something in the text of the console.
func (g *pciGuest) wait(what string, there func(console string) bool) {
	g.t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		text := g.text()
		switch {
		case there(text):
			return
		case strings.Contains(text, "Kernel panic"):
			g.t.Fatalf("%s: the kernel has panicked", g.name)
		}
		select {
		case <-g.ended:
			g.t.Fatalf("%s ended", g.name)
		default:
		}
		if time.Now().After(end) {
			g.t.Fatalf("%s: no line %q", g.name, what)
		}
	}
}

// after returns the rest of the first line on the console that begins with a text.
func (g *pciGuest) after(text string) string {
	g.t.Helper()
	for line := range strings.Lines(g.text()) {
		if rest, ok := strings.CutPrefix(line, text); ok {
			return strings.TrimSpace(rest)
		}
	}
	g.t.Fatalf("%s: no line begins with %q", g.name, text)
	return ""
}

// done fails the test unless the guest's /script has come to its end and each of its steps has
// succeeded. It logs how long they took.
func (g *pciGuest) done(steps ...string) {
	g.t.Helper()
	said := g.lines("pci: ready")
	for _, name := range steps {
		if !strings.Contains(said, "pci: "+name+" done") {
			g.t.Errorf("%s: %s was not done", g.name, name)
		}
	}
	if strings.Contains(said, "failed") || g.t.Failed() {
		g.t.Errorf("%s said:\n%s", g.name, said)
	}
	g.t.Logf("%s said:\n%s", g.name, said)
}

// pciKernels are the folders of the kernels that the guests run.
func pciKernels(t *testing.T) []string {
	if *uml {
		return []string{umlKernel}
	}
	all, err := filepath.Glob("../.cache/interop/kernel*")
	if err != nil || len(all) == 0 {
		t.Fatalf("setup.sh has unpacked no kernel: %v", err)
	}
	return all
}

// preparePCI builds the command, and skips the test where there is no QEMU.
func preparePCI(t *testing.T) (softmkey, dir string) {
	t.Helper()
	if _, err := os.Stat("../.cache/interop/qemu/usr/bin/qemu-system-x86_64"); !*uml && errors.Is(err, fs.ErrNotExist) {
		t.Skip("NOT RUN: setup.sh could not get a QEMU with vfio-user-pci")
	}
	dir = t.TempDir()
	softmkey = filepath.Join(dir, "softmkey")
	mustRun(t, "..", "go", "build", "-o", softmkey, "./cmd/softmkey")
	if *uml {
		mustRun(t, "", "go", "build", "-o", dir, "./cmd/umladapter")
	}
	return softmkey, dir
}

// eachKernel runs a test with each kernel, in the long form.
func eachKernel(t *testing.T, p guest.PCI, f func(t *testing.T, softmkey, dir string, image guest.Image)) {
	t.Helper()
	if testing.Short() {
		t.Skip("virtual machines boot in the long form")
	}
	onKernels(t, p, pciKernels(t), f)
}

// onKernels runs a test with kernels, which are named by their folders.
func onKernels(t *testing.T, p guest.PCI, kernels []string, f func(t *testing.T, softmkey, dir string, image guest.Image)) {
	t.Helper()
	softmkey, dir := preparePCI(t)
	for _, kernel := range kernels {
		release, err := filepath.Glob(filepath.Join(kernel, "lib/modules/*"))
		if err != nil || len(release) != 1 {
			t.Fatalf("%s has modules of %q: %v", kernel, release, err)
		}
		t.Run(filepath.Base(release[0]), func(t *testing.T) {
			p.Kernel = kernel
			dir, err := os.MkdirTemp(dir, "")
			check(t, err)
			image, err := p.Build(dir)
			check(t, err)
			f(t, softmkey, dir, image)
		})
	}
}

// tap makes a tap device with an address, for the time of the test.
func tap(t *testing.T, name, addr string) {
	t.Helper()
	mustRun(t, "", "ip", "tuntap", "add", name, "mode", "tap")
	mustRun(t, "", "ip", "addr", "add", addr, "dev", name)
	mustRun(t, "", "ip", "link", "set", name, "up")
	t.Cleanup(func() { exec.Command("ip", "link", "del", name).Run() })
}

// TestPCIAlone boots one guest, with one kernel in the short form: the driver binds, the port has its
// GIDs, the host answers pings. The guest's NVMe over RDMA with T10-PI has both ends in the guest.
// What is written is read, and blocks that are damaged in memory get the statuses of the NVMe
// specification.
func TestPCIAlone(t *testing.T) {
	withoutUML(t, mapped)
	kernels := pciKernels(t)
	if testing.Short() {
		kernels = kernels[:1]
	}
	onKernels(t, nvmeGuest(512, "alone"), kernels, func(t *testing.T, softmkey, dir string, image guest.Image) {
		tap(t, "pcitap0", "10.92.0.1/24")
		g := startPCI(t, softmkey, dir, "guest", "pcitap0", "pci.addr=10.92.0.2 pci.peer=10.92.0.1 oops=panic", image)
		g.done("ping", "devinfo", "gids", "target", "connect", "integrity", "compare", "memory")
		g.active()
	})
}

// active checks what ibv_devinfo has printed on the console.
func (g *pciGuest) active() {
	g.t.Helper()
	text := g.text()
	if n := strings.Count(text, "GID["); !strings.Contains(text, "PORT_ACTIVE") || n != 4 {
		g.t.Errorf("%s: %d GIDs, or the port is not active", g.name, n)
	}
}

// TestPCIHost boots a guest with the unmodified driver of Debian's kernel, which reaches the host
// through a tap device, and reaches it again after the driver was unloaded and loaded, after a function
// level reset under the driver, and after the function was removed and found again.
func TestPCIHost(t *testing.T) {
	const script = `
unload
load
step reload reach
again() { eventually interface && $ip addr add "$addr/24" dev "$nic" && $ip link set "$nic" up && reach; }
said() { dmesg | grep -q "$1"; }
flr() { echo 1 >$function/reset && eventually said "health recovery succeeded" && again; }
rescan() { echo 1 >$function/remove && echo 1 >/sys/bus/pci/rescan && again; }
function=$(readlink -f /sys/class/net/$nic/device)
step flr flr
step rescan rescan
`
	eachKernel(t, guest.PCI{Script: script}, func(t *testing.T, softmkey, dir string, image guest.Image) {
		tap(t, "pcitap0", "10.92.0.1/24")
		startPCI(t, softmkey, dir, "guest", "pcitap0", "pci.addr=10.92.0.2 pci.peer=10.92.0.1", image).done("ping", "reload", "flr", "rescan")
	})
}

// A guest's QEMU is killed while the driver loads, and a second one finds the adapter in its first
// state. That guest reboots, and its driver binds again. Then the adapter is killed: what QEMU does
// is QEMU's.
func TestPCILife(t *testing.T) {
	// The host says whether to reboot: a guest remembers nothing.
	again := guest.PCI{Script: "[ \"$(nc $peer 7777 </dev/null)\" = reboot ] && echo pci: reboots && reboot -f\nstep again reach\n"}
	eachKernel(t, again, func(t *testing.T, softmkey, dir string, image guest.Image) {
		tap(t, "pcitap0", "10.92.0.1/24")
		l, err := net.Listen("tcp", "10.92.0.1:7777")
		check(t, err)
		var wg sync.WaitGroup
		wg.Go(func() {
			for _, answer := range []string{"reboot", "stay"} {
				c, err := l.Accept()
				if err != nil {
					return
				}
				io.WriteString(c, answer)
				c.Close()
			}
		})
		t.Cleanup(func() {
			l.Close()
			wg.Wait()
		})
		kill := startAdapter(t, softmkey, dir, "adapter", "pcitap0")
		const parameters = "pci.addr=10.92.0.2 pci.peer=10.92.0.1"
		first := startMachine(t, dir, "first", "adapter", parameters, image)
		first.wait("mlx5_core", func(console string) bool { return strings.Contains(console, "mlx5_core") })
		first.kill()
		second := startMachine(t, dir, "second", "adapter", parameters, image)
		second.done("ping", "again")
		if text := second.text(); strings.Count(text, "pci: ping done") != 2 || !strings.Contains(text, "pci: reboots") {
			t.Error("the guest has not rebooted")
		}
		kill()
		select {
		case <-second.ended:
			t.Log("QEMU ended after its adapter")
		case <-time.After(5 * time.Second):
			t.Log("QEMU ran on for 5 s after its adapter")
		}
		second.kill()
		text := second.text()
		t.Logf("%d bytes on the console, whose end is:\n%s", len(text), text[max(0, len(text)-600):])
	})
}

// pciStep is a program whose server runs in one guest and whose client runs in another.
type pciStep struct{ name, server, client string }

// pciSteps are common RDMA programs. PEER stands for the other guest's address.
var pciSteps = []pciStep{
	{"rc_pingpong", "ibv_rc_pingpong -g 3 -n 100 -c", "ibv_rc_pingpong -g 3 -n 100 -c PEER"},
	{"rc_v1", "ibv_rc_pingpong -g 2 -n 100 -c", "ibv_rc_pingpong -g 2 -n 100 -c PEER"}, // GID 2 is the address of RoCE v1
	{"ud_v1", "ibv_ud_pingpong -g 2 -n 100", "ibv_ud_pingpong -g 2 -n 100 PEER"},
	{"uc_pingpong", "ibv_uc_pingpong -g 3 -n 100", "ibv_uc_pingpong -g 3 -n 100 PEER"},
	{"ud_pingpong", "ibv_ud_pingpong -g 3 -n 100", "ibv_ud_pingpong -g 3 -n 100 PEER"},
	{"srq_pingpong", "ibv_srq_pingpong -g 3 -n 100", "ibv_srq_pingpong -g 3 -n 100 PEER"},
	{"xsrq_pingpong", "ibv_xsrq_pingpong -g 3 -n 20", "ibv_xsrq_pingpong -g 3 -n 20 PEER"},
	{"rping", "rping -s -C 10 -V", "rping -c -a PEER -C 10 -V"},
	{"ucmatose", "ucmatose", "ucmatose -s PEER"},
	{"write_bw", "ib_write_bw -F -x 3 -n 200", "ib_write_bw -F -x 3 -n 200 PEER"},
	{"read_bw", "ib_read_bw -F -x 3 -n 200", "ib_read_bw -F -x 3 -n 200 PEER"},
	{"send_bw", "ib_send_bw -F -x 3 -n 200", "ib_send_bw -F -x 3 -n 200 PEER"},
	{"fetch_add", "ib_atomic_bw -F -x 3 -n 200", "ib_atomic_bw -F -x 3 -n 200 PEER"},
	{"cmp_swap", "ib_atomic_bw -F -x 3 -n 200 -A CMP_AND_SWAP", "ib_atomic_bw -F -x 3 -n 200 -A CMP_AND_SWAP PEER"},
	// The receiver may join the group after the first messages.
	{"ud_multicast", "mckey -m 239.1.2.3 -b $addr", `sh -c "for i in 1 2 3; do mckey -m 239.1.2.3 -b $addr -s; done"`},
	{"iperf3", "iperf3 -s -1", "iperf3 -c PEER -n 16M"},
	{"write_lat", "ib_write_lat -F -x 3 -n 200", "ib_write_lat -F -x 3 -n 200 PEER"},
	{"lossy", "lossy server 0.0.0.0 1024 32 5000", "lossy client PEER 1024 32 5000"},
}

// pciScript returns the /script of guests that run steps, and the steps' names.
func pciScript(steps []pciStep) (script string, names []string) {
	var b strings.Builder
	b.WriteString("step gids eventually gid ffff 3\nstep devinfo ibv_devinfo -v\nif [ $role = server ]; then\n")
	for _, s := range steps {
		fmt.Fprintf(&b, "step %s timeout 120 %s\n", s.name, s.server)
	}
	b.WriteString("else\n")
	for _, s := range steps {
		fmt.Fprintf(&b, "step %s try timeout 120 %s\n", s.name, strings.ReplaceAll(s.client, "PEER", "$peer"))
		names = append(names, s.name)
	}
	b.WriteString("fi\n")
	return b.String(), append([]string{"ping", "gids", "devinfo"}, names...)
}

// pciAgain is a script that unloads the drivers, loads them again and runs rping.
const pciAgain = `step unload unload
load
step again reach
step gids_again eventually gid ffff 3
if [ $role = server ]; then
step rping_again timeout 120 rping -s -C 10 -V
else
step rping_again try timeout 120 rping -c -a $peer -C 10 -V
fi
`

// pciPair runs steps in two guests at the two ends of a cable, and again after the drivers were
// unloaded and loaded.
func pciPair(t *testing.T, steps []pciStep, flags ...string) {
	withoutUML(t, mapped)
	lossy, err := lossyProgram()
	check(t, err)
	script, names := pciScript(steps)
	script, names = script+pciAgain, append(names, "unload", "again", "rping_again")
	eachKernel(t, guest.PCI{RDMA: true, Script: script, Programs: []string{lossy}}, func(t *testing.T, softmkey, dir string, image guest.Image) {
		cable := "unix:" + filepath.Join(dir, "cable")
		a := startPCI(t, softmkey, dir, "a", cable, "pci.role=server pci.addr=10.93.0.1 pci.peer=10.93.0.2", image, flags...)
		b := startPCI(t, softmkey, dir, "b", cable, "pci.role=client pci.addr=10.93.0.2 pci.peer=10.93.0.1", image, flags...)
		b.done(names...)
		a.done(names...)
		a.active()
		b.active()
	})
}

// TestPCIGuests connects two guests through a UNIX socket, by Ethernet and by RDMA.
func TestPCIGuests(t *testing.T) { pciPair(t, pciSteps) }

// TestPCILoss runs RDMA between two guests while 1 % of its packets are lost.
func TestPCILoss(t *testing.T) {
	steps := slices.DeleteFunc(slices.Clone(pciSteps), func(s pciStep) bool {
		return strings.HasPrefix(s.name, "uc_") || strings.HasPrefix(s.name, "ud_") // a lost message stays lost
	})
	// A guest sees in its counters what was lost.
	const counters = "/sys/class/infiniband/mlx5_0/ports/1/"
	steps = append(steps, pciStep{"counters", "true", `sh -c 'cd ` + counters + `; grep -H . counters/*packets hw_counters/*; ` +
		`test $(cat hw_counters/packet_seq_err) -gt 0 && test $(cat hw_counters/rx_write_requests) -ge 0 && test $(cat counters/port_xmit_packets) -gt 0'`})
	pciPair(t, steps, "--fault", "loss=1%,seed=7")
}

// TestPCIRun runs RDMA programs between a guest and the host, where softmkey run provides the device,
// and exchanges a file between copypeer in the guest and softmkey copy.
func TestPCIRun(t *testing.T) {
	withoutUML(t, mapped)
	steps := []pciStep{pciSteps[0]}
	for _, s := range pciSteps {
		if s.name == "rping" || s.name == "write_bw" || s.name == "read_bw" {
			steps = append(steps, s)
		}
	}
	script, names := pciScript(steps)
	script += "head -c 3158073 /dev/urandom >/tmp/src\nstep send try copypeer send $peer 18515 /tmp/src write\nstep receive copypeer receive 18515 /tmp/dst\nstep compare cmp /tmp/src /tmp/dst\n"
	eachKernel(t, guest.PCI{RDMA: true, Script: script}, func(t *testing.T, softmkey, dir string, image guest.Image) {
		tap(t, "pcitap0", "10.92.0.1/24")
		g := startPCI(t, softmkey, dir, "guest", "pcitap0", "pci.role=client pci.addr=10.92.0.2 pci.peer=10.92.0.1", image)
		host := func(args ...string) {
			text, err := exec.Command("timeout", append([]string{"120", softmkey}, args...)...).CombinedOutput()
			if err != nil {
				t.Errorf("softmkey %q: %v\n%s", args, err, text)
			}
		}
		g.lines("pci: devinfo done")
		for _, s := range steps {
			host(append([]string{"run", "--device", "10.92.0.1", "-v", "--"}, strings.Fields(s.server)...)...)
		}
		file := filepath.Join(dir, "copied")
		host("copy", "--cm", "--listen", "10.92.0.1", file)
		g.lines("pci: send done")
		// The peer listens a moment later.
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
			text, err := exec.Command("timeout", "60", softmkey, "copy", "--cm", "--connect", "10.92.0.2", "--device", "10.92.0.1", "--op", "write", file).CombinedOutput()
			if err == nil {
				break
			} else if time.Now().After(end) {
				t.Fatalf("softmkey copy: %v\n%s", err, text)
			}
		}
		g.done(append(names, "send", "receive", "compare")...)
	})
}
