package rdmacm

import (
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/cmcore"
)

// hostOf is a host with several addresses on a network.
type hostOf struct {
	n        *network
	addrs    []netip.Addr
	taken    netip.Addr // has a device of another program
	absent   netip.Addr // has no device, although it is the host's
	attached []netip.Addr
}

func (h *hostOf) Source(dst netip.Addr) netip.Addr {
	if slices.Contains(h.addrs, dst) {
		return dst
	}
	for _, a := range h.Neighbors(dst) {
		return a
	}
	return netip.Addr{}
}

func (h *hostOf) Neighbors(addr netip.Addr) (list []netip.Addr) {
	for _, a := range h.addrs {
		if a.Is4() == addr.Is4() {
			list = append(list, a)
		}
	}
	return list
}

func (h *hostOf) Local(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(h.addrs, a) }

func (h *hostOf) Attach(a netip.Addr) (Device, error) {
	if a == h.taken {
		return Device{}, failure.New("address", syscall.EADDRINUSE, "%v is taken", a)
	}
	if a == h.absent {
		return Device{}, failure.New("address", syscall.ENODEV, "%v has none", a)
	}
	if !h.Local(a) {
		return Device{}, failure.New("address", syscall.EADDRNOTAVAIL, "%v is not local", a)
	}
	h.attached = append(h.attached, a)
	s := cmcore.New(h.n, cmcore.Options{GUID: 0xcc})
	h.n.services[a] = s
	return Device{Service: s, NodeGUID: 0xcc, Port: 1, MTU: 1024, GIDs: []netip.Addr{{}, a}}, nil
}

// TestHostAddresses binds addresses of the host that no device has, and resolves peers that only
// these addresses reach.
func TestHostAddresses(t *testing.T) {
	loopback := netip.MustParseAddr("127.0.0.1")
	addrC := netip.MustParseAddr("192.0.2.3")
	for _, test := range []struct {
		name    string
		taken   netip.Addr
		absent  netip.Addr
		command func(p *program, fd int) syscall.Errno
		errno   syscall.Errno
		event   int32 // status of ADDR_ERROR
		reason  string
		has     string // addresses that were attached
	}{
		{name: "bind", command: bindTo("192.0.2.3:7174"), has: "192.0.2.3"},
		{name: "bind everything", command: bindTo("0.0.0.0:7174")},
		{name: "bind the device's", command: bindTo("127.0.0.1:7174")},
		{name: "bind a client on this host", command: bindTo("127.0.0.1:0")},
		{name: "bind another host's", command: bindTo("192.0.2.2:7174"), errno: syscall.EADDRNOTAVAIL, reason: "192.0.2.2 is not local"},
		{name: "bind one without a device", absent: addrC, command: bindTo("192.0.2.3:7174"), errno: syscall.ENODEV, reason: "192.0.2.3 has none"},
		{name: "bind a taken one", taken: addrC, command: bindTo("192.0.2.3:7174"), errno: syscall.EADDRINUSE, reason: "192.0.2.3 is taken"},
		{name: "resolve a peer", command: resolveFrom("", "192.0.2.2:7174"), has: "192.0.2.3"},
		{name: "resolve from an address", command: resolveFrom("192.0.2.3:0", "192.0.2.2:7174"), has: "192.0.2.3"},
		{name: "resolve this host", command: resolveFrom("", "192.0.2.3:7174")},
		{name: "resolve a peer from a taken one", taken: addrC, command: resolveFrom("", "192.0.2.2:7174"), errno: syscall.EADDRINUSE, reason: "192.0.2.3 is taken"},
		{name: "resolve this host over IPv6", command: resolveFrom("", "[::1]:7174"), has: "::1"},
		{name: "resolve by an interface without a device", absent: addrC, command: resolveFrom("", "192.0.2.2:7174"), event: -int32(syscall.ENODEV), reason: "192.0.2.3 has none"},
		{name: "resolve without a route", command: resolveFrom("", "[2001:db8::2]:7174"), errno: syscall.ENETUNREACH, reason: "no route to 2001:db8::2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *network, _, b *program) {
				h := &hostOf{n: n, addrs: []netip.Addr{addrC}, taken: test.taken, absent: test.absent}
				s := cmcore.New(n, cmcore.Options{GUID: 0xc})
				n.services[loopback] = s
				p := &program{t: t, mem: make([]byte, 1<<16)}
				p.m = New(Config{Host: h, Trace: p.take, Devices: []Device{{Service: s, NodeGUID: 0xc, Port: 1, MTU: 4096, GIDs: []netip.Addr{{}, loopback}}}})
				errno := test.command(p, p.channel())
				if test.event != 0 {
					if e := p.expect(0, eventAddrError); e.status != test.event {
						t.Errorf("status %d of ADDR_ERROR, want %d", e.status, test.event)
					}
				}
				p.files[0].Close()
				p.m.Close()
				var has []string
				for _, a := range h.attached {
					has = append(has, a.String())
				}
				if errno != test.errno || strings.Join(has, " ") != test.has {
					t.Errorf("%v, attached %v; expected %v, %q", errno, has, test.errno, test.has)
				}
				at := 1
				if test.event != 0 {
					at = 2
				}
				if r := p.records[at]; test.reason != "" && (r.Reason == nil || !strings.Contains(r.Reason.Error(), test.reason)) {
					t.Errorf("record %+v, expected %q", r, test.reason)
				}
			})
		})
	}
}

