package udp

import (
	"net"
	"net/netip"
)

// IsBroadcast reports whether a is the limited broadcast address, or the broadcast address
// of a network to which this host is connected.
func IsBroadcast(a netip.Addr) bool {
	if !a.Is4() {
		return false
	}
	if a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, i := range addrs {
		n, err := netip.ParsePrefix(i.String())
		if err == nil && n.Addr().Is4() && n.Bits() < 31 && a == lastAddr(n) {
			return true
		}
	}
	return false
}

// lastAddr returns the address of an IPv4 network whose host bits are all ones.
func lastAddr(n netip.Prefix) netip.Addr {
	b := n.Addr().As4()
	for bit := n.Bits(); bit < 32; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	return netip.AddrFrom4(b)
}
