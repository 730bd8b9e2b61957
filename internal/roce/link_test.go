package roce

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/loan"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/packetconn"
)

// linked is a pair whose packets travel over two simulated paths in virtual time.
type linked struct {
	*pair
	path [2]*netPath // to side i
	line []flight    // by time of arrival

	// trains is the time for which the receiver collects packets after a first one. Those to
	// one side that have the same length then arrive in one train, as from a socket with GRO.
	trains time.Duration
}

// flight is a packet in flight.
type flight struct {
	at  int64
	to  int
	b   []byte
	tos byte
}

// pop removes and returns the packet that arrives first.
func (l *linked) pop() flight {
	f := l.line[0]
	l.line[0] = flight{}
	l.line = l.line[1:]
	return f
}

// newLinked returns a new connected pair with a simulated link in each direction.
func newLinked(t testing.TB, o pairOptions, there, back netLink, seed uint64) *linked {
	l := &linked{pair: newPair(t, o)}
	l.path[1], l.path[0] = newPath(there, 2*seed), newPath(back, 2*seed+1)
	return l
}

// reroute sends the packets from now on over other paths.
func (l *linked) reroute(there, back netLink, seed uint64) {
	l.path[1], l.path[0] = newPath(there, 2*seed), newPath(back, 2*seed+1)
}

// headers is the number of bytes that Ethernet, IP and UDP add to a packet, for the
// link's rate.
const headers = 42

// pump sends the packets that are ready.
func (l *linked) pump() {
	for moved := true; moved; {
		moved = false
		for i := range l.port {
			for !l.port[i].ready.empty() {
				l.port[i].pump(1)
				moved = true
			}
			l.send(i)
		}
	}
}

// send moves the packets that side i has sent to its link.
func (l *linked) send(i int) {
	for _, d := range l.conn[i].sent {
		for n, at := range l.path[1-i].send(time.Duration(l.clock), len(d.Buf)+headers) {
			b := d.Buf
			if n > 0 {
				b = bytes.Clone(b)
			}
			f := flight{at: int64(at), to: 1 - i, b: b, tos: d.TOS}
			l.line = slices.Insert(l.line, sort.Search(len(l.line), func(i int) bool { return l.line[i].at > f.at }), f)
		}
	}
	l.conn[i].sent = l.conn[i].sent[:0]
}

// run advances the clock until nothing moves, done returns true, or the limit is reached.
// It reports whether it ended before the limit.
func (l *linked) run(limit time.Duration, done func() bool) bool {
	for l.clock < int64(limit) {
		l.pump()
		if done != nil && done() {
			return true
		}
		next := l.next()
		if next == never {
			return true
		}
		l.advance(next)
	}
	return false
}

// next returns the time at which something happens next.
func (l *linked) next() int64 {
	next := int64(never)
	if len(l.line) > 0 {
		next = l.line[0].at
	}
	for i := range l.port {
		next = min(next, l.port[i].timers.first.Load())
	}
	return next
}

// advance moves the clock to a time, and lets everything happen that is due then.
func (l *linked) advance(to int64) {
	l.clock = max(l.clock, to)
	for i := range l.port {
		l.port[i].expire(l.clock)
	}
	for len(l.line) > 0 && l.line[0].at <= l.clock {
		f := l.pop()
		seg := len(f.b)
		var later []flight // of the other side, or of another train
		for l.trains > 0 && len(l.line) > 0 && l.line[0].at <= l.clock+int64(l.trains) {
			next := l.pop()
			if next.to != f.to || next.tos != f.tos || len(next.b) > seg || len(f.b)%seg != 0 || len(f.b)+len(next.b) > packetconn.RecvSize {
				later = append(later, next)
				continue
			}
			f.b = append(f.b, next.b...)
		}
		l.line = slices.Insert(l.line, 0, later...)
		l.port[f.to].gids()[0].take(&packetconn.Train{Addr: l.conn[1-f.to].addr, Buf: f.b, Seg: seg, TOS: f.tos, Memory: l.conn[1-f.to].memory}, l.clock)
		for i := range f.b { // the receive buffer is used again
			f.b[i] = loan.Poison
		}
	}
}

