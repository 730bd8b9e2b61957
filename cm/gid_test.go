package cm_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// withGIDs returns a device with several addresses.
func withGIDs(t *testing.T, n *inproc.Network, addrs ...string) *party {
	t.Helper()
	var all []netip.Addr
	var conns []packetconn.Conn
	for _, s := range addrs {
		a := netip.MustParseAddr(s)
		all, conns = append(all, a), append(conns, listenOn(t, n, a))
	}
	dev, err := verbs.Open(all[0], &verbs.DeviceOptions{Conn: conns[0], Addrs: all[1:], Conns: conns[1:]})
	fatal.If(t, err)
	return onDevice(t, dev)
}

// TestGIDs connects each address of a device with each of another one, and sends a message in
// both directions. The listener is at all addresses.
func TestGIDs(t *testing.T) {
	n := inproc.NewNetwork(nil)
	server := withGIDs(t, n, "192.0.2.1", "192.0.2.11", "2001:db8::1")
	client := withGIDs(t, n, "192.0.2.2", "2001:db8::2", "192.0.2.12")
	addr, conns := serve(t, server, nil)
	for i, from := range client.dev.GIDTable() {
		for j, to := range server.dev.GIDTable() {
			at := netip.AddrPortFrom(to.Addr(), addr.Port())
			opts := &cm.ConnOptions{ConnectOptions: verbs.ConnectOptions{SGIDIndex: i}}
			c, err := cm.Dial(within(t), client.qp(), at, opts)
			if from.Addr().Is4() != to.Addr().Is4() {
				if !errors.Is(err, syscall.EINVAL) {
					t.Errorf("%v to %v: %v", from.Addr(), to.Addr(), err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%v to %v: %v", from.Addr(), to.Addr(), err)
			}
			s := <-conns
			if got, want := fmt.Sprint(c.LocalAddr(), c.RemoteAddr(), s.LocalAddr(), s.RemoteAddr()),
				fmt.Sprint(c.LocalAddr(), at, at, c.LocalAddr()); got != want || c.LocalAddr().(cm.Addr).AddrPort().Addr() != from.Addr() {
				t.Errorf("addresses %v, want %v", got, want)
			}
			if a, b := engine.QPOf(c.QP()).Query().AV, engine.QPOf(s.QP()).Query().AV; a.SGIDIndex != i || b.SGIDIndex != j || a.DGID != to || b.DGID != from {
				t.Errorf("%v to %v: the QPs have %+v and %+v", from.Addr(), to.Addr(), a, b)
			}
			for _, e := range []struct {
				p        *party
				from, to *verbs.QP
			}{{client, c.QP(), s.QP()}, {server, s.QP(), c.QP()}} {
				if _, err := e.to.PostRecv(verbs.RecvWR{}); err != nil {
					t.Fatal(err)
				}
				fatal.If(t, e.from.Start().Signaled().Send().Complete())
				var wc [1]rdma.WC
				if _, err := e.p.cq.Wait(within(t), wc[:]); err != nil || wc[0].Status != rdma.StatusSuccess {
					t.Errorf("%v to %v: %v %v", from.Addr(), to.Addr(), wc[0].Status, err)
				}
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			<-s.Done()
			for _, p := range []*party{server, client} {
				var wc [8]rdma.WC
				p.cq.Poll(wc[:])
			}
		}
	}
}

// TestBadGIDIndex checks that SGIDIndex is not ignored.
func TestBadGIDIndex(t *testing.T) {
	n := inproc.NewNetwork(nil)
	server := withGIDs(t, n, "192.0.2.1", "192.0.2.11")
	client := withGIDs(t, n, "192.0.2.2")
	bad := &cm.ConnOptions{ConnectOptions: verbs.ConnectOptions{SGIDIndex: 77}}
	l := listen(t, server, 7471)
	defer l.Close()
	addr := netip.MustParseAddrPort("192.0.2.11:7471")
	if _, err := cm.Dial(within(t), client.qp(), addr, bad); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "77") {
		t.Errorf("Dial: %v", err)
	}
	for _, test := range []struct {
		index int
		good  bool
	}{{77, false}, {0, true}, {1, true}} {
		dialed := dial(client.qp(), addr)
		req := accept(t, l)
		_, err := req.Accept(within(t), server.qp(), &cm.ConnOptions{ConnectOptions: verbs.ConnectOptions{SGIDIndex: test.index}})
		d := <-dialed
		if test.good && (err != nil || d.err != nil) {
			t.Errorf("SGIDIndex %d: %v; the peer: %v", test.index, err, d.err)
		}
		if !test.good && (!errors.Is(err, syscall.EINVAL) || !errors.Is(d.err, syscall.ECONNREFUSED)) {
			t.Errorf("SGIDIndex %d: %v; the peer: %v", test.index, err, d.err)
		}
	}
}

// TestResolveFamily resolves an IPv6 address with a device whose first address is of IPv4.
func TestResolveFamily(t *testing.T) {
	n := inproc.NewNetwork(nil)
	server := withGIDs(t, n, "192.0.2.1", "2001:db8::1")
	client := withGIDs(t, n, "192.0.2.2", "2001:db8::2")
	l, err := cm.ListenDatagram(server.dev, 7471, nil)
	fatal.If(t, err)
	defer l.Close()
	go func() {
		if q, err := l.Accept(context.Background()); err == nil {
			_ = q.Reply(0x77, cm.DefaultQKey, nil)
		}
	}()
	d, err := cm.Resolve(within(t), client.dev, netip.MustParseAddrPort("[2001:db8::1]:7471"), nil)
	fatal.If(t, err)
	if ah := d.AH(); d.QPN != 0x77 || ah.SGIDIndex != 1 {
		t.Errorf("%+v %+v", d, ah)
	}
	only4 := withGIDs(t, n, "192.0.2.3")
	if _, err := cm.Resolve(within(t), only4.dev, netip.MustParseAddrPort("[2001:db8::1]:7471"), nil); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("without an IPv6 address: %v", err)
	}
}
