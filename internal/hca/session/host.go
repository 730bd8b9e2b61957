//go:build linux && (amd64 || arm64)

package session

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/rdmacm"
	"github.com/softmkey/softmkey/internal/hca/uverbs"
	"github.com/softmkey/softmkey/internal/roce"
)

// A run is the host of its devices. If no device has an address of its configuration, the run gets one
// more device for each address of the host that a program binds with rdma_cm, or from which it reaches
// a peer.

// Source implements rdmacm.Host.
func (*run) Source(dst netip.Addr) netip.Addr {
	// Connecting a UDP socket sends nothing: the system only chooses the route.
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(dst, roce.UDPPort)))
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone("")
}

// Neighbors implements rdmacm.Host.
func (*run) Neighbors(addr netip.Addr) []netip.Addr {
	all, _ := net.Interfaces()
	for _, i := range all {
		if addrs, _ := uverbs.Addresses(i.Addrs()); slices.Contains(addrs, addr) {
			return addrs
		}
	}
	return nil
}

// Local implements rdmacm.Host.
func (*run) Local(addr netip.Addr) bool {
	all, _ := uverbs.Addresses(net.InterfaceAddrs())
	return addr.IsLoopback() || slices.Contains(all, addr)
}

// Attach implements rdmacm.Host.
func (r *run) Attach(addr netip.Addr) (rdmacm.Device, error) {
	const op = "address"
	none := rdmacm.Device{}
	switch {
	case !r.Local(addr):
		return none, failure.New(op, syscall.EADDRNOTAVAIL, "%v is no address of this host", addr)
	case slices.ContainsFunc(r.cfg.Devices, func(d Device) bool { return d.Addr.IsValid() }):
		advice := ""
		if r.cfg.Advice != nil {
			advice = ": " + r.cfg.Advice(addr)
		}
		return none, failure.New(op, syscall.ENODEV, "no device has %v%s", addr, advice)
	case len(r.devices) >= uverbs.MaxDevices:
		return none, failure.New(op, syscall.ENOSPC, "%v: the run has %d devices, and no room for more", addr, len(r.devices))
	}
	d, err := r.attach(addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return none, err
	case err != nil:
		return none, failure.New(op, syscall.ENODEV, "no device on %v: %v", addr, err)
	}
	return d, nil
}

// attach opens one more device while programs run.
func (r *run) attach(addr netip.Addr) (rdmacm.Device, error) {
	c, err := r.openAt(Device{Name: r.freeName(), Addr: addr}, false)
	if err != nil {
		return c, err
	}
	r.mu.RLock()
	d := r.devices[len(r.devices)-1]
	r.mu.RUnlock()
	if err := uverbs.AddToTree(r.root, d); err != nil {
		return c, fmt.Errorf("its files: %w", err)
	}
	return c, nil
}

// freeName returns the first of mlx5_0, mlx5_1, ... that no device has.
func (r *run) freeName() string {
	for i := len(r.devices); ; i++ {
		name := fmt.Sprintf("mlx5_%d", i)
		if !slices.ContainsFunc(r.devices, func(d *uverbs.Device) bool { return d.Name() == name }) {
			return name
		}
	}
}
