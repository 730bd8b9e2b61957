package roce

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/rdma"
)

// dctMemory is a DCTHandler whose connections share its keys and receive requests.
type dctMemory struct {
	*memory
	joined []*memory
	left   int
	full   bool
}

// initiatorMemory is the Handler of one connection of a dctMemory.
type initiatorMemory struct {
	*memory
	dct *dctMemory
}

func (m *dctMemory) Joined(q *QP) Handler {
	if m.full {
		return nil
	}
	c := newMemory(m.t, "connection")
	c.keys = m.keys
	m.joined = append(m.joined, c)
	return &initiatorMemory{c, m}
}

func (m *dctMemory) Left(Handler) { m.left++ }

func (m *initiatorMemory) BeginRecv(uint32) (Sink, NAK) {
	d := m.dct
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.rq) == 0 {
		return nil, NAKRNR
	}
	m.cur, d.rq = d.rq[0], d.rq[1:]
	return &sink{b: m.cur}, NAKNone
}

func (m *initiatorMemory) Received(ev RecvEvent) NAK {
	d := m.dct
	d.mu.Lock()
	defer d.mu.Unlock()
	d.got = append(d.got, received{ev: ev, data: bytes.Clone(m.cur[:ev.Length])})
	m.cur = nil
	return NAKNone
}

// star is a pair of ports: initiators on side 0, targets on side 1.
type star struct {
	*pair
	dci []*QP
	mem []*memory
	dct []*QP
	at  []*dctMemory
	ah  *AH
}

const dcKey = 0x123456789abcdef0

func newStar(t *testing.T, initiators, targets int, o pairOptions) *star {
	s := &star{pair: newPair(t, o)}
	var err error
	if s.ah, err = s.port[0].NewAH(0, s.conn[1].addr, 0); err != nil {
		t.Fatal(err)
	}
	for range initiators {
		q, m := newDCI(t, s.port[0], o)
		s.dci, s.mem = append(s.dci, q), append(s.mem, m)
	}
	for range targets {
		q, m := newDCT(t, s.port[1], o)
		s.dct, s.at = append(s.dct, q), append(s.at, m)
	}
	return s
}

// newDCI returns an initiator in RTS, and newDCT a target in RTR.
func newDCI(t testing.TB, p *Port, o pairOptions) (*QP, *memory) {
	t.Helper()
	m := newMemory(t, "initiator")
	q, err := p.NewQP(m, ibv.DCI)
	fatal.If(t, err)
	initiate(t, q, o)
	return q, m
}

func newDCT(t testing.TB, p *Port, o pairOptions) (*QP, *dctMemory) {
	t.Helper()
	o.defaults()
	m := &dctMemory{memory: newMemory(t, "target")}
	q, err := p.NewQP(m, ibv.DCT)
	fatal.If(t, err)
	fatal.If(t, q.RTR(RecvConfig{MTU: o.mtu, MaxDestRdAtomic: 16, MinRNRTimer: o.rnrTimer}))
	q.SetDCKey(dcKey)
	return q, m
}

// initiate moves an initiator from RESET to RTS.
func initiate(t testing.TB, q *QP, o pairOptions) {
	t.Helper()
	o.defaults()
	fatal.If(t, q.RTR(RecvConfig{MTU: o.mtu}))
	fatal.If(t, q.RTS(SendConfig{PSN: 0xfffff0, Timeout: o.timeout, RetryCount: o.retry, RNRRetry: o.rnr, MaxRdAtomic: uint8(o.rdAtomic)}))
}

// to returns w as a request of an initiator to a target.
func (s *star) to(target int, w Work) *Work {
	w.AH, w.DestQPN, w.DCKey = s.ah, s.dct[target].num, dcKey
	return &w
}

func (s *star) submit(initiator int, ws ...*Work) {
	s.mem[initiator].post(ws...)
	s.port[0].ready.push(s.dci[initiator])
}

func send(data []byte) Work {
	return Work{Op: ibv.WRSend, Length: uint32(len(data)), Src: &source{b: data}}
}

