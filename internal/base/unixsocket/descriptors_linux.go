package unixsocket

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Duplicate returns another descriptor of a file, which does not close with the first one and which no other program
// inherits.
func Duplicate(raw syscall.RawConn) (fd int, err error) {
	if bad := raw.Control(func(s uintptr) { fd, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) }); bad != nil {
		return -1, bad
	}
	return fd, err
}

// Descriptors returns the descriptors that came with a message, from its control data. They belong to the caller, even if
// there is an error: then the control data is malformed after them.
func Descriptors(oob []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	for i := range messages {
		if some, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, some...)
		}
	}
	return fds, err
}

// Credentials returns those of the process at the other end of a connection, from the time at which it listened or
// connected (SO_PEERCRED).
func Credentials(c syscall.Conn) (peer *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if bad := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); bad != nil {
		return nil, bad
	}
	return peer, err
}
