package rendezvous

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// Both ends of a connection limit the waits of TCP.
func TestLongestWait(t *testing.T) {
	l, err := Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	fatal.If(t, err)
	defer l.Close()
	a, err := Dial(t.Context(), l.Addr().String(), netip.Addr{}, 0)
	fatal.If(t, err)
	defer a.Close()
	_, connect, err := l.l.accept()
	fatal.If(t, err)
	b, err := connect(t.Context())
	fatal.If(t, err)
	defer b.Close()
	for name, c := range map[string]net.Conn{"dialed": a.Conn, "accepted": b} {
		raw, err := c.(*net.TCPConn).SyscallConn()
		fatal.If(t, err)
		raw.Control(func(fd uintptr) {
			switch wait, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS); {
			case err == unix.ENOPROTOOPT:
				t.Skip("NOT RUN: this kernel has no limit for the waits of TCP")
			case err != nil || wait != longestWait:
				t.Errorf("%s: longest wait %d ms (%v), want %d", name, wait, err, longestWait)
			}
		})
	}
}