// TestDynamicInside sends messages of many packets to targets on the initiators' own port.
func TestDynamicInside(t *testing.T) {
	s := newStar(t, 2, 2, pairOptions{inside: true, mtu: 4096})
	const size = 100_000
	for target := range 2 {
		s.at[target].keys[7] = make([]byte, size)
		for range 2 {
			s.at[target].recv(make([]byte, size))
		}
	}
	var reads [2][2][]byte
	for initiator := range 2 {
		for target := range 2 {
			data := pattern(size, uint64(10*initiator+target))
			reads[initiator][target] = make([]byte, size)
			s.submit(initiator,
				s.to(target, send(data)),
				s.to(target, Work{Op: ibv.WRWrite, Length: size, Src: &source{b: data}, RKey: 7}),
				s.to(target, Work{Op: ibv.WRRead, Length: size, Dst: &sink{b: reads[initiator][target]}, RKey: 7}))
		}
		s.run(1 << 14)
		s.mem[initiator].allSucceeded(6)
		for target, got := range reads[initiator] {
			data := pattern(size, uint64(10*initiator+target))
			if !bytes.Equal(got, data) || !bytes.Equal(s.at[target].got[initiator].data, data) {
				t.Errorf("initiator %d, target %d: the data differ", initiator, target)
			}
		}
	}
}

// TestDynamicReadFirst begins each connection by a READ of many packets, from an address at which other
// QPs send READs in parts.
func TestDynamicReadFirst(t *testing.T) {
	s := newStar(t, 1, 2, pairOptions{mtu: 256})
	const size = 100_000
	into := []*sink{{b: make([]byte, size)}, {b: make([]byte, size)}}
	for target := range into {
		s.at[target].keys[7] = pattern(size, uint64(target))
		s.submit(0, s.to(target, Work{Op: ibv.WRRead, Length: size, Dst: into[target], RKey: 7, RemoteAddr: lowestDivided}))
	}
	s.run(1 << 14)
	s.mem[0].allSucceeded(2)
	for target, got := range into {
		if !bytes.Equal(got.b, s.at[target].keys[7]) {
			t.Errorf("target %d: the data differ", target)
		}
	}
}

// TestDynamic sends from several initiators to several targets in turns, on a network that loses,
// repeats and delays packets. The messages of an initiator to a target arrive once, in order and
// unchanged, and READs and atomics find what the WRITEs before them wrote.
func TestDynamic(t *testing.T) {
	for seed := range seeds(3, 20, 500) {
		const initiators, targets, rounds = 3, 2, 12
		s := newStar(t, initiators, targets, pairOptions{mtu: 256, timeout: 16})
		asked := s.conn[1].asked
		if seed > 0 {
			s.fault = lossy(seed, 0.05)
		}
		for _, m := range s.at {
			m.keys[7] = make([]byte, 1<<17)
			m.mu.Lock()
			for range initiators * rounds {
				m.rq = append(m.rq, make([]byte, 4096))
			}
			m.mu.Unlock()
		}
		var reads []*sink
		var wrote [][]byte
		want := make([][][]byte, targets)
		for i := range initiators {
			for n := range rounds {
				at := (n/3 + i) % targets
				data := append([]byte{byte(i), byte(n)}, pattern(300*n%2000, seed+uint64(n))...)
				want[at] = append(want[at], data)
				into := &sink{b: make([]byte, len(data))}
				reads, wrote = append(reads, into), append(wrote, data)
				va := uint64(i*rounds+n) * 2048 // a WRITE may overtake a READ that was posted before it without a fence
				s.submit(i, s.to(at, send(data)),
					s.to(at, Work{Op: ibv.WRWrite, Length: uint32(len(data)), Src: &source{b: data}, RKey: 7, RemoteAddr: va}),
					s.to(at, Work{Op: ibv.WRRead, Length: uint32(len(data)), Dst: into, RKey: 7, RemoteAddr: va}),
					s.to(at, Work{Op: ibv.WRFetchAdd, CompareAdd: 1, RKey: 7, RemoteAddr: 1<<17 - 8}))
			}
		}
		s.run(100000)
		total := byte(0)
		for i := range s.mem {
			s.mem[i].allSucceeded(4 * rounds)
		}
		for i := range reads {
			if !bytes.Equal(reads[i].b, wrote[i]) {
				t.Fatalf("seed %d: READ %d differs", seed, i)
			}
		}
		for at, m := range s.at {
			var got [initiators][][]byte
			for _, g := range m.got {
				got[g.data[0]] = append(got[g.data[0]], g.data)
			}
			for i := range initiators {
				var expected [][]byte
				for _, d := range want[at] {
					if d[0] == byte(i) {
						expected = append(expected, d)
					}
				}
				if !slices.EqualFunc(got[i], expected, bytes.Equal) {
					t.Fatalf("seed %d: target %d got %d messages from %d, want %d in order", seed, at, len(got[i]), i, len(expected))
				}
			}
			total += m.keys[7][1<<17-8]
			// Idle connections end, and their QPs with them.
			if n := s.dct[at].dct.table.Len(); n != 0 && s.fault == nil {
				t.Errorf("seed %d: %d connections are left", seed, n)
			}
		}
		if total != initiators*rounds {
			t.Errorf("seed %d: the counters have %d, want %d", seed, total, initiators*rounds)
		}
		if n := s.conn[1].asked - asked; n != 0 {
			t.Errorf("seed %d: the targets asked %d times for a ring while they received", seed, n)
		}
		for _, q := range append(s.dci, s.dct...) {
			q.Close()
		}
		if n := s.port[1].qps.Len(); n != 1 {
			t.Errorf("seed %d: %d QPs are left", seed, n)
		}
		for i := range s.port {
			if n := s.port[i].kept.used.Load(); n != 0 || len(s.port[i].peers) != 1 {
				t.Errorf("seed %d: side %d: %d bytes and %d peers are left", seed, i, n, len(s.port[i].peers))
			}
		}
	}
}

