package interop

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
}

// startPCI starts the adapter and QEMU. The parameters are for the guest's /init.
func startPCI(t *testing.T, softmkey, dir, name, network, parameters string, image guest.Image) *pciGuest {
	t.Helper()
	socket := filepath.Join(dir, name+".sock")
	adapter := exec.Command(softmkey, "pci", "--socket", socket, "--net", network, "-v")
	var said bytes.Buffer
	adapter.Stderr = &said
	if err := adapter.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		adapter.Process.Signal(os.Interrupt)
		adapter.Wait()
		if strings.Contains(said.String(), "softmkey: rq") || strings.Contains(said.String(), "softmkey: sq") {
			t.Errorf("%s: a queue failed:\n%s", name, said.String())
		}
		t.Logf("%s: the adapter said:\n%s", name, said.String())
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal("the adapter does not listen")
		}
	}
	root, err := filepath.Abs("../.cache/interop/qemu")
	if err != nil {
		t.Fatal(err)
	}
	g := &pciGuest{t: t, name: name, console: filepath.Join(dir, name+".console"), ended: make(chan struct{})}
	console, err := os.Create(g.console)
	if err != nil {
		t.Fatal(err)
	}
	defer console.Close()
	libs := filepath.Join(root, "usr/lib/x86_64-linux-gnu")
	qemu := exec.Command(filepath.Join(root, "usr/lib64/ld-linux-x86-64.so.2"), "--library-path", libs, filepath.Join(root, "usr/bin/qemu-system-x86_64"),
		"-L", filepath.Join(root, "usr/share/qemu"), "-L", filepath.Join(root, "usr/share/seabios"),
		"-M", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "512", "-object", "memory-backend-memfd,id=m0,size=512M,share=on", "-machine", "memory-backend=m0",
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio", "-monitor", "none", "-nic", "none",
		"-kernel", image.Kernel, "-initrd", image.Initramfs,
		"-append", "console=ttyS0 panic=-1 no_timer_check mitigations=off "+parameters,
		"-device", fmt.Sprintf(`{"driver":"vfio-user-pci","socket":{"path":%q,"type":"unix"}}`, socket))
	qemu.Stdout, qemu.Stderr = console, console
	if err := qemu.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		qemu.Wait()
		close(g.ended)
	}()
	t.Cleanup(func() {
		qemu.Process.Kill() // at any moment: the adapter must stand it
		<-g.ended
		if t.Failed() {
			text, _ := os.ReadFile(g.console)
			t.Logf("%s: the end of the console:\n%s", name, text[max(0, len(text)-4000):])
		}
	})
	return g
}

// lines waits for a line of the guest and returns all lines of its /init so far.
func (g *pciGuest) lines(until string) string {
	g.t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		text, err := os.ReadFile(g.console)
		if err != nil {
			g.t.Fatal(err)
		}
		var said strings.Builder
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "pci: ") {
				said.WriteString(strings.TrimRight(line, "\r\n") + "\n")
			}
		}
		if strings.Contains(said.String(), until) {
			return said.String()
		}
		select {
		case <-g.ended:
			g.t.Fatalf("%s ended", g.name)
		default:
		}
		if time.Now().After(end) {
			g.t.Fatalf("%s: no line %q", g.name, until)
		}
	}
}

// check fails the test unless the guest has reached its peer without a failure in the
// kernel's log. It returns the lines of the guest's /init.
func (g *pciGuest) check() string {
	g.t.Helper()
	said := g.lines("pci: ready")
	if strings.Contains(said, "failed") || !strings.Contains(said, "pci: ping done") {
		g.t.Errorf("%s said:\n%s", g.name, said)
	}
	return said
}

// preparePCI builds the image and the command, and skips the test where there is no QEMU.
func preparePCI(t *testing.T) (softmkey, dir string, image guest.Image) {
	t.Helper()
	if testing.Short() {
		t.Skip("virtual machines boot in the long form")
	}
	if _, err := os.Stat("../.cache/interop/qemu/usr/bin/qemu-system-x86_64"); errors.Is(err, fs.ErrNotExist) {
		t.Skip("NOT RUN: setup.sh could not get a QEMU with vfio-user-pci")
	}
	dir = t.TempDir()
	image, err := guest.BuildPCI("../.cache/interop/kernel", dir)
	if err != nil {
		t.Fatal(err)
	}
	softmkey = filepath.Join(dir, "softmkey")
	build := exec.Command("go", "build", "-o", softmkey, "./cmd/softmkey")
	build.Dir = ".."
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return softmkey, dir, image
}

// The unmodified driver of Debian's kernel binds to the adapter, and the guest reaches the
// host through a tap device, and again after the driver was unloaded and loaded.
func TestPCIHost(t *testing.T) {
	softmkey, dir, image := preparePCI(t)
	for _, step := range [][]string{
		{"tuntap", "add", "pcitap0", "mode", "tap"}, {"addr", "add", "10.92.0.1/24", "dev", "pcitap0"}, {"link", "set", "pcitap0", "up"},
	} {
		if text, err := exec.Command("ip", step...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v\n%s", step, err, text)
		}
	}
	defer exec.Command("ip", "link", "del", "pcitap0").Run()
	g := startPCI(t, softmkey, dir, "guest", "pcitap0", "pci.addr=10.92.0.2 pci.peer=10.92.0.1 pci.reload", image)
	if said := g.check(); !strings.Contains(said, "pci: ping after a reload done") {
		t.Errorf("the guest said:\n%s", said)
	}
}

// Two guests reach each other through a UNIX socket.
func TestPCIGuests(t *testing.T) {
	softmkey, dir, image := preparePCI(t)
	cable := "unix:" + filepath.Join(dir, "cable")
	a := startPCI(t, softmkey, dir, "a", cable, "pci.addr=10.93.0.1 pci.peer=10.93.0.2", image)
	b := startPCI(t, softmkey, dir, "b", cable, "pci.addr=10.93.0.2 pci.peer=10.93.0.1", image)
	a.check()
	b.check()
}
