package roce

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/framenet"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
)

// framePorts returns two ports on networks of frames that are joined, with empty GID tables.
func framePorts(t *testing.T) (port [2]*Port, net [2]*framenet.Network) {
	for i := range net {
		net[i] = framenet.New(func(frame []byte) { net[1-i].Receive(frame) })
		port[i] = NewPort(net[i].Absent(), nil)
		t.Cleanup(func() { port[i].Close() })
	}
	return port, net
}

func setGID(t *testing.T, p *Port, n *framenet.Network, index int, a framenet.Address) {
	t.Helper()
	c, err := n.Listen(a)
	fatal.If(t, err)
	fatal.If(t, p.SetGID(index, c))
}

// TestGIDEntries adds entries to the GID table while the port is in use. QPs send
// and receive through the entries, with the MAC addresses and UDP ports of
// their routes. Each address family and VLAN has its own entry.
func TestGIDEntries(t *testing.T) {
	port, network := framePorts(t)
	mac := [2]framenet.MAC{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}
	addr := [2][]framenet.Address{}
	for i := range port {
		if err := port[i].SetGID(2, network[i].Absent()); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("an entry beyond the end of the table: %v", err)
		}
		for _, a := range []framenet.Address{
			{IP: netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), MAC: mac[i]},
			{IP: netip.AddrFrom16([16]byte{0xfe, 0x80, 15: byte(i + 1)}), MAC: mac[i]},
			{IP: netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), MAC: mac[i], VLAN: 7},
		} {
			addr[i] = append(addr[i], a)
			setGID(t, port[i], network[i], len(addr[i])-1, a)
		}
	}
	var finish []func()
	connect := func(x, y int, gid int) {
		at := [2]int{x, y}
		qp, f := mixedQPs(t, port[x], port[y], rand.New(rand.NewPCG(5, uint64(2*len(finish)))), 50)
		finish = append(finish, f)
		for k, q := range qp {
			peer := addr[at[1-k]][gid]
			err := q.RTR(RecvConfig{
				Peer: netip.AddrPortFrom(peer.IP, 0), SGIDIndex: gid, DestQPN: qp[1-k].Num(), MTU: 4096, MaxDestRdAtomic: 4, MinRNRTimer: 1,
				Route: packetconn.Route{MAC: peer.MAC, SourcePort: uint16(49152 + k), Priority: 5},
			})
			fatal.If(t, err)
		}
		for _, q := range qp {
			fatal.If(t, q.RTS(SendConfig{Timeout: 14, RetryCount: 7, RNRRetry: 7, MaxRdAtomic: 4}))
		}
	}
	for gid := range 3 {
		connect(0, 1, gid)
	}
	connect(0, 0, 0) // to itself
	for _, f := range finish {
		f()
	}
}

// After an entry is removed, its QPs neither send nor receive, and another
// entry can use the address.
func TestFramesRemoved(t *testing.T) {
	port, network := framePorts(t)
	a := framenet.Address{IP: netip.MustParseAddr("192.0.2.1"), MAC: framenet.MAC{2, 0, 0, 0, 0, 1}}
	setGID(t, port[0], network[0], 0, a)
	if _, err := network[0].Listen(a); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("the same address twice: %v", err)
	}
	q, m := newQP(t, port[0], "removed")
	fatal.If(t, q.RTR(RecvConfig{Peer: netip.MustParseAddrPort("192.0.2.2:4791"), DestQPN: 9, MTU: 1024}))
	fatal.If(t, q.RTS(SendConfig{Timeout: 8, RetryCount: 1}))
	fatal.If(t, port[0].SetGID(0, network[0].Absent()))
	m.target = [2]int{1, 0}
	m.post(&Work{Op: ibv.WRSend, Src: &source{b: pattern(100, 1)}, Length: 100})
	q.Kick()
	m.wait()
	if st := m.ended[0].st; st != rdma.StatusRetryExcErr {
		t.Errorf("status %v, want %v", st, rdma.StatusRetryExcErr)
	}
	other, _ := newQP(t, port[0], "other")
	if err := other.RTR(RecvConfig{Peer: netip.MustParseAddrPort("192.0.2.2:4791"), DestQPN: 9, MTU: 1024}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("RTR at an empty entry: %v", err)
	}
	setGID(t, port[0], network[0], 1, a)
	port[0].Close()
	if err := port[0].SetGID(1, network[0].Absent()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("SetGID after Close: %v", err)
	}
}