// cycled is a Source and Sink of any length over a small buffer. It checks that each byte
// is written once and in order.
type cycled struct {
	b []byte
	n uint64
	t testing.TB
}

func (s *cycled) ReadAt(p []byte, off uint64) error {
	for off += s.n; len(p) > 0; {
		n := copy(p, s.b[off%uint64(len(s.b)):])
		p, off = p[n:], off+uint64(n)
	}
	return nil
}

func (s *cycled) Write(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), len(s.b)-int(s.n%uint64(len(s.b))))
		if !bytes.Equal(p[:n], s.b[s.n%uint64(len(s.b)):][:n]) {
			s.t.Errorf("bytes from %d on differ", s.n)
		}
		p, s.n = p[n:], s.n+uint64(n)
	}
	return nil
}

// bulk is a Handler whose keys are cycled.
type bulk struct {
	*memory
	b []byte
}

func (h bulk) OpenWrite(_ uint32, _ uint64, n uint32) (Sink, NAK) {
	h.open++
	return &cycled{b: h.b, t: h.t}, NAKNone
}
func (h bulk) EndWrite(Sink, bool) NAK { h.open--; return NAKNone }
func (h bulk) OpenRead(_ uint32, va uint64, n uint32, _ uint64) (Source, NAK) {
	h.open++
	return &cycled{b: h.b, n: va - readFrom, t: h.t}, NAKNone
}
func (h bulk) EndRead(Source) uint64 { h.open--; return 0 }

// readFrom is the remote address of the requests of transfer, which are asked for in parts.
const readFrom = lowestDivided

// transfer moves bytes over a link with requests of op, size bytes each, and keeps depth
// of them outstanding. It returns the virtual time.
func transfer(t testing.TB, l *linked, op ibv.WROp, bytes, size, depth int) time.Duration {
	buf := pattern(1<<16, 9)
	for i := range l.qp {
		l.qp[i].h = bulk{l.mem[i], buf}
	}
	a := l.mem[0]
	total := (bytes + size - 1) / size
	posted := 0
	post := func() {
		for posted < total && posted-len(a.ended) < depth {
			w := &Work{Op: op, Length: uint32(size), RKey: 1, RemoteAddr: readFrom}
			if op == ibv.WRRead {
				w.Dst = &cycled{b: buf, t: t}
			} else {
				w.Src = &cycled{b: buf}
			}
			posted++
			l.post(0, w)
		}
	}
	start := l.clock
	post()
	if !l.run(time.Duration(start)+time.Hour, func() bool { post(); l.pump(); return len(a.ended) == total || len(a.failed) > 0 }) {
		t.Fatalf("not done after an hour: %d of %d", len(a.ended), total)
	}
	took := time.Duration(l.clock - start)
	a.allSucceeded(total)
	return took
}

func describe(l *linked) string {
	w := &l.qp[0].peer.out
	c, r := l.port[0].Counters(), l.port[1].Counters()
	trip, _ := l.qp[0].req.loss.Trip()
	return fmt.Sprintf("window %d KB (cuts %d), rtt %v, sent %d, resent %d, lost %d, probes %d, timeouts %d, duplicates %d, overflowed %d",
		w.limit.Load()>>10, w.window.Cuts(), time.Duration(trip), c.SentPackets, c.Retransmitted, c.LostPackets, c.Probes, c.Timeouts, r.DuplicateRequests, l.path[1].overflowed)
}

const (
	mbit = 1_000_000
	kb   = 1 << 10
)

