package udp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/packetconn"
)

// portable is a socket for systems without batching: each datagram takes a call of
// package net. It is built and tested on all systems.
type portable struct {
	pc     *net.UDPConn
	local  netip.AddrPort
	caps   packetconn.Caps
	limits packetconn.Limits

	tx sync.Mutex
	rx sync.Mutex
}

func listenPortable(addr netip.AddrPort, o Options) (netconn.Conn, error) {
	network := "udp4"
	if addr.Addr().Is6() {
		network = "udp6"
	}
	lc := net.ListenConfig{Control: func(_, _ string, rc syscall.RawConn) error {
		return dontFragment(rc, addr.Addr().Is4())
	}}
	p, err := lc.ListenPacket(context.Background(), network, addr.String())
	if err != nil {
		return nil, listenError(addr, err)
	}
	c := &portable{pc: p.(*net.UDPConn)}
	port := c.pc.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	c.local = netip.AddrPortFrom(addr.Addr(), port)
	c.limits = packetconn.Limits{Datagrams: minSegments, Bytes: netconn.MaxBytes(addr.Addr()), Trains: 1}
	c.caps.MTU, _ = interfaceMTU(addr.Addr())
	if c.pc.SetReadBuffer(o.RecvBuffer) == nil {
		c.caps.RecvBuffer = o.RecvBuffer
	}
	if c.pc.SetWriteBuffer(o.SendBuffer) == nil {
		c.caps.SendBuffer = o.SendBuffer
	}
	return c, nil
}

// listenError returns the error of a failed listen, with its errno.
func listenError(addr netip.AddrPort, err error) error {
	e := failure.New("udp listen", failure.Errno(err, syscall.EINVAL), "%v", addr)
	e.Err = err
	var network *net.OpError
	if errors.As(err, &network) {
		e.Err = network.Err // without the address
	}
	return e
}

func (c *portable) LocalAddr() netip.AddrPort { return c.local }

func (c *portable) ID(int) uint16 { return 0 }

func (c *portable) Limits() packetconn.Limits { return c.limits }

func (c *portable) Caps() packetconn.Caps { return c.caps }

func (c *portable) Close() error {
	if c.pc.Close() != nil {
		return net.ErrClosed
	}
	return nil
}

// Send implements Conn. The traffic class is not sent.
func (c *portable) Send(trains []packetconn.Train) (int, error) {
	c.tx.Lock()
	defer c.tx.Unlock()
	for i := range trains {
		t := &trains[i]
		if err := c.limits.Check(c.local.Addr(), t); err != nil {
			return i, err
		}
		for k := range t.Count() {
			if _, err := c.pc.WriteToUDPAddrPort(t.At(k), t.Addr); err != nil {
				return i, c.sendError(t, err)
			}
		}
	}
	return len(trains), nil
}

func (c *portable) sendError(t *packetconn.Train, err error) error {
	if errors.Is(err, net.ErrClosed) {
		return net.ErrClosed
	}
	if isMessageSize(err) {
		mtu, err := PathMTU(c.local.Addr(), t.Addr.Addr())
		if err != nil {
			mtu = 0
		}
		return netconn.TooLarge(t, mtu)
	}
	e := failure.New("udp send", failure.Errno(err, syscall.EINVAL), "%d bytes to %v", len(t.At(0)), t.Addr)
	e.Err = err
	return e
}

// Poll implements Conn. It returns 0, because package net cannot receive without
// blocking.
func (c *portable) Poll([]packetconn.Train) (int, error) { return 0, nil }

// Recv implements Conn. It fills one train with one datagram.
func (c *portable) Recv(trains []packetconn.Train) (int, error) {
	if len(trains) == 0 {
		return 0, nil
	}
	t := &trains[0]
	if err := netconn.CheckBuffers(trains[:1]); err != nil {
		return 0, err
	}
	c.rx.Lock()
	defer c.rx.Unlock()
	n, from, err := c.pc.ReadFromUDPAddrPort(t.Buf[:cap(t.Buf)])
	switch {
	case errors.Is(err, net.ErrClosed):
		return 0, net.ErrClosed
	case err != nil:
		e := failure.New("udp receive", failure.Errno(err, syscall.EINVAL), "%v", c.local)
		e.Err = err
		return 0, e
	}
	*t = packetconn.Train{
		Addr: netip.AddrPortFrom(from.Addr().Unmap(), from.Port()),
		Buf:  t.Buf[:n],
		Seg:  n,
	}
	return 1, nil
}
