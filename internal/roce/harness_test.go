package roce

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
)

// memory is a Handler for tests. Its keys are byte slices, at address 0 and at lowestDivided, its queues are Go slices, and
// it logs every call. The log has no lock, so the race detector also checks that the
// calls of one QP do not overlap. mu guards only the fields that tests access directly.
type memory struct {
	quiet
	t     testing.TB
	name  string
	keys  map[uint32][]byte // by rkey
	stale map[uint32]bool   // keys that were invalidated

	mu    sync.Mutex
	sq    []*Work
	rq    [][]byte
	ready chan struct{} // receives an element, if there is room, after each log entry

	cur      []byte // remaining bytes of the current receive request
	curTaken int
	open     int // number of open Sinks and Sources
	began    []*Work
	ended    []ended
	got      []received
	failed   []Failure
	atomics  int
	onNext   func(*Work) *Work
	readErr  error  // of the Sources of OpenRead
	onRecv   func() // called when a message completes, without mu
	refuse   func(rkey uint32, va uint64, n uint32) NAK
	target   [2]int   // numbers of completions and messages that wait waits for
	bad      bool     // Failed was called
	reported []uint64 // values of reported that OpenRead received, in order
}

// quiet has the methods of a Handler that permits everything and observes nothing.
type quiet struct{}

func (quiet) Permits(ibv.WROp) bool     { return true }
func (quiet) EndBatch() NAK             { return NAKNone }
func (quiet) Established()              {}
func (quiet) Retransmitted(_, _ uint32) {}
func (quiet) Stalled(Stall)             {}

type ended struct {
	w  *Work
	st rdma.Status
}

type received struct {
	ev   RecvEvent
	data []byte
	work *Work // the sender's next Work, reused for every request
}

// lastPSN returns the PSN of the last packet of w, which has completed.
func lastPSN(w *Work) uint32 {
	first, count, _ := w.PSNs()
	return psnAdd(first, int(count)-1)
}

func newMemory(t testing.TB, name string) *memory {
	return &memory{t: t, name: name, keys: map[uint32][]byte{}, stale: map[uint32]bool{}, ready: make(chan struct{}, 1)}
}

// post appends Work to the send queue.
func (m *memory) post(ws ...*Work) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sq = append(m.sq, ws...)
}

// recv appends a receive request.
func (m *memory) recv(buf []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rq = append(m.rq, buf)
}

// wait waits until everything that mixed expects has happened or the QP has failed.
func (m *memory) wait() {
	for {
		m.mu.Lock()
		done := len(m.ended) >= m.target[0] && len(m.got) >= m.target[1] || m.bad
		m.mu.Unlock()
		if done {
			return
		}
		<-m.ready
	}
}

func (m *memory) note() {
	signal(m.ready)
}

// source is a Source that reads a slice.
type source struct {
	b   []byte
	err error // returned by reads that reach offset at
	at  uint64
}

func (s *source) ReadAt(p []byte, off uint64) error {
	if s.err != nil && off+uint64(len(p)) > s.at {
		return s.err
	}
	if off+uint64(len(p)) > uint64(len(s.b)) {
		return fmt.Errorf("ReadAt of %d at %d of %d", len(p), off, len(s.b))
	}
	copy(p, s.b[off:])
	return nil
}

// sink is a Sink that fills a slice.
type sink struct {
	b   []byte
	n   int
	err error // returned by writes that reach offset at
	at  int
}

func (s *sink) Write(p []byte) error {
	if s.err != nil && s.n+len(p) > s.at {
		return s.err
	}
	if s.n+len(p) > len(s.b) {
		return NAKInvalidRequest.Err()
	}
	s.n += copy(s.b[s.n:], p)
	return nil
}

// Place implements Placer. It returns nil for every fourth part, so that tests take both
// paths.
func (s *sink) Place(n int) []byte {
	if s.err != nil || s.n+n > len(s.b) || (s.n/n)%4 == 3 {
		return nil
	}
	return s.b[s.n:][:n]
}

func (s *sink) Placed(n int) error { s.n += n; return nil }

// View implements Viewer. It returns nil for every fourth part, as Place does.
func (s *source) View(off uint64, n int) []byte {
	if s.err != nil || off+uint64(n) > uint64(len(s.b)) || (off/uint64(n))%4 == 3 {
		return nil
	}
	return s.b[off:][:n]
}

