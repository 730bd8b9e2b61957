package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/internal/tool/jsonline"
	"github.com/softmkey/softmkey/verbs"
)

// Source returns the address of this host from which packets to HOST or HOST:PORT are sent.
// A device that is to reach that host should have this address.
func Source(ctx context.Context, host string) (netip.Addr, error) {
	target, err := resolve(ctx, host, netip.Addr{})
	if err != nil {
		return netip.Addr{}, err
	}
	// Connecting a UDP socket sends nothing, and gives it a source address.
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(target.Addr(), roce.UDPPort)))
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone(""), nil
}

// resolve returns the address of HOST or HOST:PORT. If like is valid, a name is resolved to an
// address of the same family, IPv4 or IPv6.
func resolve(ctx context.Context, host string, like netip.Addr) (netip.AddrPort, error) {
	if a, err := ParseAddr(host); err == nil {
		return a, nil
	}
	name, port := host, uint16(Port)
	if h, p, err := net.SplitHostPort(host); err == nil {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("%q: the port must be a number up to 65535", host)
		}
		name, port = h, uint16(n)
	}
	network := "ip"
	if like.Is4() {
		network = "ip4"
	} else if like.IsValid() {
		network = "ip6"
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, network, name)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(addrs[0].Unmap(), port), nil
}

// DialCM connects to HOST or HOST:PORT as Dial does, with the connection manager of a
// device instead of TCP: the port is one of rdma_cm's RDMA_PS_TCP.
func DialCM(ctx context.Context, dev *verbs.Device, host string, wait time.Duration) (*jsonline.Conn, error) {
	target, err := resolve(ctx, host, dev.Addr())
	if err != nil {
		return nil, err
	}
	return repeat(ctx, wait, func() (net.Conn, error) { return dialStream(ctx, dev, target) })
}

func dialStream(ctx context.Context, dev *verbs.Device, target netip.AddrPort) (net.Conn, error) {
	s, err := newStream(dev)
	if err != nil {
		return nil, err
	}
	c, err := cm.Dial(ctx, s.qp, target, nil)
	if err != nil {
		s.free()
		return nil, err
	}
	return s.begin(c), nil
}

// cmListener takes connections of the connection manager.
type cmListener struct {
	dev *verbs.Device
	l   *cm.Listener
}

// ListenCM opens the port of rdma_cm's RDMA_PS_TCP on a device that peers connect to
// with [DialCM], or a program of librdmacm with rdma_connect.
func ListenCM(dev *verbs.Device, port uint16) (*Listener, error) {
	l, err := cm.Listen(dev, port, nil)
	if err != nil {
		return nil, err
	}
	return &Listener{cmListener{dev, l}}, nil
}

func (l cmListener) close() error { return l.l.Close() }

func (l cmListener) accept() (net.Addr, func(context.Context) (net.Conn, error), error) {
	req, err := l.l.Accept(context.Background())
	if err != nil {
		return nil, nil, err
	}
	return req.RemoteAddr(), func(ctx context.Context) (net.Conn, error) {
		s, err := newStream(l.dev)
		if err != nil {
			return nil, errors.Join(err, req.Reject(cm.ReasonNoResources, nil))
		}
		c, err := req.Accept(ctx, s.qp, nil)
		if err != nil {
			s.free()
			return nil, err
		}
		return s.begin(c), nil
	}, nil
}
