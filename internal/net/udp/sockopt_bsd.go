//go:build darwin || freebsd

package udp

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// dontFragment makes the system refuse datagrams larger than the MTU. Systems without the
// option (macOS before 11, for IPv4) may fragment.
func dontFragment(rc syscall.RawConn, v4 bool) error {
	return rc.Control(func(fd uintptr) {
		if v4 {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_DONTFRAG, 1)
		} else {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1)
		}
	})
}