// links are networks. Each of a group loses more than the one before it.
var links = [][]struct {
	name string
	link netLink
}{
	{
		{"1 Gbit", netLink{Rate: 1000 * mbit, Queue: 512 * kb, Delay: 50 * time.Microsecond}},
		{"1 % loss", netLink{Rate: 1000 * mbit, Queue: 512 * kb, Delay: 50 * time.Microsecond, Loss: 0.01}},
		{"10 % loss", netLink{Rate: 1000 * mbit, Queue: 512 * kb, Delay: 50 * time.Microsecond, Loss: 0.1}},
	},
	{
		{"20 ms", netLink{Rate: 500 * mbit, Queue: 1024 * kb, Delay: 20 * time.Millisecond}},
		{"20 ms and 1 % loss", netLink{Rate: 500 * mbit, Queue: 1024 * kb, Delay: 20 * time.Millisecond, Loss: 0.01}},
	},
	{{"500 Mbit, 64 KB queue", netLink{Rate: 500 * mbit, Queue: 64 * kb, Delay: 20 * time.Microsecond}}},
	{{"500 Mbit, 16 KB queue", netLink{Rate: 500 * mbit, Queue: 16 * kb, Delay: 20 * time.Microsecond}}},
	{{"100 Mbit, 32 KB queue", netLink{Rate: 100 * mbit, Queue: 32 * kb, Delay: 20 * time.Microsecond}}},
	{{"1 ms of reordering", netLink{Rate: 1000 * mbit, Queue: 512 * kb, Delay: 50 * time.Microsecond, Reorder: 0.001, ReorderBy: time.Millisecond}}},
}

// TestLinks transfers megabytes over each network. What must hold is what a reader believes: a READ is at least 0.7
// times as fast as a WRITE, a larger transfer is not slower, and more loss is not faster. Time, losses and delays are those of a seed.
func TestLinks(t *testing.T) {
	// The first overflow of a queue, after the window has doubled, costs a longer transfer most on a path with delay. A READ
	// that goes back has more on the way than a WRITE, because the peer sends what was asked for to its end.
	const most, leastRead = 1.6, 0.7
	ops := []ibv.WROp{ibv.WRWrite, ibv.WRRead}
	for _, group := range links {
		before := map[string]float64{}
		for _, row := range group {
			t.Run(row.name, func(t *testing.T) {
				rates := map[string]float64{}
				for _, op := range ops {
					last := 0.0
					for _, mib := range []int{2, 4, 6, 7, 8, 9} {
						took := 0.0
						for seed := range seeds(1, 3, 12) {
							l := newLinked(t, pairOptions{mtu: 1024, rdAtomic: 16}, row.link, row.link, seed)
							took += transfer(t, l, op, mib<<20, 1<<20, 16).Seconds() / float64(seeds(1, 3, 12))
							if sent := l.port[1].Counters().SentBytes; op == ibv.WRRead && row.link.Loss < 0.1 && row.link.Reorder == 0 && float64(sent) > 2.5*float64(mib<<20) {
								t.Errorf("the peer sent %d bytes for a READ of %d MiB", sent, mib)
							}
							l.run(time.Duration(l.clock)+time.Minute, nil)
							l.idle()
						}
						name := fmt.Sprintf("%v of %d MiB", op, mib)
						rate := float64(mib<<20) * 8 / took / float64(row.link.Rate)
						t.Logf("%s: %.4f of the link", name, rate)
						if rate*most < last {
							t.Errorf("%s reaches %.4f of the link, a shorter one %.4f", name, rate, last)
						}
						last = max(last, rate)
						if worse, ok := before[name]; ok && rate > worse*most {
							t.Errorf("%s: %.4f of the link, with less loss %.4f", name, rate, worse)
						}
						if write := rates[fmt.Sprintf("%v of %d MiB", ibv.WRWrite, mib)]; op == ibv.WRRead && rate < leastRead*write {
							t.Errorf("%s reaches %.4f of the link, the WRITE %.4f", name, rate, write)
						}
						rates[name] = rate
					}
				}
				before = rates
			})
		}
	}
}

