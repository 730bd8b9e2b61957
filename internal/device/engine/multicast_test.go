package engine

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/udp"
	"github.com/softmkey/softmkey/internal/net/udp/udptest"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
)

// loopback opens a socket at a loopback address that nothing else has.
func loopback(t *testing.T) packetconn.Conn {
	t.Helper()
	conn, err := udp.Listen(netip.AddrPortFrom(udptest.NextAddr(), roce.UDPPort), nil)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestBlockOwnMulticast has two QPs in a group, one of which does not receive its own
// datagrams.
func TestBlockOwnMulticast(t *testing.T) {
	x := newEndOn(t, loopback(t), QPAttr{Type: rdma.UD, BlockOwnMulticast: true})
	other := &testFront{log: make(chan string, 100)}
	other.qp = x.newQP(other, QPAttr{Type: rdma.UD})
	group := netip.MustParseAddr("239.77.1.3")
	ah, err := x.dev.NewAH(rdma.AH{DGID: rdma.GIDOf(group)})
	x.check(err)
	buf, mr := x.slice(64, rdma.LocalWrite)
	for _, f := range []*testFront{x.testFront, other} {
		connect(x, f.qp, x, f.qp)
		x.check(f.qp.AttachMulticast(group))
		f.postRecv(&RecvRequest{ID: 1, SGEs: []rdma.SGE{sge(mr, 0, 64)}})
	}
	send := func(f *testFront, text string) {
		f.post(&SendRequest{ID: 2, Op: ibv.WRSend, HasInline: true, Inline: []byte(text), AH: ah, RemoteQPN: rdma.MulticastQPN, QKey: testQKey})
		f.want(t, "send 2: success")
	}
	send(x.testFront, "of the QP that blocks")
	other.want(t, "recv 1: success")
	send(other, "of the other")
	x.want(t, "recv 1: success, 52 bytes") // 40 of the header and 12 of the data
	if got := string(buf[40:52]); got != "of the other" {
		t.Errorf("received %q", got)
	}
}

// TestMulticastFull attaches more QPs than a group takes.
func TestMulticastFull(t *testing.T) {
	x := newEndOn(t, loopback(t), QPAttr{Type: rdma.UD})
	group := netip.MustParseAddr("239.77.1.4")
	many := &testFront{log: make(chan string, roce.MaxMulticastQPs)}
	for range roce.MaxMulticastQPs {
		x.check(x.newQP(many, QPAttr{Type: rdma.UD}).AttachMulticast(group))
	}
	if err := x.qp.AttachMulticast(group); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("one QP more than %d: %v, want ENOMEM", roce.MaxMulticastQPs, err)
	}
}