func bindTo(addr string) func(*program, int) syscall.Errno {
	return func(p *program, fd int) syscall.Errno {
		_, errno := p.command(fd, cmdBindIP, 0, words(uint64(0), sockaddr(addr), p.createID(fd, 1, 0x0106)))
		return errno
	}
}

func resolveFrom(src, dst string) func(*program, int) syscall.Errno {
	return func(p *program, fd int) syscall.Errno {
		_, errno := p.command(fd, cmdResolveIP, 0, words(sockaddr(src), sockaddr(dst), p.createID(fd, 1, 0x0106), uint32(2000)))
		return errno
	}
}

// TestOtherInterface resolves a peer that the host reaches by an interface without a device, as the loopback
// interface is one, and by one of which a device has another address than the host sends from.
func TestOtherInterface(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *program) {
		absent := netip.MustParseAddr("192.0.2.3")
		h := &hostOf{n: n, addrs: []netip.Addr{absent}, absent: absent}
		b.m.host = h
		fd := b.channel()
		for _, dst := range []string{"192.0.2.1:7174", "127.0.0.1:7174"} {
			if errno := resolveFrom("", dst)(b, fd); errno != 0 {
				t.Fatal(dst, errno)
			}
			if e := b.expect(fd, eventAddrError); e.status != -int32(syscall.ENODEV) {
				t.Errorf("%s: status %d of ADDR_ERROR", dst, e.status)
			}
		}
		h.addrs = append(h.addrs, addrB)
		if errno := resolveFrom("", "192.0.2.1:7174")(b, fd); errno != 0 {
			t.Fatal(errno)
		}
		b.expect(fd, eventAddrResolved)
	})
}

// TestAttachListener reaches a listener on every address over a device that came after it.
func TestAttachListener(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *program) {
		added := netip.MustParseAddr("192.0.2.3")
		b.m.host = &hostOf{n: n, addrs: []netip.Addr{addrB, added}}
		cb, ca := b.channel(), a.channel()
		listening(b, cb, 0xb0, 0x0106, "0.0.0.0:7174")
		b.must(cb, cmdBindIP, 0, words(uint64(0), sockaddr("192.0.2.3:9"), b.createID(cb, 0xb1, 0x0106)))
		client := resolved(a, ca, 0xa0, 0x0106, "192.0.2.3:7174")
		a.must(ca, cmdConnect, 0, words(param(7, "hello", true), client, uint32(0)))
		if e := b.expect(cb, eventConnectRequest); e.uid != 0xb0 {
			t.Errorf("event %+v", e)
		}
	})
}

