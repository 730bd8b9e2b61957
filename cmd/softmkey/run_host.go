//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/softmkey/softmkey/internal/hca/rdmacm"
	"github.com/softmkey/softmkey/internal/hca/uverbs"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/roce"
)

// host is the host of a run's devices. A run without --device gets one more device for each
// address of the host that a program binds with rdma_cm, or from which it reaches a peer.
type host struct{ b *runner }

// Source implements rdmacm.Host.
func (host) Source(dst netip.Addr) netip.Addr {
	// Connecting a UDP socket sends nothing: the system only chooses the route.
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(dst, roce.UDPPort)))
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone("")
}

// Local implements rdmacm.Host.
func (host) Local(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	all, _ := net.InterfaceAddrs()
	return slices.ContainsFunc(all, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr() == addr
	})
}

// Attach implements rdmacm.Host.
func (h host) Attach(addr netip.Addr) (rdmacm.Device, error) {
	const op = "address"
	none, b := rdmacm.Device{}, h.b
	switch {
	case !h.Local(addr):
		return none, operr.New(op, syscall.EADDRNOTAVAIL, "%v is no address of this host", addr)
	case len(b.flags.devices) > 0:
		return none, operr.New(op, syscall.EADDRNOTAVAIL, "no device has %v: the flag --device %v gives it one", addr, addr)
	case len(b.devices) >= uverbs.MaxDevices:
		return none, operr.New(op, syscall.ENOSPC, "%v: the run has %d devices, and no room for more", addr, len(b.devices))
	}
	d, err := b.attach(addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return none, operr.New(op, syscall.EADDRINUSE, "%v has a device already: UDP port %d is taken by another program", addr, roce.UDPPort)
	case err != nil:
		return none, operr.New(op, syscall.ENODEV, "no device on %v: %v", addr, err)
	}
	return d, nil
}

// attach opens one more device while programs run.
func (b *runner) attach(addr netip.Addr) (rdmacm.Device, error) {
	c, err := b.openAt(b.freeName(), addr)
	if err != nil {
		return c, err
	}
	b.mu.RLock()
	d := b.devices[len(b.devices)-1]
	b.mu.RUnlock()
	if err := uverbs.AddToTree(b.root, d); err != nil {
		return c, fmt.Errorf("its files: %w", err)
	}
	return c, nil
}

// freeName returns the first of mlx5_0, mlx5_1, ... that no device has.
func (b *runner) freeName() string {
	for i := len(b.devices); ; i++ {
		name := fmt.Sprintf("mlx5_%d", i)
		if !slices.ContainsFunc(b.devices, func(d *uverbs.Device) bool { return d.Name() == name }) {
			return name
		}
	}
}
