package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/internal/net/udp"
	"github.com/softmkey/softmkey/internal/tool/jsonline"
)

// Port is the default TCP port: that of perftest and of the examples of libibverbs.
const Port = 18515

// StepTimeout is the Timeout of the connections that Dial and Accept make. It limits the time
// for each step of the conversation. On a line that loses a third of the packets, TCP may need many
// attempts for a step.
const StepTimeout = 30 * time.Second

// ParseAddr reads ADDR or ADDR:PORT, with brackets around an IPv6 address that a
// port follows. The default port is Port.
func ParseAddr(s string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(a.Unmap(), Port), nil
	}
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return a, fmt.Errorf("%q: must be an address of this host, with or without a port, such as 127.0.0.1 or 192.0.2.1:%d", s, Port)
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}

// Dial connects to HOST or HOST:PORT, where HOST is a name or an address. If from is
// valid, it is this side's address. If the connection is refused, Dial tries again until
// the time wait has passed.
func Dial(ctx context.Context, host string, from netip.Addr, wait time.Duration) (*jsonline.Conn, error) {
	target := host
	if a, err := ParseAddr(host); err == nil {
		target = a.String()
	} else if _, _, err := net.SplitHostPort(host); err != nil {
		target = net.JoinHostPort(host, strconv.Itoa(Port))
	}
	d := net.Dialer{Control: controlLossy}
	if from.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	return repeat(ctx, wait, func() (net.Conn, error) { return d.DialContext(ctx, "tcp", target) })
}

// repeat calls dial every retryAfter while the connection is refused, for wait at most. The error is the last one
// of dial, or the cause of ctx if that is done.
func repeat(ctx context.Context, wait time.Duration, dial func() (net.Conn, error)) (*jsonline.Conn, error) {
	for end := time.Now().Add(wait); ; {
		c, err := dial()
		switch {
		case err == nil:
			conn := jsonline.New(c)
			conn.Timeout = StepTimeout
			return conn, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !errors.Is(err, syscall.ECONNREFUSED) || time.Now().After(end):
			return nil, err
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
		}
	}
}

// retryAfter is the pause between two attempts of Dial.
const retryAfter = 50 * time.Millisecond

// LocalAddr returns the IP address of this side of a connection.
func LocalAddr(c net.Conn) netip.Addr {
	a, _ := hostAddr(c.LocalAddr())
	return a
}

// hostAddr returns the IP address of an end of a TCP connection or of one of package cm.
func hostAddr(a net.Addr) (netip.Addr, bool) {
	end, ok := a.(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.Addr{}, false
	}
	return end.AddrPort().Addr().Unmap().WithZone(""), true
}

// CheckDevice returns an error if this side must not send packets to claimed, the address
// that a peer gives for its device. The address must be want if that is valid, and otherwise
// the address from which the peer's connection comes. If that is a loopback address, claimed
// may be any loopback address, since all of them are this host. Multicast and broadcast
// addresses are always refused. For a connection within the process, such as a net.Pipe,
// every address is allowed.
func CheckDevice(c net.Conn, claimed, want netip.Addr) error {
	claimed = claimed.Unmap().WithZone("")
	from, ok := hostAddr(c.RemoteAddr())
	switch {
	case !ok:
		return nil
	case !claimed.IsValid(), claimed.IsUnspecified(), claimed.IsMulticast(), udp.IsBroadcast(claimed):
		return fmt.Errorf("the other side's device has the address %v: must be the address of one host", claimed)
	case want.IsValid() && claimed != want.Unmap().WithZone(""):
		return fmt.Errorf("the other side's device has the address %v: must be %v, as --peer-device says", claimed, want)
	case want.IsValid(), claimed == from, claimed.IsLoopback() && from.IsLoopback():
		return nil
	}
	return fmt.Errorf("the other side's device has the address %v, its connection comes from %v: must be the same, or be named by --peer-device", claimed, from)
}
