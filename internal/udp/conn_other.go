//go:build !linux

package udp

import (
	"net"
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/internal/operr"
)

func listen(addr netip.AddrPort, o Options) (Conn, error) { return listenPortable(addr, o) }

// PathMTU returns the largest IP packet, headers included, that the system
// believes to reach peer from local without being cut: here, the MTU of the
// interface that has the address local.
func PathMTU(local, peer netip.Addr) (int, error) {
	const op = "path MTU"
	local, peer = local.Unmap(), peer.Unmap()
	if !local.IsValid() || !peer.IsValid() || local.Is4() != peer.Is4() {
		return 0, operr.New(op, syscall.EINVAL, "from %v to %v: two addresses of one family are needed", local, peer)
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return 0, operr.New(op, errnoOf(err), "%v", err)
	}
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr() == local.WithZone("") {
				return i.MTU, nil
			}
		}
	}
	return 0, operr.New(op, syscall.EADDRNOTAVAIL, "no interface has the address %v", local)
}
