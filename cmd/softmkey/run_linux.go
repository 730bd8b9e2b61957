//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/intercept"
	"github.com/softmkey/softmkey/internal/hca/uverbs"
)

// A process that run starts becomes the program, before anything else runs.
func init() { intercept.Child() }

// run runs the program and returns how it ended.
func (f *runFlags) run(args []string) error {
	path, err := intercept.LookPath(args[0])
	if err != nil {
		return err
	}
	devices, err := f.openDevices()
	if err != nil {
		return err
	}
	defer func() {
		for _, d := range devices {
			d.Close()
		}
	}()
	root, err := os.MkdirTemp("", "softmkey-run-")
	if err != nil {
		return fmt.Errorf("run: the tree of the devices: %w", err)
	}
	defer os.RemoveAll(root)
	if err := uverbs.WriteTree(root, devices); err != nil {
		return fmt.Errorf("run: the tree of the devices: %w", err)
	}
	nodes := map[string]intercept.Node{}
	for _, d := range devices {
		nodes[d.Node()] = uverbsNode{d}
	}
	env := append(os.Environ(), "MLX_QP_ALLOC_TYPE=CONTIG", "MLX_CQ_ALLOC_TYPE=CONTIG")
	signals := make(chan os.Signal, 16)
	for _, sig := range forwarded {
		if !signal.Ignored(sig) { // as nohup leaves it to the program
			signal.Notify(signals, sig)
		}
	}
	defer signal.Stop(signals)
	s, err := intercept.Start(intercept.Config{
		Path: path, Args: args, Env: env,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Root: root, Owned: uverbs.Owned(devices), Nodes: nodes,
	})
	if err != nil {
		return err
	}
	go forward(s, signals)
	return ended(s.Wait())
}

// ended turns the program's end into this command's.
func ended(state *os.ProcessState) error {
	if state == nil {
		return errors.New("run: the program's exit status is not known")
	}
	status, _ := state.Sys().(syscall.WaitStatus)
	switch {
	case status.Signaled():
		return programStatus(128 + int(status.Signal()))
	case status.ExitStatus() != 0:
		return programStatus(status.ExitStatus())
	}
	return nil
}

// forwarded are the signals that are the program's.
var forwarded = []os.Signal{
	syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGWINCH,
}

// forward passes signals on. The terminal sends its own to the whole foreground
// process group, which the program belongs to.
func forward(s *intercept.Supervisor, signals <-chan os.Signal) {
	for sig := range signals {
		switch sig {
		case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH, syscall.SIGCONT:
			if inForeground() {
				continue
			}
		}
		s.Signal(sig)
	}
}

// inForeground reports whether this process group is the terminal's foreground
// one.
func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// loopbacks is the number of addresses of 127.0.0.0/8 that are tried.
const loopbacks = 250

// openDevices opens the devices that the flags name.
func (f *runFlags) openDevices() ([]*uverbs.Device, error) {
	var devices []*uverbs.Device
	fail := func(err error) ([]*uverbs.Device, error) {
		for _, d := range devices {
			d.Close()
		}
		return nil, err
	}
	addrs := f.devices
	if len(f.names) > max(1, len(addrs)) {
		return fail(fmt.Errorf("run: %d names for %d devices", len(f.names), max(1, len(addrs))))
	}
	if len(addrs) == 0 {
		addrs = []addrFlag{{}}
	}
	for i, a := range addrs {
		name := fmt.Sprintf("mlx5_%d", i)
		if i < len(f.names) {
			name = f.names[i]
		}
		if name == "" || strings.ContainsAny(name, "/ \n") || name[0] == '.' || len(name) > 63 {
			return fail(fmt.Errorf("run: --name %q: a device's name has 1 to 63 characters without slashes and spaces and does not begin with a dot", name))
		}
		d, err := f.openDevice(i, name, a.Addr)
		if err != nil {
			return fail(err)
		}
		devices = append(devices, d)
	}
	return devices, nil
}

// openDevice opens one device: on its address, or on the first free loopback
// address if it has none.
func (f *runFlags) openDevice(index int, name string, addr netip.Addr) (*uverbs.Device, error) {
	try := func(addr netip.Addr) (*uverbs.Device, error) {
		cfg := uverbs.Config{Name: name, Index: index, Addr: addr}
		if f.verbose {
			cfg.Refused = refused
		}
		return uverbs.Open(cfg, adapter.Config{Addr: addr})
	}
	if addr.IsValid() {
		return try(addr)
	}
	next := netip.MustParseAddr("127.0.0.1")
	for range loopbacks {
		d, err := try(next)
		if !errors.Is(err, syscall.EADDRINUSE) {
			return d, err
		}
		next = next.Next()
	}
	return nil, fmt.Errorf("run: the addresses from 127.0.0.1 to %v are all in use by other devices: give one with --device", next)
}

// refused says why a command of a program was refused.
func refused(pid int, what string, err error) {
	if errors.Is(err, syscall.EPROTONOSUPPORT) || errors.Is(err, syscall.ENODATA) {
		return // the library tries another method, or looks for the end of a table
	}
	fmt.Fprintf(os.Stderr, "softmkey: process %d: %s: %v\n", pid, what, err)
}

// uverbsNode is the node of a device.
type uverbsNode struct{ *uverbs.Device }

func (n uverbsNode) Major() uint32 { major, _ := n.Number(); return major }
func (n uverbsNode) Minor() uint32 { _, minor := n.Number(); return minor }

func (n uverbsNode) Open(c *intercept.Call) (intercept.File, error) {
	f, err := n.Device.Open(c.Process())
	if err != nil {
		return nil, err
	}
	return uverbsFile{f}, nil
}

// uverbsFile is one open of a device's node.
type uverbsFile struct{ *uverbs.File }

func (f uverbsFile) Ioctl(c *intercept.Call, arg uint64) {
	if errno := f.File.Ioctl(c, arg); errno != 0 {
		c.Fail(errno)
		return
	}
	c.Return(0)
}

func (f uverbsFile) Write(c *intercept.Call, _ []byte) { c.Fail(unix.EINVAL) }
func (f uverbsFile) Released()                         { f.Close() }
