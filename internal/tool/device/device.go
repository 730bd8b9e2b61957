package device

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/udp"
	"github.com/softmkey/softmkey/internal/tool/pcap"
	"github.com/softmkey/softmkey/roce"
	"github.com/softmkey/softmkey/verbs"
)

// Options say how a device is opened.
type Options struct {
	// Search tries the following addresses of 127.0.0.0/8, all of which are this
	// host's, if the address is one of them and has a device already.
	Search bool

	// Recorder, if not nil, records the packets that the device sends and receives.
	Recorder *pcap.Recorder

	UDP *udp.Options
}

// Open opens a device on an address.
func Open(addr netip.Addr, o Options) (*verbs.Device, error) {
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

func open(addr netip.Addr, o Options) (*verbs.Device, error) {
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
