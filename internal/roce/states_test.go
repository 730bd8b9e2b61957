package roce

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/rdma"
)

func TestAttributes(t *testing.T) {
	p := newPair(t, pairOptions{})
	q, err := p.port[0].NewQP(p.mem[0], rdma.RC)
	fatal.If(t, err)
	good := RecvConfig{Peer: netip.MustParseAddrPort("10.0.0.9:0"), DestQPN: 3, MTU: 1024}
	for _, change := range []func(*RecvConfig){
		func(c *RecvConfig) { c.Peer = netip.AddrPort{} },
		func(c *RecvConfig) { c.Peer = netip.MustParseAddrPort("0.0.0.0:4791") },
		func(c *RecvConfig) { c.Peer = netip.MustParseAddrPort("[fd00::1]:4791") },
		func(c *RecvConfig) { c.DestQPN = 1 << 24 },
		func(c *RecvConfig) { c.PSN = 1 << 24 },
		func(c *RecvConfig) { c.MTU = 0 },
		func(c *RecvConfig) { c.MTU = 128 },
		func(c *RecvConfig) { c.MTU = 1500 },
		func(c *RecvConfig) { c.MTU = 8192 },
		func(c *RecvConfig) { c.MaxDestRdAtomic = -1 },
		func(c *RecvConfig) { c.MaxDestRdAtomic = 129 },
		func(c *RecvConfig) { c.MinRNRTimer = 32 },
	} {
		c := good
		change(&c)
		if err := q.RTR(c); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("RTR with %+v: %v", c, err)
		}
	}
	if err := q.RTS(SendConfig{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("RTS in RESET: %v", err)
	}
	fatal.If(t, q.RTR(good))
	if q.recv.Peer.Port() != UDPPort {
		t.Errorf("peer %v", q.recv.Peer)
	}
	if err := q.RTR(good); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("RTR in RTR: %v", err)
	}
	for _, c := range []SendConfig{{PSN: 1 << 24}, {Timeout: 32}, {RetryCount: 8}, {RNRRetry: 8}, {MaxRdAtomic: 129}} {
		if err := q.RTS(c); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("RTS with %+v: %v", c, err)
		}
	}
	fatal.If(t, q.RTS(SendConfig{}))
	if err := q.SetMinRNRTimer(32); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("RNR timer 32: %v", err)
	}
	if err := q.SetMinRNRTimer(31); err != nil || q.recv.MinRNRTimer != 31 {
		t.Errorf("RNR timer 31: %v", err)
	}
	q.Close()
	q.Close()
	if err := q.RTR(good); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("RTR after Close: %v", err)
	}
}

// TestDroppedPackets delivers packets that are not for a QP, not from its peer, or malformed.
// The port must drop and count them.
func TestDroppedPackets(t *testing.T) {
	p := newPair(t, pairOptions{})
	q := p.qp[1]
	m := p.mem[1]
	m.keys[1] = make([]byte, 100)
	build := func(change func(*wire.BTH)) []byte {
		h := wire.BTH{Opcode: wire.WriteOnly, MigReq: true, PKey: 0xffff, DestQP: q.num, PSN: q.resp.psn, AckReq: true}
		if change != nil {
			change(&h)
		}
		return append(append(bth(h), reth(1, 0, 4)...), 1, 2, 3, 4, 0, 0, 0, 0)
	}
	deliver := func(b []byte, from netip.AddrPort) {
		if len(b) >= wire.MinPacket {
			wire.NewFlow(from, p.conn[1].addr).Front(len(b)).PutICRC(b)
		}
		p.deliverFrom(from, 1, b)
	}
	peer := p.conn[0].addr
	for _, v := range []struct {
		name  string
		b     []byte
		from  netip.AddrPort
		count func(rdma.Counters) uint64
	}{
		{"empty", nil, peer, func(c rdma.Counters) uint64 { return c.Malformed }},
		{"short", make([]byte, 15), peer, func(c rdma.Counters) uint64 { return c.Malformed }},
		{"unknown QP", build(func(h *wire.BTH) { h.DestQP ^= 1 }), peer, func(c rdma.Counters) uint64 { return c.UnknownQP }},
		{"unknown source", build(nil), netip.MustParseAddrPort("10.0.0.3:4791"), func(c rdma.Counters) uint64 { return c.UnknownSource }},
		{"other partition", build(func(h *wire.BTH) { h.PKey = 0x8001 }), peer, func(c rdma.Counters) uint64 { return c.BadPKey }},
		{"header version", build(func(h *wire.BTH) { h.Version = 1 }), peer, func(c rdma.Counters) uint64 { return c.Malformed }},
		{"unreliable datagram", build(func(h *wire.BTH) { h.Opcode = wire.UDSendOnly }), peer, func(c rdma.Counters) uint64 { return c.WrongService }},
		{"reserved opcode", build(func(h *wire.BTH) { h.Opcode = 0x15 }), peer, func(c rdma.Counters) uint64 { return c.Malformed }},
		{"too long", append(build(nil), make([]byte, 4200)...), peer, func(c rdma.Counters) uint64 { return c.Malformed }},
		{"headers cut", build(func(h *wire.BTH) { h.Opcode = wire.CompareSwap }), peer, func(c rdma.Counters) uint64 { return c.Malformed }},
		{"payload of a READ request", build(func(h *wire.BTH) { h.Opcode = wire.ReadRequest }), peer, func(c rdma.Counters) uint64 { return c.Malformed }},
	} {
		before := p.port[1].Counters()
		deliver(v.b, v.from)
		if v.count(p.port[1].Counters()) != v.count(before)+1 {
			t.Errorf("%s: not counted: %+v", v.name, p.port[1].Counters())
		}
		if q.resp.psn != 0 || q.state != rdma.StateRTS || m.open != 0 {
			t.Fatalf("%s: not dropped", v.name)
		}
	}
	bad := build(nil)
	wire.NewFlow(peer, p.conn[1].addr).Front(len(bad)).PutICRC(bad)
	bad[30] ^= 4
	p.deliverFrom(peer, 1, bad)
	if p.port[1].Counters().BadICRC != 1 || q.resp.psn != 0 {
		t.Error("damaged packet not dropped")
	}
	// Another UDP port of the peer is accepted.
	deliver(build(nil), netip.AddrPortFrom(peer.Addr(), 50000))
	if q.resp.psn != 1 || !bytes.Equal(m.keys[1][:4], []byte{1, 2, 3, 4}) {
		t.Error("packet from another port of the peer dropped")
	}
	q.Reset()
	deliver(build(nil), peer)
	if p.port[1].Counters().WrongState != 1 {
		t.Error("packet for a QP in RESET not counted")
	}
}

