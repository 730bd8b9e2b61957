package roce

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/internal/roce/netem"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
)

// join connects two QPs.
func join(t testing.TB, a, b *QP, o pairOptions) {
	t.Helper()
	o.defaults()
	qp := [2]*QP{a, b}
	for i, q := range qp {
		peer := qp[1-i]
		if err := q.RTR(RecvConfig{Peer: peer.port.LocalAddr(), DestQPN: peer.Num(), MTU: o.mtu, PSN: o.psn[1-i] & psnMask,
			MaxDestRdAtomic: o.rdAtomic, MinRNRTimer: o.rnrTimer}); err != nil {
			t.Fatal(err)
		}
		if a == b {
			break
		}
	}
	for i, q := range qp {
		fatal.If(t, q.RTS(SendConfig{PSN: o.psn[i] & psnMask, Timeout: o.timeout, RetryCount: o.retry, RNRRetry: o.rnr, MaxRdAtomic: uint8(o.rdAtomic)}))
		if a == b {
			break
		}
	}
}

// newQP returns a QP with a new memory as its Handler.
func newQP(t testing.TB, p *Port, name string) (*QP, *memory) {
	t.Helper()
	m := newMemory(t, name)
	q, err := p.NewQP(m, rdma.RC)
	fatal.If(t, err)
	return q, m
}

// listenPorts returns a port at each address of a network. They are closed when the test ends.
func listenPorts[C packetconn.Conn](t testing.TB, listen func(netip.AddrPort) (C, error), addrs ...string) (ports []*Port) {
	t.Helper()
	for _, a := range addrs {
		c, err := listen(netip.MustParseAddrPort(a))
		fatal.If(t, err)
		p := NewPort(c, nil)
		t.Cleanup(func() { p.Close() })
		ports = append(ports, p)
	}
	return ports
}

// portPair returns two ports on a network inside the process.
func portPair(t testing.TB) []*Port {
	t.Helper()
	return listenPorts(t, inproc.NewNetwork(nil).Listen, "192.0.2.1:4791", "192.0.2.2:4791")
}

// hookedConn calls hook before it sends.
type hookedConn struct {
	packetconn.Conn
	hook func()
}

func (c *hookedConn) Send(trains []packetconn.Train) (int, error) {
	c.hook()
	return c.Conn.Send(trains)
}

// TestKickWhileSending kicks a QP while the port sends a management datagram, and while it sends at once for another
// QP. The QP's request must leave afterwards, although nothing else happens.
func TestKickWhileSending(t *testing.T) {
	for name, send := range map[string]func(c *hookedConn, g *GSI, other *QP, kick func()){
		"management": func(c *hookedConn, g *GSI, _ *QP, kick func()) {
			c.hook = sync.OnceFunc(kick)
			g.Flush()
		},
		"at once": func(_ *hookedConn, _ *GSI, other *QP, kick func()) {
			other.sendNow(func(*builder) { kick() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := inproc.NewNetwork(nil)
				conn := map[netip.AddrPort]*hookedConn{}
				port := listenPorts(t, func(a netip.AddrPort) (packetconn.Conn, error) {
					c, err := n.Listen(a)
					conn[a] = &hookedConn{c, func() {}}
					return conn[a], err
				}, "192.0.2.1:4791", "192.0.2.2:4791")
				a, m := newQP(t, port[0], "a")
				b, peer := newQP(t, port[1], "b")
				other, _ := newQP(t, port[0], "other")
				join(t, a, b, pairOptions{})
				peer.keys[1] = make([]byte, 100)
				g, err := port[0].OpenGSI(func(Datagram) {})
				fatal.If(t, err)
				ah, err := port[0].NewAH(0, port[1].Addrs()[0], 0)
				fatal.If(t, err)
				// The datagram waits, because the transmit goroutine finds the lock taken.
				port[0].sending.Lock()
				fatal.If(t, g.Send(ah, 1, make([]byte, 256)))
				synctest.Wait()
				port[0].sending.Unlock()
				m.post(write(100))
				send(conn[port[0].Addrs()[0]], g, other, a.Kick)
				synctest.Wait()
				m.statuses(rdma.StatusSuccess)
			})
		})
	}
}

// mixedQPs returns a new QP of each port, which the test connects, and posts a mix of n operations on both.
// finish waits for their end and checks the results.
func mixedQPs(t testing.TB, a, b *Port, rnd *rand.Rand, n int) (qp [2]*QP, finish func()) {
	t.Helper()
	var mem [2]*memory
	for i, p := range []*Port{a, b} {
		qp[i], mem[i] = newQP(t, p, string(rune('a'+i)))
	}
	check := mixed(t, mem, rnd, n)
	return qp, func() {
		t.Helper()
		mem[0].wait()
		mem[1].wait()
		check()
	}
}