// TestOverflow sends into a small queue, over a path whose acknowledgements
// arrive after random delays, as from a busy peer. The window must find the
// size of the queue.
func TestOverflow(t *testing.T) {
	n := 32 << 20
	if testing.Short() {
		n = 16 << 20
	}
	for _, queue := range []int{16 * kb, 64 * kb} {
		for _, jitter := range []time.Duration{0, 100 * time.Microsecond, 300 * time.Microsecond} {
			t.Run(fmt.Sprintf("queue %d, jitter %v", queue, jitter), func(t *testing.T) {
				there := netLink{Rate: 500 * mbit, Queue: queue, Delay: 20 * time.Microsecond}
				back := netLink{Delay: 20 * time.Microsecond, Jitter: jitter}
				l := newLinked(t, pairOptions{mtu: 1024, rdAtomic: 16}, there, back, 1)
				took := transfer(t, l, ibv.WRWrite, n, 1<<20, 16)
				share, overflowed := float64(n)*8/took.Seconds()/float64(there.Rate), float64(l.path[1].overflowed)/float64(l.path[1].entered)
				t.Logf("%.3f of the link, %.3f overflowed; %s", share, overflowed, describe(l))
				if share < 0.6 || overflowed > 0.1 {
					t.Errorf("%.3f of the link's rate, want 0.6; %.3f of the packets overflowed, want at most 0.1", share, overflowed)
				}
			})
		}
	}
}

// randomLink returns a random network that delivers packets at least sometimes.
func randomLink(rnd *rand.Rand) netLink {
	l := netLink{Delay: time.Duration(rnd.Int64N(int64(5 * time.Millisecond)))}
	if rnd.IntN(2) == 0 {
		l.Rate = int64(10*mbit) << rnd.IntN(8)
		l.Queue = 8*kb<<rnd.IntN(6) + 9*kb
	}
	if rnd.IntN(2) == 0 {
		l.Loss = rnd.Float64() * 0.5
		l.Burst = rnd.Float64() * 4
	}
	if rnd.IntN(3) == 0 {
		l.Jitter = time.Duration(rnd.Int64N(int64(time.Millisecond)))
	}
	if rnd.IntN(3) == 0 {
		l.Reorder, l.ReorderBy = rnd.Float64()*0.2, time.Duration(rnd.Int64N(int64(2*time.Millisecond)))
	}
	if rnd.IntN(3) == 0 {
		l.Duplicate = rnd.Float64() * 0.2
	}
	return l
}

// TestRandomLinks keeps connections in use over random networks: batches of a mix of operations in both directions,
// with pauses, while the network changes, sometimes in the middle of messages. Every message must arrive, with one
// completion each and in order, without exhausted retries, and leave the QPs idle.
func TestRandomLinks(t *testing.T) {
	n := seeds(40, 150, 5000)
	for seed := range n + 1 {
		if seed == n {
			seed = 610 // probes while everything is sent again in order, with an atomic among them
		}
		rnd := rand.New(rand.NewPCG(seed, 3))
		change := func() (there, back netLink) {
			there, back = randomLink(rnd), randomLink(rnd)
			// Go-back-N retransmits a whole window per loss and would exhaust its retries.
			there.Loss, back.Loss = there.Loss/4, back.Loss/4
			return there, back
		}
		there, back := change()
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := newLinked(t, pairOptions{
				mtu: 256 << rnd.IntN(5), psn: [2]uint32{rnd.Uint32(), rnd.Uint32()}, ipv6: seed%2 == 1,
				rdAtomic: 1 + rnd.IntN(16), rnrTimer: 1,
			}, there, back, seed)
			for batch := range seeds(2, 3, 20) {
				for _, m := range l.mem {
					m.began, m.ended, m.got = nil, nil, nil
					clear(m.keys)
					clear(m.stale)
				}
				finish := mixed(t, l.mem, rnd, []int{30, 1 + rnd.IntN(12)}[min(batch, 1)])
				l.post(0)
				l.post(1)
				if batch > 0 && rnd.IntN(3) == 0 {
					l.run(time.Duration(l.clock+rnd.Int64N(int64(20*time.Millisecond))), nil)
					there, back = change()
					l.reroute(there, back, rnd.Uint64())
				}
				if !l.run(time.Duration(l.clock)+time.Hour, nil) {
					t.Error("still moving after an hour")
				}
				finish()
				l.idle()
				for i := range l.port {
					if n := l.port[i].kept.used.Load(); n != 0 {
						t.Errorf("side %d keeps %d bytes of READs", i, n)
					}
				}
				if t.Failed() {
					t.Fatalf("batch %d: %s", batch, describe(l))
				}
				l.clock += rnd.Int64N(int64(time.Second))
			}
		})
		if !ok {
			t.Fatalf("seed %d: there %+v, back %+v", seed, there, back)
		}
	}
}