// TestCongestion checks that congestion marks are answered with notifications at a
// limited rate, and that notifications shrink the window.
func TestCongestion(t *testing.T) {
	p := newPair(t, pairOptions{window: 1 << 20, mtu: 256})
	p.mem[1].keys[1] = make([]byte, 50000)
	limit := p.qp[0].peer.out.limit.Load()
	p.conn[0].addr = p.conn[0].LocalAddr()
	cnps := 0
	p.watch = func(to int, b []byte) {
		if to == 0 && opcodeOf(b) == wire.CongestionNotification {
			cnps++
		}
	}
	p.port[0].builder.ecn = 3 // congestion experienced, as if set by a switch
	p.post(0, &Work{Op: ibv.WRWrite, Src: &source{b: make([]byte, 50000)}, Length: 50000, RKey: 1})
	p.run(1 << 16)
	p.mem[0].allSucceeded(1)
	c := p.port[1].Counters()
	if c.ECNMarked < 50000/256 || c.CNPSent == 0 || c.CNPSent > 3 || uint64(cnps) != c.CNPSent {
		t.Errorf("%d marks, %d notifications", c.ECNMarked, c.CNPSent)
	}
	if got := p.port[0].Counters().CNPReceived; got != c.CNPSent {
		t.Errorf("%d notifications received, %d sent", got, c.CNPSent)
	}
	if now := p.qp[0].peer.out.limit.Load(); now >= limit {
		t.Errorf("the window was %d and is %d", limit, now)
	}
}

// TestQPNumbers checks that QP numbers come from the random source, and that
// reserved and used ones are drawn again.
func TestQPNumbers(t *testing.T) {
	draws := []uint32{0, 1, 0xffffff, 0x12abcdef, 0xabcdef, 2, 3}
	conn := &fakeConn{addr: netip.MustParseAddrPort("10.0.0.1:4791")}
	p := newPort(conn, &Options{Rand: func() uint32 { n := draws[0]; draws = draws[1:]; return n }})
	for _, want := range []uint32{0xabcdef, 2, 3} {
		q, err := p.NewQP(newMemory(t, ""), rdma.RC)
		if err != nil || q.Num() != want {
			t.Errorf("number %#x, %v, want %#x", q.Num(), err, want)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Close(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if _, err := p.NewQP(newMemory(t, ""), rdma.RC); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// TestIdleQPSize limits the memory of an idle QP: the QP, its slot in the
// table, and the allocations of connecting it.
func TestIdleQPSize(t *testing.T) {
	if n := unsafe.Sizeof(QP{}); n > 1024 {
		t.Errorf("QP has %d bytes", n)
	}
	if n := unsafe.Sizeof(resource{}); n*16 > 2048 {
		t.Errorf("16 resources have %d bytes", n*16)
	}
}

func TestIdentifications(t *testing.T) {
	var d identifications
	for i := range 1000 {
		if !d.plausible(uint16(i * 77)) {
			t.Fatal("a peer with any identifications was doubted")
		}
	}
	for i := range 3 << 16 {
		if !d.plausible(uint16(i)) {
			t.Fatal("a peer that counts its packets was doubted")
		}
	}
	for i := range 200 {
		if !d.plausible(uint16(i % 3)) {
			t.Fatal("small identification doubted")
		}
	}
	for i := range notSmall - 1 {
		if d.plausible(40000) {
			t.Fatalf("packet %d with a large identification believed", i)
		}
	}
	d.plausible(0)
	if d.plausible(40000) {
		t.Fatal("believed after a small one in between")
	}
	for range notSmall {
		d.plausible(40000)
	}
	if !d.plausible(40001) {
		t.Fatal("not believed in the end")
	}
}