func (m *memory) Next() *Work {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.sq) == 0 {
		return nil
	}
	w := m.sq[0]
	if m.onNext != nil {
		if w = m.onNext(w); w == nil {
			return nil
		}
	}
	m.sq = m.sq[1:]
	m.began = append(m.began, w)
	return w
}

func (m *memory) Completed(w *Work, st rdma.Status) rdma.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	if st != rdma.StatusSuccess && st != rdma.StatusWRFlushErr && w.Op != WRLocal && w.Err == nil {
		m.t.Errorf("%s: %v without a reason", m.name, st)
	}
	if len(m.ended) >= len(m.began) || m.began[len(m.ended)] != w {
		m.t.Errorf("%s: Completed out of order", m.name)
	}
	if st == rdma.StatusSuccess && w.Op == ibv.WRRead && w.Length > 0 {
		if s, ok := w.Dst.(*sink); ok && s.n != int(w.Length) {
			m.t.Errorf("%s: READ of %d completed with %d bytes written", m.name, w.Length, s.n)
		}
	}
	m.ended = append(m.ended, ended{w, st})
	m.note()
	return st
}

func (m *memory) find(rkey uint32, va uint64, n uint32) ([]byte, NAK) {
	if m.refuse != nil {
		if nak := m.refuse(rkey, va, n); nak != NAKNone {
			return nil, nak
		}
	}
	va %= lowestDivided
	b, ok := m.keys[rkey]
	if !ok || m.stale[rkey] || va > uint64(len(b)) || uint64(n) > uint64(len(b))-va {
		return nil, NAKRemoteAccess
	}
	return b[va : va+uint64(n)], NAKNone
}

func (m *memory) OpenWrite(rkey uint32, va uint64, n uint32) (Sink, NAK) {
	if n == 0 {
		m.t.Errorf("%s: OpenWrite of nothing", m.name)
	}
	b, nak := m.find(rkey, va, n)
	if nak != NAKNone {
		return nil, nak
	}
	m.open++
	return &sink{b: b}, NAKNone
}

func (m *memory) EndWrite(s Sink, done bool) NAK {
	m.open--
	if k := s.(*sink); done && k.n != len(k.b) {
		m.t.Errorf("%s: WRITE of %d ended with %d bytes", m.name, len(k.b), k.n)
	}
	return NAKNone
}

func (m *memory) OpenRead(rkey uint32, va uint64, n uint32, reported uint64) (Source, NAK) {
	if n == 0 {
		m.t.Errorf("%s: OpenRead of nothing", m.name)
	}
	b, nak := m.find(rkey, va, n)
	if nak != NAKNone {
		return nil, nak
	}
	m.open++
	m.reported = append(m.reported, reported)
	return &source{b: b, err: m.readErr}, NAKNone
}

// EndRead returns a number that grows with each opened READ.
func (m *memory) EndRead(Source) uint64 { m.open--; return uint64(len(m.reported)) }

// modelAtomic is a model of Atomic.Next that works bit by bit.
func modelAtomic(a *Atomic, old uint64) (v uint64, store bool) {
	carry := uint64(0)
	v = old
	for bit := range 8 * a.Size {
		at := uint64(1) << bit
		set := func(n uint64) uint64 { return n >> bit & 1 }
		switch a.Op {
		case ibv.WRCmpSwap:
			if old == a.CompareAdd {
				v = a.Swap
			}
		case ibv.WRMaskedCmpSwap:
			if set(a.CompareMask) == 1 && set(a.CompareAdd) != set(old) {
				return old, false
			}
			if set(a.SwapMask) == 1 {
				v = v&^at | a.Swap&at
			}
		default:
			sum := set(old) + set(a.CompareAdd) + carry
			v = v&^at | sum&1<<bit
			carry = sum >> 1
			if a.Op == ibv.WRMaskedFetchAdd && set(a.CompareMask) == 1 {
				carry = 0
			}
		}
	}
	return v, v != old
}

