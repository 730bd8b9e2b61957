package roce

import (
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/internal/net/wire"
)

// TestTimeoutReasons gives a QP that gets no answer the evidence of why, and reads the reason.
func TestTimeoutReasons(t *testing.T) {
	from := func(l *single, source string, b []byte) {
		wire.PutBTH(b, &wire.BTH{Opcode: wire.Acknowledge, MigReq: true, PKey: 0xffff, PSN: l.q.req.una, DestQP: l.q.num})
		l.q.fromIn.Front(len(b)).PutICRC(b) // as the peer sends it
		l.deliverFrom(netip.MustParseAddrPort(source), 0, b)
	}
	refused := func(errno syscall.Errno) func(l *single) {
		return func(l *single) {
			l.q.link.refuse(l.q.recv.Peer.Addr(), failure.New("send", errno, "to somewhere: %v", errno))
		}
	}
	for _, v := range []struct {
		name  string
		event func(l *single)
		says  string
	}{
		{"nothing", func(*single) {}, "a firewall drops UDP port 4791, or NAT rewrites it"},
		{"NAT of ports", func(l *single) { from(l, "10.0.0.2:61000", ack(0)) }, "arrive from UDP port 61000 with a checksum for port 4791: NAT"},
		{"a damaged packet", func(l *single) {
			b := ack(0)
			from(l, "10.0.0.99:1", b) // only for the CRC
			b[15] ^= 1
			l.q.peer.seen.elsewhere.Store(nil)
			l.deliverFrom(netip.MustParseAddrPort("10.0.0.2:61000"), 0, b)
		}, "a firewall drops"},
		{"NAT of addresses", func(l *single) { from(l, "10.0.0.99:4791", ack(0)) }, "come from 10.0.0.99 instead: NAT"},
		{"a firewall here", refused(syscall.EPERM), "this host's firewall does not let UDP port 4791 out"},
		{"no route", refused(syscall.ENETUNREACH), "this host does not send there: network is unreachable"},
		{"a peer on loopback", func(l *single) { l.q.recv.Peer = netip.MustParseAddrPort("127.0.0.1:4791") }, "127.0.0.1 is this host: if the peer is on another one, its device needs an address of the network"},
		{"no such QP here", func(l *single) { l.q.recv.Peer, l.q.recv.DestQPN = l.q.link.addr, l.q.num^1 }, "; this device has no QP 0x"},
		{"faults", func(l *single) { l.q.link.conn = loser{l.q.link.conn} }, "; the faults that were asked for have lost 9 packets of this device"},
		{"a device on loopback", func(l *single) { l.q.link.addr = netip.MustParseAddrPort("127.0.0.1:4791") }, "this device is on 127.0.0.1, which reaches this host only"},
	} {
		t.Run(v.name, func(t *testing.T) {
			l := alone(t, 0, pairOptions{mtu: 256})
			l.post(0, &Work{Op: ibv.WRWrite, Src: &source{b: pattern(8, 1)}, Length: 5, RKey: 1})
			l.sent()
			v.event(l)
			if got := l.q.noProgress().Error(); !strings.HasPrefix(got, "no answer to PSN ") || l.q.peer != nil && !l.q.near && !strings.Contains(got, v.says) {
				t.Errorf("%s", got)
			}
		})
	}
	l := silent(t)
	if got := l.q.noProgress().Error(); strings.Contains(got, "firewall") {
		t.Errorf("a peer that has answered: %s", got)
	}
}

// loser is a network that has lost packets on request.
type loser struct{ netconn.Conn }

func (loser) Lost() uint64 { return 9 }
