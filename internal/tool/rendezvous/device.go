package rendezvous

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/udp"
	"github.com/softmkey/softmkey/internal/tool/pcap"
	"github.com/softmkey/softmkey/roce"
	"github.com/softmkey/softmkey/verbs"
)

// Local returns the address that a device has on this side of the connection.
func (c *Conn) Local() netip.Addr {
	return c.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
}

// DeviceOptions say how a device is opened.
type DeviceOptions struct {
	// Search tries further addresses of 127.0.0.0/8 if the one given is such a one
	// and taken: every one of them is this host's.
	Search bool

	// Recorder, if not nil, records what the device sends and receives.
	Recorder *pcap.Recorder

	UDP *udp.Options
}

// OpenDevice opens a device on an address.
func OpenDevice(addr netip.Addr, o DeviceOptions) (*verbs.Device, error) {
	for {
		dev, err := open(addr, o)
		switch {
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			return nil, fmt.Errorf("%v is no address of this host (%w)", addr, err)
		case err == nil || !errors.Is(err, syscall.EADDRINUSE):
			return dev, err
		}
		next, ok := nextLoopback(addr)
		if !o.Search || !ok {
			return nil, fmt.Errorf("%v has a device already: UDP port %d is taken by another program (%w)", addr, roce.UDPPort, err)
		}
		addr = next
	}
}

func open(addr netip.Addr, o DeviceOptions) (*verbs.Device, error) {
	conn, err := udp.Listen(netip.AddrPortFrom(addr, roce.UDPPort), o.UDP)
	if err != nil {
		return nil, err
	}
	if o.Recorder != nil {
		conn = o.Recorder.Wrap(conn)
	}
	dev, err := verbs.Open(addr, &verbs.Options{Conn: conn})
	if err != nil {
		conn.Close()
	}
	return dev, err
}

// nextLoopback returns the address behind a, if both are in 127.0.0.0/24.
func nextLoopback(a netip.Addr) (netip.Addr, bool) {
	if !a.Is4() || !a.IsLoopback() {
		return a, false
	}
	next := a.Next()
	b := next.As4()
	return next, next.IsLoopback() && b[3] != 0 && b[3] != 255
}