func (m *memory) Atomic(a Atomic) (uint64, NAK) {
	p, nak := m.find(a.RKey, a.VA, uint32(a.Size))
	if nak != NAKNone {
		return 0, nak
	}
	m.atomics++
	if a.Size == 4 {
		orig := uint64(binary.NativeEndian.Uint32(p))
		if v, store := modelAtomic(&a, orig); store {
			binary.NativeEndian.PutUint32(p, uint32(v))
		}
		return orig, NAKNone
	}
	orig := binary.NativeEndian.Uint64(p)
	if v, store := modelAtomic(&a, orig); store {
		binary.NativeEndian.PutUint64(p, v)
	}
	return orig, NAKNone
}

func (m *memory) BeginRecv(uint32) (Sink, NAK) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.rq) == 0 {
		return nil, NAKRNR
	}
	m.cur = m.rq[0]
	m.rq = m.rq[1:]
	m.curTaken++
	return &sink{b: m.cur}, NAKNone
}

func (m *memory) ReturnRecv() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cur == nil {
		m.t.Errorf("%s: ReturnRecv without a receive request", m.name)
	}
	m.rq = append([][]byte{m.cur}, m.rq...)
	m.cur = nil
	m.curTaken--
}

func (m *memory) Invalidate(rkey uint32) error {
	if _, ok := m.keys[rkey]; !ok || m.stale[rkey] {
		return errTest
	}
	m.stale[rkey] = true
	return nil
}

func (m *memory) Received(ev RecvEvent) NAK {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := received{ev: ev}
	if ev.Op == ibv.WRSend {
		r.data = bytes.Clone(m.cur[:ev.Length])
	}
	m.cur = nil
	m.got = append(m.got, r)
	m.note()
	if m.onRecv != nil {
		m.mu.Unlock()
		m.onRecv()
		m.mu.Lock()
	}
	return NAKNone
}

func (m *memory) Failed(f Failure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed = append(m.failed, f)
	m.bad = true
	m.note()
}

// fakeConn collects sent packets until a test delivers them.
type fakeConn struct {
	addr   netip.AddrPort
	limits packetconn.Limits
	sent   []packetconn.Train // one datagram each
	gso    bool
	memory bool // what it sends passes through memory
	asked  int  // calls of Approach
	closed bool
}

// Approach and Sleep implement netconn.Neighbor.
func (c *fakeConn) Approach(netip.AddrPort, uint32) bool {
	c.asked++
	return c.memory
}
func (c *fakeConn) Sleep() bool { return false }

func (c *fakeConn) LocalAddr() netip.AddrPort { return c.addr }
func (c *fakeConn) Limits() packetconn.Limits { return c.limits }
func (c *fakeConn) Caps() packetconn.Caps     { return packetconn.Caps{GSO: c.gso, KnownID: true} }
func (c *fakeConn) Close() error              { c.closed = true; return nil }
func (c *fakeConn) ID(i int) uint16 {
	if c.gso {
		return uint16(i)
	}
	return 0
}
func (c *fakeConn) Poll([]packetconn.Train) (int, error) { return 0, nil }
func (c *fakeConn) Recv([]packetconn.Train) (int, error) { return 0, net.ErrClosed }
func (c *fakeConn) Send(trains []packetconn.Train) (int, error) {
	if c.closed {
		return 0, net.ErrClosed
	}
	for i := range trains {
		t := &trains[i]
		for j := range t.Count() {
			b := bytes.Clone(t.At(j))
			c.sent = append(c.sent, packetconn.Train{Addr: t.Addr, Buf: b, Seg: len(b), TOS: t.TOS})
		}
	}
	return len(trains), nil
}

// pair holds two ports with one QP each. The test is their network: packets stay in the
// ports' fakeConns until step delivers them, and the test advances the clock.
type pair struct {
	t     testing.TB
	clock int64
	conn  [2]*fakeConn
	port  [2]*Port
	qp    [2]*QP
	mem   [2]*memory

	// fault returns the packets that arrive at side to in place of a sent packet. For
	// a nil packet it returns the packets that it has delayed.
	fault func(to int, p []byte) [][]byte
	// watch sees each packet before fault does.
	watch func(to int, p []byte)
}

type pairOptions struct {
	mtu        int
	psn        [2]uint32 // first PSN of side i
	timeout    uint8
	retry, rnr uint8
	rnrTimer   uint8
	rdAtomic   int
	window     int
	ipv6       bool
	noGSO      bool
	typ        rdma.QPType // default RC
	inside     bool        // both sides are QPs of one port, whose packets pass in memory
}

