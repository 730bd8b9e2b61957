package control

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/unixsocket"
)

// userOf returns the user of the process at the other end of a connection: the one that connected, or
// that listened.
func userOf(c *net.UnixConn) (int, error) {
	peer, err := unixsocket.Credentials(c)
	if err != nil {
		return -1, err
	}
	return int(peer.Uid), nil
}

// mayAnswer refuses a run of another user at the path of c, unless this process is root's.
func mayAnswer(c *net.UnixConn, path string) error {
	user, err := userOf(c)
	own := os.Geteuid()
	if err == nil && own != 0 && user != 0 && user != own {
		err = failure.New("officer", syscall.EPERM, "%s: user %d listens there, and this user is %d", path, user, own)
	}
	return err
}

// atEnd reports whether the other end of a connection sends no more.
func atEnd(c *net.UnixConn) (end bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	bad := raw.Control(func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		end = n == 0 && err == nil || err != nil && err != unix.EAGAIN && err != unix.EINTR
	})
	return end || bad != nil
}
