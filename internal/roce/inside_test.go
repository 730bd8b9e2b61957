package roce

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/rdma"
)

// onePort makes pairs whose sides are QPs of one port, with Options.Inside.
var onePort bool

// inside are the tests that run in memory, too.
var inside = []struct {
	name string
	f    func(*testing.T)
}{
	{"EveryOperation", TestEveryOperation}, {"RandomLinks", TestRandomLinks}, {"RefusedRequests", TestRefusedRequests}, {"WorkThatCannotBe", TestWorkThatCannotBe},
	{"MemoryFails", TestMemoryFails}, {"RefusedBatch", TestRefusedBatch}, {"Datagrams", TestDatagrams},
	{"DatagramsDropped", TestDatagramsDropped}, {"Unreliable", TestUnreliable}, {"UnreliableRefused", TestUnreliableRefused}, {"XRC", TestXRC},
}

// byMemory makes pairs whose packets from a side pass through memory, as of another process.
var byMemory [2]bool

// TestLoopbackInMemory runs tests between two QPs of one port whose packets pass in
// memory. Tests that drop or watch packets cannot run here. A packet on the
// network fails the test (pair.step).
func TestLoopbackInMemory(t *testing.T) {
	onePort = true
	defer func() { onePort = false }()
	for _, v := range inside {
		t.Run(v.name, v.f)
	}
}

// TestMemory runs the same tests between two ports that reach each other by memory, and where only
// one side reaches the other so.
func TestMemory(t *testing.T) {
	defer func() { byMemory = [2]bool{} }()
	for i, sides := range [][2]bool{{true, true}, {true, false}, {false, true}} {
		byMemory = sides
		for k, v := range inside {
			if k == 0 || i == 0 {
				t.Run(fmt.Sprint(v.name, sides), v.f)
			}
		}
	}
}

// TestInsideNotReady posts the receive request after the sender was refused
// three times.
func TestInsideNotReady(t *testing.T) {
	p := newPair(t, pairOptions{inside: true, rnr: 7, rnrTimer: 14})
	p.post(0, &Work{Op: ibv.WRSend, Src: &source{b: pattern(5000, 3)}, Length: 5000})
	for p.port[0].n.RNRSent.Load() < 3 {
		if !p.step() {
			p.clock = max(p.clock, p.port[0].timers.first.Load())
		}
	}
	p.mem[1].recv(make([]byte, 5000))
	p.run(1 << 16)
	p.mem[0].allSucceeded(1)
	if n := p.port[0].n.RNRSent.Load(); n != 3 {
		t.Errorf("%d RNR NAKs, want 3", n)
	}
	p.idle()
	p = newPair(t, pairOptions{inside: true, rnr: 2})
	p.post(0, &Work{Op: ibv.WRSend, Src: &source{b: pattern(5000, 3)}, Length: 5000})
	p.run(1 << 16)
	p.mem[0].statuses(rdma.StatusRNRRetryExcErr)
}

// TestInsideUnknownQP sends to a QP of the port that was closed. The sender retries in vain, as it
// does on a network.
func TestInsideUnknownQP(t *testing.T) {
	p := newPair(t, pairOptions{inside: true, retry: 2})
	p.qp[1].Close()
	p.post(0, &Work{Op: ibv.WRSend, Src: &source{b: pattern(10, 3)}, Length: 10})
	p.run(1 << 16)
	p.mem[0].statuses(rdma.StatusRetryExcErr)
	if p.port[0].n.UnknownQP.Load() == 0 {
		t.Error("no packet was dropped")
	}
}

// TestInsideMixed exchanges messages of all kinds between QPs of one port, with
// its goroutines, in memory and over the network. One of the QPs is isolated.
func TestInsideMixed(t *testing.T) {
	for _, inside := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c, err := inproc.NewNetwork(nil).Listen(netip.MustParseAddrPort("192.0.2.1:4791"))
			if err != nil {
				t.Fatal(err)
			}
			p := NewPort(c, &Options{Inside: inside})
			defer p.Close()
			var wait []func()
			for i := range 3 {
				qp, finish := mixedQPs(t, p, p, rand.New(rand.NewPCG(1, uint64(i))), 200)
				if i == 2 {
					qp[0].Isolate()
				}
				join(t, qp[0], qp[1], pairOptions{mtu: 256 << i, rdAtomic: 4})
				wait = append(wait, finish)
			}
			for _, w := range wait {
				w()
			}
		})
	}
}