// TestPortsOverFaultyNetworks sends a mix of operations in both directions between ports
// with running goroutines. It uses every kind of faulty network, in the virtual time of a
// synctest bubble.
func TestPortsOverFaultyNetworks(t *testing.T) {
	for _, f := range []netem.Faults{
		{},
		{Latency: 50 * time.Microsecond},
		{Loss: 0.02},
		{Loss: 0.10},
		{Duplicate: 0.10},
		{Reorder: 0.10},
		{Corrupt: 0.10, Flips: 3},
		{Truncate: 0.10},
		{Delay: 0.10},
		{Loss: 0.03, Duplicate: 0.03, Reorder: 0.03, Corrupt: 0.03, Truncate: 0.03, Delay: 0.03, Latency: 20 * time.Microsecond},
	} {
		for _, ipv6 := range []bool{true, false} {
			if !ipv6 && f.Corrupt > 0 {
				continue // one damaged packet in 2^16 passes the CRC, see netem.Faults
			}
			t.Run(fmt.Sprintf("%+v ipv6 %v", f, ipv6), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const seed = 3
					n := netem.NewNetwork(seed, f, nil)
					addrs := []string{"192.0.2.1:4791", "192.0.2.2:4791"}
					if ipv6 {
						addrs = []string{"[2001:db8::1]:4791", "[2001:db8::2]:4791"}
					}
					port := listenPorts(t, n.Listen, addrs...)
					var finish [2]func()
					for i := range finish {
						rnd := rand.New(rand.NewPCG(seed, uint64(i)))
						var qp [2]*QP
						qp, finish[i] = mixedQPs(t, port[0], port[1], rnd, int(seeds(10, 40, 40)))
						join(t, qp[0], qp[1], pairOptions{mtu: 256 << rnd.IntN(5), psn: [2]uint32{rnd.Uint32(), rnd.Uint32()}, rdAtomic: 1 + rnd.IntN(8)})
					}
					for i := range finish {
						finish[i]()
					}
					t.Logf("%+v", port[0].Counters())
				})
			})
		}
	}
}

// TestPeerPortVanishes disconnects the network during traffic. Every QP must fail with
// retries exceeded, after the time that its timeout and retry count give, and release its
// resources.
func TestPeerPortVanishes(t *testing.T) {
	moments, qps := []time.Duration{0, 100 * time.Microsecond, 300 * time.Microsecond, time.Millisecond}, 20
	if testing.Short() {
		moments, qps = moments[:3], 6
	}
	for _, after := range moments {
		synctest.Test(t, func(t *testing.T) {
			ca, cb := netem.Pair(1, netem.Faults{Latency: 10 * time.Microsecond}, nil)
			pa, pb := NewPort(ca, nil), NewPort(cb, nil)
			var mems []*memory
			for i := range qps {
				a, ma := newQP(t, pa, "a")
				b, mb := newQP(t, pb, "b")
				mb.keys[1] = make([]byte, 1<<20)
				for range 4 {
					mb.recv(make([]byte, 1<<20))
					ma.post(&Work{Op: []ibv.WROp{ibv.WRWrite, ibv.WRSend, ibv.WRRead}[i%3], Src: &source{b: make([]byte, 1<<20)},
						Dst: &sink{b: make([]byte, 1<<20)}, Length: 1 << 20, RKey: 1})
				}
				ma.target = [2]int{4, 0}
				mems = append(mems, ma)
				join(t, a, b, pairOptions{mtu: 256, timeout: 12, retry: 2})
			}
			time.Sleep(after)
			ca.SetFaults(netem.Faults{Loss: 1})
			cb.SetFaults(netem.Faults{Loss: 1})
			gone := time.Now()
			for _, m := range mems {
				m.wait()
			}
			synctest.Wait() // Failed is called after Completed
			for i, m := range mems {
				if len(m.ended) == 4 && m.ended[3].st == rdma.StatusSuccess {
					continue
				}
				if !m.bad || m.failed[0].Status != rdma.StatusRetryExcErr {
					t.Errorf("QP %d: %v", i, m.failed)
				}
			}
			if d := time.Since(gone); d > (blockedTimeouts+5)*AckTimeout(12) {
				t.Errorf("took %v", d)
			}
			for _, e := range pa.peers {
				if out, in := e.out.used.Load(), e.in.used.Load(); out != 0 || in != 0 {
					t.Errorf("windows: %d and %d in use", out, in)
				}
			}
			pa.Close()
			pb.Close()
		})
	}
}

// TestRandomPacketFlood lets a stranger send random packets while two ports exchange messages.
func TestRandomPacketFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := inproc.NewNetwork(nil)
		port := listenPorts(t, n.Listen, "192.0.2.1:4791", "192.0.2.2:4791")
		stranger, err := n.Listen(netip.MustParseAddrPort("192.0.2.3:4791"))
		fatal.If(t, err)
		qp, finish := mixedQPs(t, port[0], port[1], rand.New(rand.NewPCG(1, 1)), 200)
		var stop atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			rnd := rand.New(rand.NewPCG(2, 2))
			for i := 0; i < 200 || !stop.Load(); i++ {
				buf := pattern(64*40, rnd.Uint64())
				for j := range 40 {
					if rnd.IntN(2) == 0 {
						binary.BigEndian.PutUint32(buf[64*j+4:], qp[1].Num())
					}
				}
				stranger.Send([]packetconn.Train{{Addr: port[1].LocalAddr(), Buf: buf, Seg: 64}})
				time.Sleep(10 * time.Microsecond)
			}
		}()
		join(t, qp[0], qp[1], pairOptions{})
		finish()
		stop.Store(true)
		<-done
		c := port[1].Counters()
		if c.UnknownSource == 0 || c.UnknownQP == 0 || c.Malformed+c.BadICRC != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// TestManyQPs connects thousands of QPs, uses each, and limits the memory they use when
