package udp

import (
	"errors"
	"syscall"

	"golang.org/x/sys/windows"
)

// dontFragment makes the system refuse datagrams larger than the MTU. The options
// IP_DONTFRAGMENT and IPV6_DONTFRAG of ws2ipdef.h have the same number.
func dontFragment(rc syscall.RawConn, v4 bool) error {
	const option = 14
	level := windows.IPPROTO_IP
	if !v4 {
		level = windows.IPPROTO_IPV6
	}
	return rc.Control(func(fd uintptr) {
		_ = windows.SetsockoptInt(windows.Handle(fd), level, option, 1)
	})
}

// isMessageSize reports whether err means that a datagram is too large.
func isMessageSize(err error) bool { return errors.Is(err, windows.WSAEMSGSIZE) }
