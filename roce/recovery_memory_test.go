package roce

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/rdma"
)

// liveBytes returns the bytes of the live objects.
func liveBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestRecoveryMemoryIsWhatIsAllocated lets a peer cause every allocation of loss recovery on
// many QPs with few bytes. The port must allocate as much as it counts, and less than its
// limit.
func TestRecoveryMemoryIsWhatIsAllocated(t *testing.T) {
	const mtu = 256
	qps := int(seeds(300, 3000, 3000)) // 3000 reach the limit
	const responses = maxEarly
	for _, v := range []struct {
		name   string
		packet func(q *QP) []byte
		read   bool
		least  int64
	}{
		{"early requests", func(q *QP) []byte {
			return pkt(wire.WriteOnly, q.resp.psn+maxEarly-1, false, 16, reth(1, 0, 16))
		}, false, int64(qps) * int64(earlyPageBytes)},
		{"early responses", func(q *QP) []byte {
			return pkt(wire.ReadResponseMiddle, q.req.una+maxEarly-2, false, mtu)
		}, true, int64(qps) * int64(earlyPageBytes)},
		{"acknowledgements of later packets", func(q *QP) []byte {
			return selectivePacket(wire.SelectiveAck, q.req.una, []byte{0xff, 0, 0, 0})
		}, true, int64(qps) * 349},
	} {
		t.Run(v.name, func(t *testing.T) {
			p := newPair(t, pairOptions{mtu: mtu, selective: true})
			var o pairOptions
			o.defaults()
			o.selective, o.mtu = true, mtu
			var all []*QP
			for range qps {
				m := newMemory(t, "")
				q, err := p.port[0].NewQP(m, rdma.RC)
				if err != nil {
					t.Fatal(err)
				}
				p.start(0, q, p.qp[1], o)
				q.peer.in.limit.Store(1 << 40)
				all = append(all, q)
				if v.read {
					m.post(&Work{Op: rdma.WRRead, Dst: &sink{}, Length: responses * mtu, RKey: 1})
					q.Kick()
				}
				p.conn[0].sent = nil
			}
			before := liveBytes()
			for _, q := range all {
				b := v.packet(q)
				q.address(b)
				p.deliver(0, b, 0)
			}
			got, counted := liveBytes()-before, p.port[0].recovery.used.Load()
			t.Logf("%d QPs allocated %d bytes, counted are %d", qps, got, counted)
			if counted > maxRecoveryBytes {
				t.Errorf("%d bytes are counted, the limit is %d", counted, maxRecoveryBytes)
			}
			// The spans that a requester will ask for and the queue of ready QPs are not counted.
			if most := counted + int64(qps)*128; got > most || got < v.least {
				t.Errorf("%d bytes are allocated and %d counted", got, counted)
			}
			for _, q := range all {
				q.Close()
			}
			if n := p.port[0].recovery.used.Load(); n != 0 {
				t.Errorf("%d bytes are counted after all QPs were closed", n)
			}
			runtime.KeepAlive(all)
		})
	}
}

// TestNoRecoveryMemory loses packets while other QPs have all memory for loss recovery.
// Everything must arrive, by probes.
func TestNoRecoveryMemory(t *testing.T) {
	const mtu, size = 256, 100 * 256
	p := newPair(t, pairOptions{mtu: mtu, selective: true})
	for i := range p.port {
		p.port[i].recovery.used.Store(maxRecoveryBytes - 100)
	}
	data := pattern(size, 1)
	p.mem[1].keys[1] = make([]byte, size)
	p.mem[1].keys[2] = data
	rnd := rand.New(rand.NewPCG(1, 2))
	p.fault = losing(func(int, []byte) bool { return rnd.IntN(7) == 0 })
	got := make([]byte, size)
	p.post(0, &Work{Op: rdma.WRWrite, Src: &source{b: data}, Length: size, RKey: 1},
		&Work{Op: rdma.WRRead, Dst: &sink{b: got}, Length: size, RKey: 2})
	p.run(1 << 16)
	p.mem[0].allSucceeded(2)
	if !bytes.Equal(got, data) || !bytes.Equal(p.mem[1].keys[1], data) {
		t.Error("wrong data")
	}
	p.idle()
	for i := range p.port {
		if n := p.port[i].recovery.used.Load(); n != maxRecoveryBytes-100 {
			t.Errorf("side %d: %d bytes of recovery memory are counted", i, n-(maxRecoveryBytes-100))
		}
	}
}

// TestLongReadOnScoreboard loses a packet before a READ that covers more packet sequence
// numbers than the port has memory for a scoreboard.
func TestLongReadOnScoreboard(t *testing.T) {
	const mtu = 256
	l := alone(t, 0, pairOptions{mtu: mtu, selective: true})
	write := func() *Work { return &Work{Op: rdma.WRWrite, Src: &source{b: make([]byte, 5)}, Length: 5, RKey: 1} }
	l.post(0, write(), write(), &Work{Op: rdma.WRRead, Dst: &sink{}, Length: MaxMessage, RKey: 1}, write())
	l.sent()
	l.arrive(selectivePacket(wire.SelectiveAck, 0, []byte{1, 0, 0, 0}))
	if n := l.port[0].recovery.used.Load(); n != 0 || l.q.req.board != nil {
		t.Errorf("a scoreboard of %d bytes", n)
	}
	l.arrive(pkt(wire.Acknowledge, 1, false, 0, aeth(wire.ACKNoCredits)))
	l.m.statuses(rdma.StatusSuccess, rdma.StatusSuccess)
}