// they are idle again.
func TestManyQPs(t *testing.T) {
	n := 2000
	if os.Getenv("SOFTMKEY_LONG") != "" {
		n = 10000
	}
	port := portPair(t)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var busy sync.WaitGroup
	handlers := make([]lean, 2*n)
	data := make([]byte, 3000)
	before := heap()
	qps := make([]*QP, 0, 2*n)
	for i := range 2 * n {
		h := &handlers[i]
		h.buf = data
		h.done = busy.Done
		q, err := port[i%2].NewQP(h, rdma.RC)
		fatal.If(t, err)
		qps = append(qps, q)
	}
	for i := 0; i < 2*n; i += 2 {
		join(t, qps[i], qps[i+1], pairOptions{mtu: 1024, rdAtomic: 16, timeout: 18})
	}
	works := make([]Work, 2*n)
	for i := range handlers {
		works[i] = Work{Op: ibv.WRWrite, Src: (*leanSource)(&handlers[i]), Length: 3000, RKey: 1}
		if i%4 < 2 {
			works[i] = Work{Op: ibv.WRRead, Dst: (*leanSink)(&handlers[i]), Length: 3000, RKey: 1}
		}
		busy.Add(1)
		handlers[i].next.Store(&works[i])
		qps[i].Kick()
		// A few at a time: the queues of the network stay short, and are no memory of a QP.
		if i%32 == 31 {
			busy.Wait()
		}
	}
	busy.Wait()
	for i := range handlers {
		if st := handlers[i].status; st != rdma.StatusSuccess {
			t.Fatalf("QP %d: %v", i, st)
		}
	}
	after := heap()
	per := int64(after-before) / int64(2*n)
	t.Logf("%d bytes per QP", per)
	if per > 4<<10 {
		t.Errorf("%d bytes per idle QP", per)
	}
	runtime.KeepAlive(works)
}

// lean is a Handler that neither locks nor allocates nor checks data.
type lean struct {
	quiet
	next   atomic.Pointer[Work]
	status rdma.Status
	buf    []byte
	done   func()
}

func (h *lean) Next() *Work { return h.next.Swap(nil) }
func (h *lean) Completed(w *Work, st rdma.Status) rdma.Status {
	h.status = st
	h.done()
	return st
}
func (h *lean) OpenWrite(rkey uint32, va uint64, n uint32) (Sink, NAK) {
	return (*leanSink)(h), NAKNone
}
func (h *lean) EndWrite(Sink, bool) NAK { return NAKNone }
func (h *lean) OpenRead(rkey uint32, va uint64, n uint32, _ uint64) (Source, NAK) {
	return (*leanSource)(h), NAKNone
}
func (h *lean) EndRead(Source) uint64        { return 0 }
func (h *lean) Atomic(Atomic) (uint64, NAK)  { return 0, NAKNone }
func (h *lean) BeginRecv(uint32) (Sink, NAK) { return (*leanSink)(h), NAKNone }
func (h *lean) ReturnRecv()                  {}
func (h *lean) Invalidate(uint32) error      { return nil }
func (h *lean) Received(RecvEvent) NAK       { return NAKNone }
func (h *lean) Failed(Failure)               {}

type leanSink lean

func (s *leanSink) Write(p []byte) error { return nil }

type leanSource lean

func (s *leanSource) ReadAt(p []byte, off uint64) error { copy(p, s.buf); return nil }

// TestDataPathDoesNotAllocate transfers messages and counts allocations.
func TestDataPathDoesNotAllocate(t *testing.T) {
	port := portPair(t)
	done := make(chan struct{}, 1)
	buf := make([]byte, 4096)
	ha := &lean{buf: buf, done: func() { done <- struct{}{} }}
	hb := &lean{buf: buf}
	a, err := port[0].NewQP(ha, rdma.RC)
	fatal.If(t, err)
	b, err := port[1].NewQP(hb, rdma.RC)
	fatal.If(t, err)
	join(t, a, b, pairOptions{mtu: 4096, rdAtomic: 16})
	for _, op := range []ibv.WROp{ibv.WRWrite, ibv.WRSend, ibv.WRSendImm, ibv.WRRead, ibv.WRFetchAdd} {
		w := &Work{Op: op, Src: (*leanSource)(ha), Dst: (*leanSink)(ha), Length: 1 << 18, RKey: 1}
		if n := testing.AllocsPerRun(50, func() {
			ha.next.Store(w)
			a.Kick()
			<-done
			if ha.status != rdma.StatusSuccess {
				t.Error(ha.status)
			}
		}); n >= 1 {
			t.Errorf("op %d: %v allocations per message", op, n)
		}
	}
}
