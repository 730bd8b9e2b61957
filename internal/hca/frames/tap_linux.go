package frames

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/operr"
)

// tap is a tap device.
type tap struct{ file *os.File }

// OpenTap opens a tap device, or creates it, which needs CAP_NET_ADMIN. A
// created device is removed with the link; OpenTap does not configure the
// host's side. It returns EINVAL if the name is too long, EPERM if the device
// belongs to another user, and EBUSY if another program uses it.
func OpenTap(name string) (Link, error) {
	const op = "open a tap device"
	req, err := unix.NewIfreq(name)
	if err != nil {
		return nil, failure.New(op, syscall.EINVAL, "name %q: must have 1 to 15 characters", name)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, failed(op, "/dev/net/tun", err)
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		unix.Close(fd)
		return nil, failed(op, name, err)
	}
	return &tap{os.NewFile(uintptr(fd), name)}, nil
}

// failed keeps the errno of a system call.
func failed(op, name string, err error) error {
	return &operr.Error{Op: op, Errno: failure.Errno(err, syscall.EIO), Reason: name, Err: err}
}

// Send implements Link. The device has a queue; if it is full or the interface is down, the
// frame is lost.
func (t *tap) Send(frame []byte) error {
	conn, err := t.file.SyscallConn()
	if err != nil {
		return net.ErrClosed
	}
	var failed error
	err = conn.Write(func(fd uintptr) bool {
		_, failed = unix.Write(int(fd), frame)
		return true // Send does not wait
	})
	switch {
	case err != nil:
		return net.ErrClosed
	case failed == unix.EAGAIN || failed == unix.EIO || failed == unix.ENOBUFS || failed == unix.EINVAL:
		return nil
	}
	return failed
}

// Recv implements Link.
func (t *tap) Recv(b []byte) (int, error) {
	n, err := t.file.Read(b)
	if err != nil {
		return 0, net.ErrClosed
	}
	return n, nil
}

// Close implements Link.
func (t *tap) Close() error { return t.file.Close() }