// lossy returns a fault that loses, repeats and delays packets.
func lossy(seed uint64, rate float64) func(int, []byte) [][]byte {
	rnd := rand.New(rand.NewPCG(seed, 9))
	var late [2][][]byte
	return func(to int, p []byte) (arrive [][]byte) {
		if p == nil {
			arrive, late[to] = late[to], nil
			return arrive
		}
		if len(late[to]) > 0 && rnd.Float64() < 0.2 {
			arrive, late[to] = late[to], nil
		}
		switch x := rnd.Float64(); {
		case x < rate:
			return arrive
		case x < 2*rate:
			return append(arrive, p, bytes.Clone(p))
		case x < 3*rate:
			late[to] = append(late[to], p)
			return arrive
		}
		return append(arrive, p)
	}
}

// TestDynamicRefused checks the statuses of requests that no target accepts.
func TestDynamicRefused(t *testing.T) {
	for name, v := range map[string]struct {
		change func(s *star, w *Work)
		want   rdma.Status
	}{
		"wrong key":      {func(s *star, w *Work) { w.DCKey++ }, rdma.StatusRemAccessErr},
		"no such number": {func(s *star, w *Work) { w.DestQPN = s.dct[0].num ^ 1 }, rdma.StatusRetryExcErr},
		"no DCT":         {func(s *star, w *Work) { w.DestQPN = s.qp[1].num }, rdma.StatusRetryExcErr},
		"no address":     {func(s *star, w *Work) { w.AH = nil }, rdma.StatusLocQPOpErr},
		"no room":        {func(s *star, w *Work) { s.at[0].full = true }, rdma.StatusRNRRetryExcErr},
		"wrong rkey":     {func(s *star, w *Work) { *w = *s.to(0, Work{Op: ibv.WRFetchAdd, RKey: 9}) }, rdma.StatusRemAccessErr},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStar(t, 1, 1, pairOptions{timeout: 8, retry: 2, rnr: 2})
			s.at[0].recv(make([]byte, 10))
			s.at[0].recv(make([]byte, 10))
			first, second := s.to(0, send(make([]byte, 10))), s.to(0, send(make([]byte, 10)))
			v.change(s, first)
			s.submit(0, first, second)
			s.run(10000)
			if s.mem[0].ended[0].st != v.want {
				t.Errorf("status %v, want %v", s.mem[0].ended[0].st, v.want)
			}
			s.mem[0].ended, s.mem[0].began, s.mem[0].sq = nil, nil, nil
			// The target is unharmed: the initiator connects again after a RESET.
			s.at[0].full = false
			s.dci[0].Reset()
			initiate(t, s.dci[0], pairOptions{})
			s.submit(0, s.to(0, send(make([]byte, 10))))
			s.run(10000)
			s.mem[0].statuses(rdma.StatusSuccess)
			if n := len(s.at[0].got); n != 1 {
				t.Errorf("%d messages arrived, want 1", n)
			}
		})
	}
}

// TestDynamicSilent connects an initiator to a target in a process that does not run. The retries are used up only after
// the process runs again.
func TestDynamicSilent(t *testing.T) {
	s := newStar(t, 1, 1, pairOptions{timeout: 8, retry: 2})
	n := &stopped{bool: true}
	s.port[0].gids()[0].near = n
	w := s.to(0, send(make([]byte, 10)))
	w.DestQPN ^= 1 // which nobody answers
	s.submit(0, w)
	for range 10000 {
		s.step()
	}
	s.mem[0].statuses()
	n.bool = false
	s.run(10000)
	s.mem[0].statuses(rdma.StatusRetryExcErr)
}

