package device

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"github.com/softmkey/softmkey/internal/net/udp"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/internal/tool/pcap"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/verbs"
)

// Options say how a device is opened.
type Options struct {
	// Search lets Open take a later address of the same /24 if the address is in
	// 127.0.0.0/8 and has a device already.
	Search bool

	// Recorder, if not nil, records the packets that the device sends and receives.
	Recorder *pcap.Recorder

	// Listen, if not nil, opens the device's network in place of a UDP socket.
	Listen func(netip.AddrPort) (packetconn.Conn, error)
}

// openError is an error of Open in words for the user. It wraps the system's error.
type openError struct {
	text string
	err  error
}

func (e *openError) Error() string { return e.text }
func (e *openError) Unwrap() error { return e.err }

// addresses lists the addresses of this host.
func addresses() string {
	all, _ := net.InterfaceAddrs()
	var list []string
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
			list = append(list, p.Addr().String())
		}
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// Open opens a device on an address of this host. The address 127.0.0.1, for example, may be
// that of a device in another program; then Open fails, or takes another one with o.Search.
func Open(addr netip.Addr, o Options) (*verbs.Device, error) {
	for {
		dev, err := open(addr, o)
		switch {
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			return nil, &openError{fmt.Sprintf("%v is no address of this host, which has %s", addr, addresses()), err}
		case err == nil || !errors.Is(err, syscall.EADDRINUSE):
			return dev, err
		}
		next, ok := nextLoopback(addr)
		if !o.Search || !ok {
			return nil, &openError{fmt.Sprintf("%v has a device already: UDP port %d is taken by another program", addr, roce.UDPPort), err}
		}
		addr = next
	}
}

func open(addr netip.Addr, o Options) (*verbs.Device, error) {
	listen := o.Listen
	if listen == nil {
		listen = func(at netip.AddrPort) (packetconn.Conn, error) { return udp.Listen(at, nil) }
	}
	conn, err := listen(netip.AddrPortFrom(addr, roce.UDPPort))
	if err != nil {
		return nil, err
	}
	if o.Recorder != nil {
		conn = o.Recorder.Wrap(conn)
	}
	dev, err := verbs.Open(addr, &verbs.DeviceOptions{Conn: conn})
	if err != nil {
		conn.Close()
	}
	return dev, err
}

// nextLoopback returns the address that follows a, if both are in the same /24 of
// the loopback network.
func nextLoopback(a netip.Addr) (netip.Addr, bool) {
	if !a.Is4() || !a.IsLoopback() {
		return a, false
	}
	next := a.Next()
	b := next.As4()
	return next, next.IsLoopback() && b[3] != 0 && b[3] != 255
}
