package device

import (
	"net"
	"net/netip"
	"strings"
	"testing"
)

// TestAddress finds the addresses of this host's interfaces by their names.
func TestAddress(t *testing.T) {
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		a, err := Address(i.Name)
		list, _ := i.Addrs()
		if len(list) == 0 {
			if err == nil {
				t.Errorf("%s has no address, but the device has %v", i.Name, a)
			}
			continue
		}
		found := false
		for _, n := range list {
			p, _ := netip.ParsePrefix(n.String())
			found = found || p.Addr().Unmap() == a.WithZone("")
			if p.Addr().Unmap().Is4() && a.Is6() {
				t.Errorf("%s has %v and the device %v", i.Name, p, a)
			}
		}
		if err != nil || !found {
			t.Errorf("%s: %v, %v", i.Name, a, err)
		}
	}
	if a, err := Address("::ffff:10.0.0.1"); err != nil || a != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("an address: %v, %v", a, err)
	}
	if a, err := Address(Auto); err == nil && a.IsLoopback() || err != nil && !strings.Contains(err.Error(), "loopback") {
		t.Errorf("auto: %v, %v", a, err)
	}
	if _, err := Address("no such"); err == nil || !strings.Contains(err.Error(), "one of its interfaces: ") {
		t.Errorf("no interface: %v", err)
	}
}