func (o *pairOptions) defaults() {
	if o.typ == 0 {
		o.typ = rdma.RC
	}
	if o.mtu == 0 {
		o.mtu = 1024
	}
	if o.timeout == 0 {
		o.timeout = 14
	}
	if o.rdAtomic == 0 {
		o.rdAtomic = 4
	}
	if o.retry == 0 {
		o.retry = 7
	}
	if o.rnr == 0 {
		o.rnr = 7
	}
	if o.rnrTimer == 0 {
		o.rnrTimer = 12
	}
}

func newPair(t testing.TB, o pairOptions) *pair {
	o.defaults()
	o.inside = o.inside || onePort
	p := &pair{t: t, clock: 1}
	addrs := [2]string{"10.0.0.1:4791", "10.0.0.2:4791"}
	if o.ipv6 {
		addrs = [2]string{"[fd00::1]:4791", "[fd00::2]:4791"}
	}
	seed := uint32(7)
	for i := range p.port {
		if i == 1 && o.inside {
			p.port[1], p.conn[1] = p.port[0], p.conn[0]
			continue
		}
		p.conn[i] = &fakeConn{addr: netip.MustParseAddrPort(addrs[i]), gso: !o.noGSO, memory: byMemory[i],
			limits: packetconn.Limits{Datagrams: 64, Bytes: 65507, Trains: 8}}
		p.port[i] = newPort(p.conn[i], &Options{
			SendWindow: o.window, ReadWindow: o.window, Inside: o.inside,
			Rand: func() uint32 { seed = seed*1664525 + 1013904223; return seed >> 4 },
		})
		p.port[i].now = func() int64 { return p.clock }
	}
	for i := range p.port {
		p.mem[i] = newMemory(t, fmt.Sprint("side ", i))
		var err error
		if p.qp[i], err = p.port[i].NewQP(p.mem[i], o.typ); err != nil {
			t.Fatal(err)
		}
	}
	for i := range p.qp {
		p.start(i, p.qp[i], p.qp[1-i], o)
	}
	return p
}

// start moves a QP of side i from RESET to RTS, connected to a QP of the other side.
func (p *pair) start(i int, q, other *QP, o pairOptions) {
	p.t.Helper()
	if err := q.RTR(RecvConfig{
		Peer: p.conn[1-i].addr, DestQPN: other.Num(), MTU: o.mtu,
		PSN: o.psn[1-i] & psnMask, MaxDestRdAtomic: max(0, o.rdAtomic), MinRNRTimer: o.rnrTimer,
	}); err != nil {
		p.t.Fatal(err)
	}
	if err := q.RTS(SendConfig{PSN: o.psn[i] & psnMask, Timeout: o.timeout, RetryCount: o.retry,
		RNRRetry: o.rnr, MaxRdAtomic: uint8(max(0, o.rdAtomic))}); err != nil {
		p.t.Fatal(err)
	}
}

// step sends the ready packets and delivers them, once in each direction, and advances
// the clock by a microsecond. It reports whether any packet moved.
func (p *pair) step() (moved bool) {
	p.clock += 1000
	for i := range p.port {
		p.port[i].expire(p.clock)
		if !p.port[i].ready.empty() {
			p.port[i].pump(1)
			moved = true
		}
	}
	for i := range p.port {
		sent := p.conn[i].sent
		if p.port[0] == p.port[1] && slices.ContainsFunc(sent, func(d packetconn.Train) bool { return wire.Opcode(d.Buf[0]) != wire.DynamicControl }) {
			p.t.Error("a packet went over the network")
		}
		p.conn[i].sent = nil
		for _, d := range sent {
			moved = true
			if p.watch != nil {
				p.watch(1-i, d.Buf)
			}
			arrive := [][]byte{d.Buf}
			if p.fault != nil {
				arrive = p.fault(1-i, d.Buf)
			}
			for _, b := range arrive {
				p.deliver(1-i, b, d.TOS)
			}
		}
	}
	return moved
}

// release delivers the packets that fault has delayed, and reports whether there were
// any.
func (p *pair) release() (moved bool) {
	if p.fault == nil {
		return false
	}
	for to := range p.port {
		for _, b := range p.fault(to, nil) {
			p.deliver(to, b, 0)
			moved = true
		}
	}
	return moved
}

