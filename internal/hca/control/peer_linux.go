package control

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// userOf returns the user of the process at the other end of a connection: the one that connected, or
// that listened.
func userOf(c *net.UnixConn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	var peer *unix.Ucred
	if bad := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); bad != nil {
		return -1, bad
	}
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
