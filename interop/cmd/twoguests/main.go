// Twoguests boots two virtual machines, each with an adapter of softmkey pci, and a cable between the adapters:
// ibv_rc_pingpong runs from one to the other, then NVMe over RDMA with T10-PI. It prints what each step said,
// and how long it took. It needs `make setup`, and no root. From the project's root: make two-guests.
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/interop/guest"
)

//go:embed script
var script string

func main() {
	softmkey := flag.String("softmkey", "../bin/softmkey", "the command")
	cache := flag.String("cache", "../.cache/interop", "the folder that interop/setup.sh has filled")
	kernel := flag.String("kernel", "kernel-6.12", "the folder of the kernel, in that folder")
	flag.Parse()
	os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin") // not everybody's
	if err := run(*softmkey, *cache, *kernel); err != nil {
		fmt.Fprintln(os.Stderr, "twoguests:", err)
		os.Exit(1)
	}
}

func run(softmkey, cache, kernel string) error {
	dir, err := os.MkdirTemp("", "softmkey-guests")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	qemu, err := filepath.Abs(filepath.Join(cache, "qemu"))
	if err != nil {
		return err
	}
	begin := time.Now()
	p := guest.PCI{
		Kernel: filepath.Join(cache, kernel), RDMA: true, Script: script,
		Modules: []string{"nvme_rdma", "nvmet_rdma", "sd_mod", "scsi_debug"}, Programs: []string{"nvme"},
	}
	image, err := p.Build(dir)
	if err != nil {
		return fmt.Errorf("%w (scripts/setup.sh run interop installs what the machines need)", err)
	}
	fmt.Printf("image     made of this machine's packages (%.1f s)\n", time.Since(begin).Seconds())

	var machines []*machine
	defer func() {
		for _, m := range slices.Backward(machines) {
			m.stop()
		}
	}()
	for i, role := range []string{"target", "host"} {
		m := &machine{name: role, dir: dir}
		machines = append(machines, m)
		parameters := fmt.Sprintf("pci.addr=10.7.0.%d pci.peer=10.7.0.%d pci.role=%s", i+1, 2-i, role)
		if err := m.start(softmkey, qemu, parameters, image); err != nil {
			return err
		}
	}
	begin = time.Now()
	for {
		ready := 0
		for _, m := range machines {
			switch done, err := m.look(begin); {
			case err != nil:
				return fmt.Errorf("%s: %w; the end of its console:\n%s", m.name, err, m.end())
			case done:
				ready++
			}
		}
		if ready == len(machines) {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// machine is a virtual machine with its adapter.
type machine struct {
	name, dir string
	adapter   *exec.Cmd
	qemu      *exec.Cmd
	shown     int // bytes of the console that look has seen
	ready     bool
}

func (m *machine) file(kind string) string { return filepath.Join(m.dir, m.name+"."+kind) }

// start starts the adapter, waits until it listens, and starts the machine.
func (m *machine) start(softmkey, qemu, parameters string, image guest.Image) error {
	m.adapter = exec.Command(softmkey, "pci", "--socket", m.file("sock"), "--net", "unix:"+filepath.Join(m.dir, "cable"))
	m.adapter.Stderr = os.Stderr
	if err := start(m.adapter); err != nil {
		return err
	}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(m.file("sock")); err == nil {
			break
		} else if ended(m.adapter.Process.Pid) || time.Since(begin) > time.Minute {
			return fmt.Errorf("%s: its adapter does not listen", m.name)
		}
	}
	console, err := os.Create(m.file("console"))
	if err != nil {
		return err
	}
	defer console.Close()
	m.qemu = guest.QEMU(qemu, m.file("sock"), parameters, image)
	m.qemu.Stdout, m.qemu.Stderr = console, console
	return start(m.qemu)
}

// start starts a process that ends with this one.
func start(c *exec.Cmd) error {
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return c.Start()
}

func (m *machine) stop() {
	for _, c := range []*exec.Cmd{m.qemu, m.adapter} {
		if c != nil && c.Process != nil { // it has started
			c.Process.Kill()
			c.Wait()
		}
	}
}

// look prints the new lines of the steps, and reports whether the last step has ended. A step that failed is an
// error.
func (m *machine) look(begin time.Time) (done bool, err error) {
	text, err := os.ReadFile(m.file("console"))
	if err != nil {
		return false, err
	}
	for {
		line, _, whole := bytes.Cut(text[m.shown:], []byte("\n"))
		if !whole {
			break
		}
		m.shown += len(line) + 1
		s := strings.TrimRight(string(line), "\r")
		state, isState := strings.CutPrefix(s, "pci: ")
		switch {
		case strings.Contains(s, "Kernel panic"), isState && strings.Contains(state, " failed"):
			return false, errors.New(s)
		case isState && state == "ready":
			m.ready = true
		case isState:
			fmt.Printf("%-8s  %5.1f s  %s\n", m.name, time.Since(begin).Seconds(), state)
		case strings.HasPrefix(s, "ibv_rc_pingpong: ") && strings.Contains(s, "seconds"), strings.HasPrefix(s, "ibv_devinfo: ") && strings.Contains(s, "state:"), strings.HasPrefix(s, "t10-pi: "):
			fmt.Printf("%-8s           %s\n", m.name, s)
		}
	}
	switch {
	case m.ready:
		return true, nil
	case ended(m.qemu.Process.Pid):
		return false, errors.New("the machine has ended")
	case time.Since(begin) > 10*time.Minute:
		return false, errors.New("nothing new in ten minutes")
	}
	return false, nil
}

// ended reports whether a process has ended and was not waited for.
func ended(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(b, []byte(") Z "))
}

// end returns the last lines of the console.
func (m *machine) end() string {
	text, err := os.ReadFile(m.file("console"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}