// TestDynamicNoReads connects an initiator to a target that says that no READ may be outstanding.
func TestDynamicNoReads(t *testing.T) {
	s := newStar(t, 1, 1, pairOptions{})
	s.at[0].keys[7] = make([]byte, 64)
	changed := false
	s.watch = func(to int, p []byte) {
		if to == 0 && wire.Opcode(p[0]) == wire.DynamicControl && wire.DynamicKind(p[wire.BTHLen]) == wire.DynamicAccept {
			clear(p[wire.BTHLen+2 : wire.BTHLen+4])
			flow := wire.NewFlow(s.conn[1].addr, s.conn[0].addr)
			flow.Front(len(p)).PutICRC(p)
			changed = true
		}
	}
	s.submit(0, s.to(0, Work{Op: ibv.WRRead, Length: 64, Dst: &sink{b: make([]byte, 64)}, RKey: 7}), s.to(0, Work{Op: ibv.WRFetchAdd, CompareAdd: 1, RKey: 7}))
	s.run(10000)
	s.mem[0].allSucceeded(2)
	if !changed {
		t.Error("the target has not answered")
	}
}

// flood makes n initiators of a host ask the first target for connections.
func (s *star) flood(host netip.AddrPort, n int, key uint64) {
	for i := range n {
		b := bth(wire.BTH{Opcode: wire.DynamicControl, MigReq: true, PKey: 0xffff, DestQP: s.dct[0].num})
		b = append(b, header(wire.DynamicLen, wire.PutDynamic, wire.Dynamic{Kind: wire.DynamicConnect, Code: 3, Reads: 65535, Session: 5, QPN: uint32(i), Key: key})...)
		b = append(b, 0, 0, 0, 0)
		flow := wire.NewFlow(host, s.conn[1].addr)
		flow.Front(len(b)).PutICRC(b)
		s.deliverFrom(host, 1, b)
	}
}

// TestDynamicStopped lets an initiator stand still while others of its host fill the target. It has
// lost its connection, and finds that out by its timers: if it was idle, it connects anew; a
// request that was under way fails.
func TestDynamicStopped(t *testing.T) {
	for name, v := range map[string]struct {
		under bool
		want  rdma.Status
	}{"idle": {false, rdma.StatusSuccess}, "with a request under way": {true, rdma.StatusRetryExcErr}} {
		t.Run(name, func(t *testing.T) {
			s := newStar(t, 1, 1, pairOptions{timeout: 12, retry: 3})
			for range 2 {
				s.at[0].recv(make([]byte, 10))
			}
			s.submit(0, s.to(0, send(make([]byte, 10))))
			s.run(1 << 12)
			s.mem[0].statuses(rdma.StatusSuccess)
			second := s.to(0, send(make([]byte, 10)))
			if v.under {
				s.submit(0, second)
				s.port[0].pump(1)
				s.conn[0].sent = nil // lost
			}
			s.clock += unheard + 1e8
			s.flood(s.conn[0].addr, MaxInitiators, dcKey)
			s.port[0].expire(s.clock) // it goes on
			if !v.under {
				s.submit(0, second)
			}
			for range 20_000 {
				if s.step(); len(s.mem[0].ended) > 1 {
					break
				}
				s.clock += 1e6
			}
			s.mem[0].statuses(rdma.StatusSuccess, v.want)
		})
	}
}

// TestDynamicFlood fills a target with connections of one host. The initiator
// of a second host must still get a connection, and a stranger without the key
// must get none.
func TestDynamicFlood(t *testing.T) {
	s := newStar(t, 1, 1, pairOptions{})
	host := netip.MustParseAddrPort("10.0.0.9:4791")
	s.flood(host, 3*MaxInitiators, dcKey)
	s.flood(host, 100, 1)
	target := s.dct[0].dct
	if n := target.table.Len(); n != MaxInitiators {
		t.Fatalf("%d connections, want %d", n, MaxInitiators)
	}
	if n := len(target.pending); n > mostAnswers {
		t.Errorf("%d answers wait", n)
	}
	s.at[0].recv(make([]byte, 10))
	s.submit(0, s.to(0, send(make([]byte, 10))))
	for range 5000 {
		if s.step(); len(s.mem[0].ended) > 0 {
			break
		}
		s.clock += 1e5
	}
	s.mem[0].statuses(rdma.StatusSuccess)
	if n := target.table.Len(); n != MaxInitiators {
		t.Errorf("%d connections, want %d", n, MaxInitiators)
	}
	s.dct[0].Close()
	if n := s.port[1].qps.Len(); n != 1 {
		t.Errorf("%d QPs are left", n)
	}
}
