package device

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Auto stands for the address from which this host reaches other hosts.
const Auto = "auto"

// Address returns the address of this host that a name stands for: an IP address, the name of a
// network interface, or [Auto].
func Address(name string) (netip.Addr, error) {
	if a, err := netip.ParseAddr(name); err == nil {
		return a.Unmap(), nil
	}
	if name == Auto {
		return routed()
	}
	i, err := net.InterfaceByName(name)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("must be an IP address of this host, auto, or one of its interfaces: %s", strings.Join(interfaces(), ", "))
	}
	if a := first(*i); a.IsValid() {
		return a, nil
	}
	return netip.Addr{}, fmt.Errorf("the interface %s has no IP address", name)
}

// routed returns the source address of the default route. A host without one gets the first address of an interface
// that is up, except for loopback and link-local addresses. The error is nil unless there is none either.
func routed() (netip.Addr, error) {
	// These addresses are reserved for documentation, so only a default route leads to them.
	// Connecting a UDP socket sends nothing.
	for _, far := range []string{"192.0.2.1:4791", "[2001:db8::1]:4791"} {
		if c, err := net.Dial("udp", far); err == nil {
			a := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
			c.Close()
			if !a.IsLoopback() {
				return a, nil
			}
		}
	}
	all, err := net.Interfaces()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		if a := first(i); a.IsValid() && !a.IsLinkLocalUnicast() {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("this host has no address but loopback and link-local ones")
}

// first returns the address of an interface that a device should have: the first IPv4 address,
// else the first IPv6 address that is not link-local, else the first link-local one.
func first(i net.Interface) (best netip.Addr) {
	list, _ := i.Addrs()
	rank := func(a netip.Addr) int {
		switch {
		case a.Is4():
			return 3
		case a.IsValid() && !a.IsLinkLocalUnicast():
			return 2
		case a.IsValid():
			return 1
		}
		return 0
	}
	for _, n := range list {
		p, err := netip.ParsePrefix(n.String())
		if err != nil {
			continue
		}
		a := p.Addr().Unmap()
		if a.Is6() && a.IsLinkLocalUnicast() {
			a = a.WithZone(i.Name)
		}
		if rank(a) > rank(best) {
			best = a
		}
	}
	return best
}

// interfaces returns the names of this host's interfaces.
func interfaces() (names []string) {
	all, _ := net.Interfaces()
	for _, i := range all {
		names = append(names, i.Name)
	}
	slices.Sort(names)
	return names
}
