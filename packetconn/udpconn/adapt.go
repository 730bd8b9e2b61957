package udpconn

import (
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/packetconn"
)

// Adapt returns a net.PacketConn as a network for a RoCEv2 port. The addresses
// of c must be of type *net.UDPAddr, and its local address must be that of one
// host: Adapt returns EINVAL otherwise. The returned Conn owns c and closes it.
//
// Each datagram is sent and received by a call of its own. Adapt does not know
// the identification of the IPv4 header, which is part of the invariant CRC.
// Use IPv6 or [Listen] with other implementations; two softmkey devices accept
// each other's packets.
func Adapt(c net.PacketConn) (packetconn.Conn, error) {
	a := &adapted{c: c}
	u, ok := c.LocalAddr().(*net.UDPAddr)
	if ok {
		a.local = unmap(u.AddrPort())
	}
	if ip := a.local.Addr(); !ip.IsValid() || ip.IsUnspecified() || ip.IsMulticast() {
		return nil, failure.New("adapt a network", syscall.EINVAL, "local address %v: must be one host's address and a UDP port", c.LocalAddr())
	}
	return a, nil
}

// adapted is a net.PacketConn as a packetconn.Conn.
type adapted struct {
	c      net.PacketConn
	local  netip.AddrPort
	closed atomic.Bool
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

func (a *adapted) LocalAddr() netip.AddrPort { return a.local }

func (a *adapted) Send(trains []packetconn.Train) (int, error) {
	limits := a.Limits()
	for i := range trains {
		t := &trains[i]
		if err := limits.Check(a.local.Addr(), t); err != nil {
			return i, err
		}
		to := net.UDPAddrFromAddrPort(t.Addr)
		for k := range t.Count() {
			if _, err := a.c.WriteTo(t.At(k), to); err != nil {
				return i, a.failed(err)
			}
		}
	}
	return len(trains), nil
}

func (a *adapted) Recv(trains []packetconn.Train) (int, error) {
	if err := netconn.CheckBuffers(trains); err != nil || len(trains) == 0 {
		return 0, err
	}
	t := &trains[0]
	for {
		b := t.Buf[:cap(t.Buf)]
		n, from, err := a.c.ReadFrom(b)
		if err != nil {
			return 0, a.failed(err)
		}
		if u, ok := from.(*net.UDPAddr); ok {
			*t = packetconn.Train{Addr: unmap(u.AddrPort()), Buf: b[:n], Seg: n}
			return 1, nil
		}
	}
}

func (a *adapted) Limits() packetconn.Limits {
	return packetconn.Limits{Datagrams: 1, Bytes: netconn.MaxBytes(a.local.Addr()), Trains: 1}
}

func (a *adapted) Close() error {
	if a.closed.Swap(true) {
		return net.ErrClosed
	}
	return a.c.Close()
}

// failed returns net.ErrClosed if the Conn was closed, because c may return any
// error then; otherwise it returns err.
func (a *adapted) failed(err error) error {
	if a.closed.Load() {
		return net.ErrClosed
	}
	return fmt.Errorf("network at %v: %w", a.local, err)
}
