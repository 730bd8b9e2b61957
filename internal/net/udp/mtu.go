package udp

import (
	"net"
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// PathMTU returns the largest IP packet, headers included, that the system sends from
// local to peer without fragmentation. This is the MTU of the interface with the address
// local. On Linux it is the MTU of the route, which can be smaller after a router has
// reported so.
func PathMTU(local, peer netip.Addr) (int, error) {
	const op = "path MTU"
	local, peer = local.Unmap(), peer.Unmap()
	if !local.IsValid() || !peer.IsValid() || local.Is4() != peer.Is4() {
		return 0, failure.New(op, syscall.EINVAL, "from %v to %v: two addresses of one family are needed", local, peer)
	}
	mtu, err := pathMTU(local, peer)
	if err != nil {
		return 0, failure.New(op, failure.Errno(err, syscall.EINVAL), "from %v to %v: %v", local, peer, err)
	}
	return mtu, nil
}

// interfaceMTU returns the MTU of the interface with the address local.
func interfaceMTU(local netip.Addr) (int, error) {
	i, err := interfaceOf(local)
	return i.MTU, err
}

// interfaceOf returns the interface with the address local.
func interfaceOf(local netip.Addr) (net.Interface, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return net.Interface{}, err
	}
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Contains(local.WithZone("")) && (p.Addr() == local.WithZone("") || local.IsLoopback()) {
				return i, nil
			}
		}
	}
	return net.Interface{}, syscall.EADDRNOTAVAIL
}
