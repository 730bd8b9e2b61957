package udp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// TestHopLimit sends with a hop limit, and without one: then the packet has the system's.
func TestHopLimit(t *testing.T) {
	for _, addr := range loopbacks {
		if addr.Addr().Is6() && !hasIPv6() {
			continue
		}
		a := listenLinux(t, addr, nil)
		b, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
		fatal.If(t, err)
		defer b.Close()
		raw, err := b.SyscallConn()
		fatal.If(t, err)
		raw.Control(func(fd uintptr) {
			if addr.Addr().Is4() {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVTTL, 1)
			} else {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1)
			}
		})
		fatal.If(t, err)
		for _, hops := range []uint8{17, 255, 0} {
			out := trains(b.LocalAddr().(*net.UDPAddr).AddrPort(), 1, 4, 100)
			out[0].Route.HopLimit, out[0].TOS = hops, 2
			if _, err := a.Send(out); err != nil {
				t.Fatal(err)
			}
			for range 4 {
				var p, control [1024]byte
				_, n, _, _, err := b.ReadMsgUDP(p[:], control[:])
				fatal.If(t, err)
				messages, err := unix.ParseSocketControlMessage(control[:n])
				if err != nil || len(messages) != 1 {
					t.Fatalf("%d control messages, %v", len(messages), err)
				}
				if got := binary.NativeEndian.Uint32(messages[0].Data); got != uint32(hops) && (hops != 0 || got < 32) {
					t.Errorf("%v: hop limit %d, want %d", addr.Addr(), got, hops)
				}
			}
		}
	}
}

// TestLinkLocal sends between two sockets at a link-local address of this host, to an address
// without a zone. Addresses of peers have no zone either: GIDs, by which programs name peers, have
// none.
func TestLinkLocal(t *testing.T) {
	addr := linkLocal()
	if !addr.IsValid() {
		t.Skip("no interface has a link-local address")
	}
	a, b := listenLinux(t, netip.AddrPortFrom(addr, 0), nil), listenLinux(t, netip.AddrPortFrom(addr, 0), nil)
	plain := func(p netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(p.Addr().WithZone(""), p.Port()) }
	if _, err := a.Send(trains(plain(b.LocalAddr()), 1, 1, 100)); err != nil {
		t.Fatal(err)
	}
	in := buffers(1)
	if _, err := b.Recv(in); err != nil {
		t.Fatal(err)
	}
	if in[0].Addr != plain(a.LocalAddr()) {
		t.Errorf("from %v, want %v", in[0].Addr, plain(a.LocalAddr()))
	}
}

// linkLocal returns a link-local address of this host.
func linkLocal() netip.Addr {
	all, _ := net.Interfaces()
	for _, i := range all {
		list, _ := i.Addrs()
		for _, n := range list {
			if p, err := netip.ParsePrefix(n.String()); err == nil && p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() && i.Flags&net.FlagUp != 0 {
				return p.Addr().WithZone(i.Name)
			}
		}
	}
	return netip.Addr{}
}

// TestGroup sends to a group from one address of an interface, and receives at another one, which has joined, and holds
// as many datagrams for a process that is not scheduled as those to its own address.
func TestGroup(t *testing.T) {
	enterNamespace(t)
	for _, name := range []string{"other", "v0"} { // without the choice of an interface, the first one sends
		ip(t, "link", "add", name, "up", "type", "veth", "peer", "name", name+"peer")
		ip(t, "link", "set", name+"peer", "up")
	}
	for _, c := range []struct{ from, to, prefix, group string }{
		{"10.77.0.1:4791", "10.77.0.2:4791", "/24", "239.77.1.3"},
		{"[fd77::1]:4791", "[fd77::2]:4791", "/64", "ff15::77"},
	} {
		from, to, group := netip.MustParseAddrPort(c.from), netip.MustParseAddrPort(c.to), netip.MustParseAddr(c.group)
		for _, a := range []netip.AddrPort{from, to} {
			ip(t, append([]string{"address", "add", a.Addr().String() + c.prefix, "dev", "v0"}, map[bool][]string{true: {"nodad"}}[group.Is6()]...)...)
		}
		port := listenLinux(t, to, &Options{NoGRO: true, RecvBuffer: 64 << 10})
		member, err := port.Join(group)
		fatal.If(t, err)
		if got, want := member.(*conn).Caps(), port.Caps(); got.RecvBuffer != want.RecvBuffer || got.SendBuffer != want.SendBuffer || got.GRO != want.GRO {
			t.Errorf("the group's socket has %+v, the port's %+v", got, want)
		}
		if _, err := listenLinux(t, from, nil).Send(trains(netip.AddrPortFrom(group, to.Port()), 1, 2, 100)); err != nil {
			t.Fatal(err)
		}
		for got := 0; got < 2; {
			in := buffers(1)
			if _, err := member.Recv(in); err != nil || in[0].Addr != from {
				t.Fatalf("from %v, %v; want %v", in[0].Addr, err, from)
			}
			got += in[0].Count()
		}
		member.Close()
	}
}
