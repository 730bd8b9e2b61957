package verbs_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// twoGIDs returns the options of a device with an IPv4 and an IPv6 address in a network.
func twoGIDs(n *inproc.Network, v4, v6 string) (netip.Addr, *verbs.DeviceOptions) {
	var conns []packetconn.Conn
	addrs := []netip.Addr{netip.MustParseAddr(v4), netip.MustParseAddr(v6)}
	for _, a := range addrs {
		conns = append(conns, check(n.Listen(netip.AddrPortFrom(a, roce.UDPPort))))
	}
	return addrs[0], &verbs.DeviceOptions{Conn: conns[0], Addrs: addrs[1:], Conns: conns[1:]}
}

// A device with several addresses. Each is an entry of its GID table, and a
// connection names the one from which its packets leave.
func ExampleDevice_GIDTable() {
	n := inproc.NewNetwork(nil)
	var nodes [2]*node
	for i := range nodes {
		addr, opts := twoGIDs(n, fmt.Sprintf("192.0.2.%d", i+1), fmt.Sprintf("2001:db8::%d", i+1))
		dev := check(verbs.Open(addr, opts))
		cq := check(dev.NewCQ(64))
		pd := check(dev.NewPD())
		nodes[i] = &node{dev, pd, cq, check(pd.NewQP(verbs.QPAttr{SendCQ: cq}))}
	}
	for i, gid := range nodes[0].dev.GIDTable() {
		fmt.Println(i, gid.Addr())
	}
	// Connect the IPv6 addresses.
	const sgid = 1
	a, b := nodes[0].qp, nodes[1].qp
	opts := &verbs.ConnectOptions{SGIDIndex: sgid}
	for _, err := range []error{a.Connect(check(b.EndpointAt(sgid)), opts), b.Connect(check(a.EndpointAt(sgid)), opts)} {
		check(0, err)
	}
	check(b.PostRecv(verbs.RecvWR{}))
	check(0, a.Start().Signaled().Send().Complete())
	fmt.Println(nodes[0].wait().Status)
	// Output:
	// 0 192.0.2.1
	// 1 2001:db8::1
	// success
}

// TestDatagramsOfGIDs sends datagrams over UDP sockets from both addresses of a device to a
// QP of the same device. The GRH of each names the address from which it came.
func TestDatagramsOfGIDs(t *testing.T) {
	addr := loopback()
	v6 := netip.IPv6Loopback()
	// Both addresses need one free port. Other processes use ports of the IPv6 address, too.
	var dev *verbs.Device
	var err error
	for try := range 100 {
		dev, err = verbs.Open(addr, &verbs.DeviceOptions{Addrs: []netip.Addr{v6}, UDPPort: uint16(20000 + (os.Getpid()+try*101)%40000)})
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
		t.Skip("the host has no IPv6: ", err)
	}
	fatal.If(t, err)
	defer dev.Close()
	pd, cq := must[*verbs.PD](t)(dev.NewPD()), must[*verbs.CQ](t)(dev.NewCQ(16))
	qp := must[*verbs.QP](t)(pd.NewQP(verbs.QPAttr{Type: rdma.UD, SendCQ: cq}))
	s := &side{t: t, dev: dev, pd: pd, cq: cq, qp: qp}
	defer cq.Close()
	defer qp.Close()
	fatal.If(t, qp.Bind(1))
	dst := s.register(verbs.GRHLen+16, rdma.LocalWrite)
	for i, gid := range dev.GIDTable() {
		at := must[verbs.Endpoint](t)(qp.EndpointAt(i))
		ah := must[*verbs.AddressHandle](t)(pd.NewAddressHandle(rdma.AH{DGID: gid, SGIDIndex: i, UDPPort: at.UDPPort}))
		s.recv(1, dst.SGE(0, dst.Len()))
		s.complete(qp.Start().Send().Inline([]byte("hello")).To(ah, qp.Num(), 1))
		s.completion(1, rdma.OpRecv, rdma.StatusSuccess)
		from := gid.Addr().AsSlice()
		if grh := dst.Bytes()[:verbs.GRHLen]; !bytes.Contains(grh, append(bytes.Clone(from), from...)) {
			t.Errorf("GID %v: header %x", gid, grh)
		}
	}
}

func TestGIDIndexes(t *testing.T) {
	n := inproc.NewNetwork(nil)
	addr, opts := twoGIDs(n, "192.0.2.1", "2001:db8::1")
	s := openSideOn(t, addr, opts, verbs.QPAttr{})
	peer := s.qp.Endpoint()
	_, errAH := s.pd.NewAddressHandle(rdma.AH{DGID: rdma.GIDOf(addr), SGIDIndex: 2})
	_, errAt := s.qp.EndpointAt(2)
	for _, err := range []error{errAH, errAt, s.qp.Connect(peer, &verbs.ConnectOptions{SGIDIndex: 2})} {
		if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "GID index 2: the table has 2 entries") {
			t.Errorf("%v", err)
		}
	}
	for name, o := range map[string]*verbs.DeviceOptions{
		"it is in the table already": {Conn: opts.Conn, Addrs: []netip.Addr{addr}, Conns: opts.Conns},
		"must be one of this host's": {Conn: opts.Conn, Addrs: []netip.Addr{{}}, Conns: opts.Conns},
		"networks for 2 further":     {Conn: opts.Conn, Addrs: []netip.Addr{addr, addr}, Conns: opts.Conns},
		"at most 16":                 {Conn: opts.Conn, Addrs: make([]netip.Addr, 16)},
	} {
		if _, err := verbs.Open(addr, o); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
