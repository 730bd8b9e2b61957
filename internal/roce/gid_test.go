package roce

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
)

// gidPorts returns two ports with an IPv4 and an IPv6 address each.
func gidPorts(t *testing.T) (port [2]*Port, addr [2][2]netip.AddrPort) {
	n := inproc.NewNetwork(nil)
	for i, as := range [2][2]string{{"192.0.2.1:4791", "[2001:db8::1]:4791"}, {"192.0.2.2:4791", "[2001:db8::2]:4791"}} {
		var conn [2]packetconn.Conn
		for k, a := range as {
			addr[i][k] = netip.MustParseAddrPort(a)
			c, err := n.Listen(addr[i][k])
			fatal.If(t, err)
			conn[k] = c
		}
		port[i] = NewPort(conn[0], &Options{Conns: conn[1:]})
		t.Cleanup(func() { port[i].Close() })
	}
	return port, addr
}

// TestGIDs exchanges messages between QPs that use different entries of the ports' GID
// tables, at the same time.
func TestGIDs(t *testing.T) {
	port, addr := gidPorts(t)
	if got := port[1].Addrs(); len(got) != 2 || got[0] != addr[1][0] || got[1] != addr[1][1] || port[1].LocalAddr() != got[0] {
		t.Errorf("table %v", got)
	}
	var finish [6]func()
	for i := range finish {
		gid := i % 2
		var qp [2]*QP
		qp, finish[i] = mixedQPs(t, port[0], port[1], rand.New(rand.NewPCG(4, uint64(i))), 100)
		for k, q := range qp {
			fatal.If(t, q.RTR(RecvConfig{Peer: addr[1-k][gid], SGIDIndex: gid, DestQPN: qp[1-k].Num(), MTU: 1024, MaxDestRdAtomic: 4, MinRNRTimer: 1}))
		}
		for _, q := range qp {
			fatal.If(t, q.RTS(SendConfig{Timeout: 18, RetryCount: 7, RNRRetry: 7, MaxRdAtomic: 4}))
		}
	}
	for _, f := range finish {
		f()
	}
}

// TestGIDsOfDatagrams sends datagrams from each address of a port to each address of its
// family. The GRH has the addresses.
func TestGIDsOfDatagrams(t *testing.T) {
	port, addr := gidPorts(t)
	var qp [2]*QP
	var mem [2]*memory
	for i := range qp {
		mem[i] = newMemory(t, "datagrams")
		var err error
		if qp[i], err = port[i].NewQP(mem[i], rdma.UD); err != nil {
			t.Fatal(err)
		}
		fatal.If(t, qp[i].RTR(RecvConfig{MTU: 1024, QKey: 7}))
		fatal.If(t, qp[i].RTS(SendConfig{}))
	}
	for i := range 4 {
		gid := i % 2
		ah, err := port[0].NewAH(gid, addr[1][gid], 0)
		fatal.If(t, err)
		mem[1].recv(make([]byte, 140))
		mem[1].target = [2]int{0, i + 1}
		mem[0].post(&Work{Op: ibv.WRSend, Src: &source{b: pattern(100, 1)}, Length: 100, AH: ah, DestQPN: qp[1].num, QKey: 7})
		qp[0].Kick()
		mem[1].wait()
		g := mem[1].got[i]
		if g.ev.Src != addr[0][gid] {
			t.Errorf("GID index %d: from %v, want %v", gid, g.ev.Src, addr[0][gid])
		}
		src, dst := addr[0][gid].Addr(), addr[1][gid].Addr()
		if gid == 0 {
			if !bytes.Equal(g.data[32:36], src.AsSlice()) || !bytes.Equal(g.data[36:40], dst.AsSlice()) {
				t.Errorf("IPv4 header %x", g.data[20:40])
			}
		} else if !bytes.Equal(g.data[8:24], src.AsSlice()) || !bytes.Equal(g.data[24:40], dst.AsSlice()) {
			t.Errorf("IPv6 header %x", g.data[:40])
		}
	}
}

// TestPacketsToAnotherGID checks that a connected QP drops packets to another address of its
// port than its own.
func TestPacketsToAnotherGID(t *testing.T) {
	n := inproc.NewNetwork(nil)
	var conn [3]packetconn.Conn
	for i, a := range []string{"192.0.2.1:4791", "192.0.2.2:4791", "192.0.2.3:4791"} {
		c, err := n.Listen(netip.MustParseAddrPort(a))
		fatal.If(t, err)
		conn[i] = c
	}
	defer conn[2].Close()
	p := newPort(conn[0], &Options{Conns: conn[1:2]})
	defer p.Close()
	q, m := newQP(t, p, "a")
	peer := conn[2].LocalAddr()
	fatal.If(t, q.RTR(RecvConfig{Peer: peer, SGIDIndex: 1, DestQPN: 5, MTU: 1024}))
	for i, l := range p.gids() {
		m.recv(make([]byte, 8))
		b := make([]byte, wire.BTHLen+8+wire.ICRCLen)
		wire.PutBTH(b, &wire.BTH{Opcode: wire.SendOnly, PKey: wire.DefaultPKey, DestQP: q.num, PSN: 0})
		wire.NewFlow(peer, l.addr).Front(len(b)).PutICRC(b)
		l.take(&packetconn.Train{Addr: peer, Buf: b, Seg: len(b)}, 1)
		if len(m.got) != i || p.Counters().WrongGID != 1 {
			t.Fatalf("after a packet at GID %d: %d messages were delivered, %d packets had another GID; want %d and 1: the QP is at GID 1", i, len(m.got), p.Counters().WrongGID, i)
		}
	}
}

func TestGIDIndexOutOfRange(t *testing.T) {
	port, addr := gidPorts(t)
	q, _ := newQP(t, port[0], "a")
	rtr := func(index int, to netip.AddrPort) error {
		return q.RTR(RecvConfig{Peer: to, SGIDIndex: index, MTU: 1024})
	}
	ah := func(index int, to netip.AddrPort) error {
		_, err := port[0].NewAH(index, to, 0)
		return err
	}
	for _, f := range []func(int, netip.AddrPort) error{rtr, ah} {
		for _, v := range []struct {
			index int
			to    netip.AddrPort
			want  string
		}{
			{2, addr[1][0], "GID index 2: the table has 2 entries"},
			{-1, addr[1][0], "GID index -1: the table has 2 entries"},
			{1, addr[1][0], "address 192.0.2.2: GID index 1 is 2001:db8::1, of the other family"},
			{0, addr[1][1], "address 2001:db8::2: GID index 0 is 192.0.2.1, of the other family"},
			{0, netip.AddrPort{}, "must be one host's"},
		} {
			if err := f(v.index, v.to); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), v.want) {
				t.Errorf("%v, want %q", err, v.want)
			}
		}
	}
}
