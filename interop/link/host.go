package link

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// device is the name of a host's TUN device.
const device = "link0"

// deviceQueue is the number of packets that the TUN device queues for the forwarder. It
// is larger than the number that any sender has in flight, so that only the model drops
// packets.
const deviceQueue = 20000

// Host is a network namespace with one TUN device.
type Host struct {
	// Addrs are the host's two addresses, so that two RoCEv2 devices can run on it.
	Addrs [2]netip.Addr

	tun   *os.File
	calls chan func() // executed by the thread in the namespace
	ended chan struct{}
}

// newHost creates a namespace with a TUN device that has the addresses, each in a /24.
func newHost(mtu int, first, second string) (*Host, error) {
	h := &Host{Addrs: [2]netip.Addr{netip.MustParseAddr(first), netip.MustParseAddr(second)}, calls: make(chan func()), ended: make(chan struct{})}
	started := make(chan error)
	go h.thread(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("link: a network namespace (this needs root): %w", err)
	}
	err := h.do(func() (err error) {
		if h.tun, err = openTUN(device); err != nil {
			return err
		}
		for _, words := range [][]string{
			{"link", "set", "lo", "up"},
			{"addr", "add", first + "/24", "dev", device},
			{"addr", "add", second + "/24", "dev", device},
			{"link", "set", device, "mtu", strconv.Itoa(mtu), "txqueuelen", strconv.Itoa(deviceQueue), "up"},
		} {
			if text, err := exec.Command("ip", words...).CombinedOutput(); err != nil {
				return fmt.Errorf("link: ip %q: %w: %s", words, err, text)
			}
		}
		return nil
	})
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// thread is the goroutine whose thread is in the namespace. The runtime ends a thread
// whose goroutine returns while locked to it, and the kernel removes the namespace with
// its last user.
func (h *Host) thread(started chan<- error) {
	defer close(h.ended)
	runtime.LockOSThread()
	err := unix.Unshare(unix.CLONE_NEWNET)
	started <- err
	if err != nil {
		return
	}
	for call := range h.calls {
		call()
	}
}

// do executes f in the namespace.
func (h *Host) do(f func() error) (err error) {
	done := make(chan struct{})
	h.calls <- func() {
		defer close(done)
		err = f()
	}
	<-done
	return err
}

// Start starts a program on the host: a process inherits the namespace of the thread that starts it.
func (h *Host) Start(cmd *exec.Cmd) error { return h.do(cmd.Start) }

// close ends the host's thread. The kernel removes the namespace with the last process in
// it.
func (h *Host) close() error {
	var err error
	if h.tun != nil {
		err = h.tun.Close()
	}
	close(h.calls)
	<-h.ended
	return err
}

// openTUN creates a TUN device in the calling thread's namespace.
func openTUN(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("link: /dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("link: TUN device %s: %w", name, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}