// losing returns a fault that loses the packets for which lost is true.
func losing(lost func(to int, b []byte) bool) func(int, []byte) [][]byte {
	return func(to int, b []byte) [][]byte {
		if b == nil || lost(to, b) {
			return nil
		}
		return [][]byte{b}
	}
}

// drain lets side i send all that is ready, and returns the packets.
func (p *pair) drain(i int) (packets [][]byte) {
	for !p.port[i].ready.empty() {
		p.port[i].pump(1)
	}
	for _, d := range p.conn[i].sent {
		packets = append(packets, d.Buf)
	}
	p.conn[i].sent = nil
	return packets
}

// address makes b a packet for q, from its peer: it sets the destination and the CRC.
func (q *QP) address(b []byte) {
	h := wire.ParseBTH(b)
	h.DestQP = q.num
	wire.PutBTH(b, &h)
	q.fromIn.Front(len(b)).PutICRC(b)
}

// deliver passes a packet from the other side to side to.
func (p *pair) deliver(to int, b []byte, tos byte) {
	p.port[to].gids()[0].take(&packetconn.Train{Addr: p.conn[1-to].addr, Buf: b, Seg: len(b), TOS: tos, Memory: p.conn[1-to].memory}, p.clock)
}

// deliverFrom passes a packet from an address to side to.
func (p *pair) deliverFrom(addr netip.AddrPort, to int, b []byte) {
	p.port[to].gids()[0].take(&packetconn.Train{Addr: addr, Buf: b, Seg: len(b)}, p.clock)
}

// run calls step until nothing moves and no timer is armed, or until the number of steps
// is reached.
func (p *pair) run(steps int) {
	for range steps {
		if p.step() || p.release() {
			continue
		}
		next := int64(-1)
		for i := range p.port {
			if at := p.port[i].timers.first.Load(); at != never && (next < 0 || at < next) {
				next = at
			}
		}
		if next < 0 {
			return
		}
		p.clock = max(p.clock, next)
	}
	p.t.Errorf("still moving after %d steps", steps)
}

// post posts Work on side i and kicks the QP.
func (p *pair) post(i int, ws ...*Work) {
	p.mem[i].post(ws...)
	p.port[i].ready.push(p.qp[i])
}

// idle fails the test unless both sides have returned to their idle state.
func (p *pair) idle() {
	p.t.Helper()
	for i := range p.qp {
		r, s := &p.qp[i].req, &p.qp[i].resp
		if r.head != nil || r.cur != nil || r.whole != nil || r.flight.out != 0 || r.flight.in != 0 || r.inFlight != 0 || r.una != r.next && p.qp[i].state == rdma.StateRTS {
			p.t.Errorf("side %d: requester not idle: %+v", i, *r)
		}
		if s.open != 0 || s.ack || s.nak != 0 || s.kind != idle {
			p.t.Errorf("side %d: responder not idle: %+v", i, *s)
		}
		if p.mem[i].open != 0 {
			p.t.Errorf("side %d: %d Sinks or Sources left open", i, p.mem[i].open)
		}
		for _, e := range p.port[i].peers {
			if out, in := e.out.used.Load(), e.in.used.Load(); out != 0 || in != 0 {
				p.t.Errorf("side %d: windows: %d and %d in use", i, out, in)
			}
		}
	}
}

// seeds returns how many seeds a test tries in its short, normal and long form.
func seeds(short, normal, long uint64) uint64 {
	switch {
	case os.Getenv("SOFTMKEY_LONG") != "":
		return long
	case testing.Short():
		return short
	}
	return normal
}

// pattern returns n bytes that depend on their position.
func pattern(n int, seed uint64) []byte {
	rnd := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	b := make([]byte, n)
	rnd.Read(b)
	return b
}

// allSucceeded fails the test unless exactly n requests completed, all with success.
func (m *memory) allSucceeded(n int) {
	m.t.Helper()
	if len(m.ended) != n {
		m.t.Errorf("%s: %d completions, want %d", m.name, len(m.ended), n)
	}
	for i, e := range m.ended {
		if e.st != rdma.StatusSuccess {
			m.t.Errorf("%s: completion %d: %v", m.name, i, e.st)
			return
		}
	}
}

var errTest = errors.New("test error")

// opcodeOf returns the opcode of a packet.
func opcodeOf(p []byte) wire.Opcode { return wire.Opcode(p[0]) }