// TestAFOnly binds and listens on the unspecified addresses of both families on one port, and
// finds out which listener gets requests over IPv4 and IPv6. The table is that of the kernel:
// [::] is for both families unless the option says otherwise, 0.0.0.0 is for IPv4.
func TestAFOnly(t *testing.T) {
	const off, on, unset = 0, 1, 2
	for _, test := range []struct {
		name           string
		v4, v6         byte // value of RDMA_OPTION_ID_AFONLY
		without4       bool // nobody binds 0.0.0.0
		without6       bool // nobody binds [::]
		errno          syscall.Errno
		over4, over6   uint64 // name of the id that gets the request; 0: it is rejected
		addedAfterward bool   // the device comes after the listeners
	}{
		{name: "both", v4: on, v6: on, over4: 0x40, over6: 0x60},
		{name: "only [::] says it", v4: unset, v6: on, over4: 0x40, over6: 0x60},
		{name: "only 0.0.0.0 says it", v4: on, v6: unset, errno: syscall.EADDRINUSE},
		{name: "neither", v4: unset, v6: unset, errno: syscall.EADDRINUSE},
		{name: "0.0.0.0 for both", v4: off, v6: on, errno: syscall.EADDRINUSE},
		{name: "[::] alone", v6: unset, without4: true, over4: 0x60, over6: 0x60},
		{name: "[::] alone, only IPv6", v6: on, without4: true, over6: 0x60},
		{name: "0.0.0.0 alone", v4: unset, without6: true, over4: 0x40},
		{name: "0.0.0.0 alone for both", v4: off, without6: true, over4: 0x40, over6: 0x40},
		{name: "both, a device added", v4: on, v6: on, over4: 0x40, over6: 0x60, addedAfterward: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *network, a, b *program) {
				devices := b.m.devices
				if test.addedAfterward {
					s := cmcore.New(n, cmcore.Options{GUID: 0xcc})
					defer s.Close()
					b.m.devices = []*Device{{Service: s, NodeGUID: 0xcc, Port: 1, MTU: 1024, GIDs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}}
				}
				fd := b.channel()
				listen := func(uid uint64, addr string, option byte) syscall.Errno {
					id := b.createID(fd, uid, 0x0106)
					if option != unset {
						copy(b.mem[100:], []byte{option, 0, 0, 0})
						b.must(fd, cmdSetOption, 0, words(uint64(memStart+100), id, uint32(0), uint32(2), uint32(4)))
					}
					if _, errno := b.command(fd, cmdBindIP, 0, words(uint64(0), sockaddr(addr), id)); errno != 0 {
						return errno
					}
					b.must(fd, cmdListen, 0, words(id, uint32(8)))
					return 0
				}
				if !test.without4 {
					if errno := listen(0x40, "0.0.0.0:3260", test.v4); errno != 0 {
						t.Fatal(errno)
					}
				}
				if !test.without6 {
					if errno := listen(0x60, "[::]:3260", test.v6); errno != test.errno {
						t.Fatalf("[::]: %v, expected %v", errno, test.errno)
					}
				}
				if test.errno != 0 {
					return
				}
				if test.addedAfterward {
					b.m.mu.Lock()
					b.m.devices = append(b.m.devices, devices...)
					for _, i := range b.m.ids {
						i.extend(devices[0])
					}
					b.m.mu.Unlock()
				}
				ca := a.channel()
				for _, r := range []struct {
					addr string
					uid  uint64
				}{{"192.0.2.2:3260", test.over4}, {"[2001:db8::2]:3260", test.over6}} {
					client := resolved(a, ca, 0xa0, 0x0106, r.addr)
					a.must(ca, cmdConnect, 0, words(param(7, "", true), client, uint32(0)))
					if r.uid == 0 {
						a.expect(ca, eventRejected)
					} else if e := b.expect(fd, eventConnectRequest); e.uid != r.uid {
						t.Errorf("%s: %+v, expected the listener %#x", r.addr, e, r.uid)
					}
				}
			})
		})
	}
}
