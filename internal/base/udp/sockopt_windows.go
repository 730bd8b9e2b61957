package udp

import (
	"errors"
	"syscall"

	"golang.org/x/sys/windows"
)

// dontFragment makes the system refuse what is larger than the MTU. The options
// are IP_DONTFRAGMENT and IPV6_DONTFRAG of ws2ipdef.h, which have one number.
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

// isMessageSize reports whether the system found a datagram too large.
func isMessageSize(err error) bool { return errors.Is(err, windows.WSAEMSGSIZE) }
