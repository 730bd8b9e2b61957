package roce

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce/internal/congestion"
	"github.com/softmkey/softmkey/rdma"
)

// flaky is a Handler whose memory and queues fail at random.
type flaky struct {
	*memory
	rnd  *rand.Rand
	rate float64 // probability that a call fails
}

func (f *flaky) fails() bool { return f.rate > 0 && f.rnd.Float64() < f.rate }

// refusal returns a NAK for a call that fails.
func (f *flaky) refusal() NAK {
	if !f.fails() {
		return NAKNone
	}
	return []NAK{NAKInvalidRequest, NAKRemoteAccess, NAKRemoteOperational}[f.rnd.IntN(3)]
}

func (f *flaky) err() error {
	if !f.fails() {
		return nil
	}
	return errTest
}

// flakySource is a Source and a Viewer that fails at random.
type flakySource struct {
	f *flaky
	source
}

func (s *flakySource) ReadAt(p []byte, off uint64) error {
	if err := s.f.err(); err != nil {
		return err
	}
	return s.source.ReadAt(p, off)
}

// flakySink is a Sink and a Placer that fails at random.
type flakySink struct {
	f *flaky
	sink
}

func (s *flakySink) Write(p []byte) error {
	if err := s.f.err(); err != nil {
		return err
	}
	return s.sink.Write(p)
}

func (s *flakySink) Placed(n int) error {
	if err := s.f.err(); err != nil {
		return err
	}
	return s.sink.Placed(n)
}

func (f *flaky) Completed(w *Work, st rdma.Status) rdma.Status {
	f.memory.Completed(w, st)
	if st == rdma.StatusSuccess && f.fails() {
		return rdma.StatusLocProtErr
	}
	return st
}

func (f *flaky) OpenWrite(rkey uint32, va uint64, n uint32) (Sink, NAK) {
	if nak := f.refusal(); nak != NAKNone {
		return nil, nak
	}
	s, nak := f.memory.OpenWrite(rkey, va, n)
	if nak != NAKNone {
		return nil, nak
	}
	return &flakySink{f: f, sink: *s.(*sink)}, NAKNone
}

func (f *flaky) EndWrite(Sink, bool) NAK { f.open--; return f.refusal() }

func (f *flaky) OpenRead(rkey uint32, va uint64, n uint32, reported uint64) (Source, NAK) {
	if nak := f.refusal(); nak != NAKNone {
		return nil, nak
	}
	s, nak := f.memory.OpenRead(rkey, va, n, reported)
	if nak != NAKNone {
		return nil, nak
	}
	return &flakySource{f: f, source: *s.(*source)}, NAKNone
}

func (f *flaky) Atomic(a Atomic) (uint64, NAK) {
	if nak := f.refusal(); nak != NAKNone {
		return 0, nak
	}
	return f.memory.Atomic(a)
}

func (f *flaky) BeginRecv(srq uint32) (Sink, NAK) {
	if nak := f.refusal(); nak != NAKNone {
		return nil, nak
	}
	s, nak := f.memory.BeginRecv(srq)
	if nak != NAKNone {
		return nil, nak
	}
	return &flakySink{f: f, sink: *s.(*sink)}, NAKNone
}

func (f *flaky) Received(ev RecvEvent) NAK {
	if nak := f.refusal(); nak != NAKNone {
		return nak
	}
	return f.memory.Received(ev)
}

func (f *flaky) EndBatch() NAK { return f.refusal() }

// party is one QP of a chaotic connection, with its Handler.
type party struct {
	qp   *QP
	h    *flaky
	ah   *AH
	dest uint32
}

// work returns a random request of e.
func (e *party) work(rnd *rand.Rand, size int) *Work {
	n := rnd.IntN(size)
	if rnd.IntN(3) == 0 {
		n = rnd.IntN(100)
	}
	ops := []ibv.WROp{ibv.WRWrite, ibv.WRWriteImm, ibv.WRSend, ibv.WRSendImm, WRLocal, ibv.WRRead, ibv.WRRead, ibv.WRFetchAdd, ibv.WRCmpSwap, ibv.WRSendInv, ibv.WRMaskedCmpSwap, ibv.WRMaskedFetchAdd}
	switch e.qp.typ {
	case rdma.UD:
		ops, n = []ibv.WROp{ibv.WRSend, ibv.WRSendImm}, n%256
	case rdma.UC:
		ops = ops[:5]
	}
	w := &Work{Op: ops[rnd.IntN(len(ops))], Length: uint32(n), RKey: 1, AH: e.ah, DestQPN: e.dest, InvKey: rnd.Uint32()}
	switch w.Op {
	case ibv.WRMaskedCmpSwap, ibv.WRMaskedFetchAdd:
		w.Length = 4 << rnd.IntN(2)
	case ibv.WRRead:
		w.Dst = &flakySink{f: e.h, sink: sink{b: make([]byte, n)}}
		w.RemoteAddr = lowestDivided * uint64(n%2)
	case WRLocal:
		if e.h.fails() {
			w.Status, w.Err = rdma.StatusMWBindErr, errTest
		}
	default:
		w.Src = &flakySource{f: e.h, source: source{b: make([]byte, n)}}
	}
	return w
}

// chaos is a set of connections between two ports.
type chaos struct {
	*linked
	t   testing.TB
	rnd *rand.Rand
	all []*party
}

// connect adds a connection.
func (c *chaos) connect(o pairOptions, rate float64) {
	types := [2]rdma.QPType{o.typ, o.typ}
	if o.typ == ibv.XRCSend {
		types[1] = ibv.XRCRecv
	}
	var e [2]*party
	for i := range e {
		m := newMemory(c.t, fmt.Sprintf("connection %d, side %d", len(c.all)/2, i))
		m.keys[1] = make([]byte, 1<<18)
		e[i] = &party{h: &flaky{memory: m, rnd: c.rnd, rate: rate}}
		var err error
		if e[i].qp, err = c.port[i].NewQP(e[i].h, types[i]); err != nil {
			c.t.Fatal(err)
		}
		if o.typ == rdma.UD {
			if e[i].ah, err = c.port[i].NewAH(0, c.conn[1-i].addr, 0); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	for i := range e {
		e[i].dest = e[1-i].qp.num
		c.all = append(c.all, e[i])
	}
	for i := range e {
		c.start(i, e[i].qp, e[1-i].qp, o)
	}
}

// TestChaos runs several connections between two ports over a random network, and lets
// memory and queues of both sides fail at random moments, and the program fail, reset and
// close QPs. Every request that a QP took must complete once and in order. A connection
// that lives must complete all of its requests. No QP may be left in a window, a timer or a
// queue, and no packet in a buffer.
func TestChaos(t *testing.T) {
	for seed := range seeds(150, 400, 20000) {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { runChaos(t, seed) }) {
			t.FailNow()
		}
	}
}

func runChaos(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 17))
	there, back := randomLink(rnd), randomLink(rnd)
	there.Loss, back.Loss = there.Loss/2, back.Loss/2
	calm := rnd.IntN(4) == 0 // nothing is lost, and the program lets its QPs live
	if calm {
		there.Rate, there.Loss, there.Reorder = 0, 0, 0
		back.Rate, back.Loss, back.Reorder = 0, 0, 0
	}
	l := newLinked(t, pairOptions{window: congestion.Least << rnd.IntN(8), ipv6: seed%2 == 1}, there, back, seed)
	c := &chaos{linked: l, t: t, rnd: rnd}
	rate := []float64{0, 0.0003, 0.003, 0.02}[rnd.IntN(4)]
	for range 1 + rnd.IntN(4) {
		o := pairOptions{
			typ: []rdma.QPType{rdma.RC, rdma.RC, rdma.RC, ibv.XRCSend, rdma.UC, rdma.UD}[rnd.IntN(6)],
			mtu: 256 << rnd.IntN(5), psn: [2]uint32{rnd.Uint32(), rnd.Uint32()}, rdAtomic: 1 + rnd.IntN(16), rnrTimer: 1,
			timeout: uint8(12 + rnd.IntN(4)), retry: uint8(1 + rnd.IntN(7)), rnr: uint8(1 + rnd.IntN(6)),
		}
		o.defaults()
		c.connect(o, rate)
	}
	posted := make([]int, len(c.all))
	size := 1 << (8 + rnd.IntN(10))
	receives := rnd.IntN(30)
	for n, e := range c.all {
		for range receives {
			e.h.recv(make([]byte, size+40))
		}
		if e.qp.typ == ibv.XRCRecv {
			continue
		}
		for range 1 + rnd.IntN(20) {
			posted[n]++
			e.h.post(e.work(rnd, size))
		}
		e.qp.Wake()
	}
	for !calm && rnd.IntN(4) > 0 {
		l.run(time.Duration(l.clock+rnd.Int64N(int64(4*time.Millisecond))), nil)
		switch n := rnd.IntN(len(c.all)); rnd.IntN(6) {
		case 0:
			c.all[n].qp.Fail()
		case 1:
			c.all[n].qp.Reset()
		case 2:
			c.all[n].qp.Close()
		case 3:
			l.reroute(netLink{Loss: 1}, back, seed)
		case 4:
			l.reroute(there, back, seed+1)
		case 5:
			c.all[n].qp.Wake()
		}
	}
	if !l.run(time.Duration(l.clock)+time.Hour, nil) {
		t.Error("still moving after an hour")
	}
	for n, e := range c.all {
		if len(e.h.began) != len(e.h.ended) {
			t.Errorf("%s, type %d, %v: %d requests begun, %d ended", e.h.name, e.qp.typ, e.qp.State(), len(e.h.began), len(e.h.ended))
		}
		if e.qp.State() == rdma.StateRTS && len(e.h.ended) != posted[n] {
			t.Errorf("%s, type %d: %d requests posted, %d ended", e.h.name, e.qp.typ, posted[n], len(e.h.ended))
		}
		if r := &e.qp.resp; r.nak != 0 && c.all[n^1].qp.State() == rdma.StateRTS {
			t.Errorf("%s refused a request, but did not send the NAK", e.h.name)
		}
		if calm && c.all[n^1].qp.State() == rdma.StateRTS {
			for _, d := range e.h.ended {
				if d.st == rdma.StatusRetryExcErr {
					t.Errorf("%s: no answer from a peer that lives", e.h.name)
				}
			}
		}
		if len(e.h.failed) > 1 {
			t.Errorf("%s failed %d times", e.h.name, len(e.h.failed))
		}
	}
	c.left()
	for _, e := range c.all {
		e.qp.Close()
	}
	for i := range l.qp {
		l.qp[i].Close()
	}
	l.pump()
	c.left()
	for i, p := range l.port {
		if len(p.timers.heap) != 0 || len(p.peers) != 0 || p.qps.Len() != 0 {
			t.Errorf("side %d: after every QP is closed, %d timers, %d peers and %d QPs are left", i, len(p.timers.heap), len(p.peers), p.qps.Len())
		}
		if n := p.kept.used.Load(); n != 0 {
			t.Errorf("side %d keeps %d bytes of READs", i, n)
		}
	}
	for _, e := range c.all {
		if e.h.open != 0 {
			t.Errorf("%s: %d Sinks or Sources left open", e.h.name, e.h.open)
		}
	}
	if t.Failed() {
		t.Logf("there %+v, back %+v", there, back)
	}
}

// left fails the test if a window or a queue is in use.
func (c *chaos) left() {
	c.t.Helper()
	for i, p := range c.port {
		for _, e := range p.peers {
			if out, in := e.out.used.Load(), e.in.used.Load(); out != 0 || in != 0 {
				c.t.Errorf("side %d: windows: %d and %d bytes in use", i, out, in)
			}
			if waiters := slices.Concat(e.out.waiters, e.in.waiters); len(waiters) != 0 || e.out.waiting.Load() != 0 || e.in.waiting.Load() != 0 {
				c.t.Errorf("side %d: QPs wait for a window: %v", i, waiters)
			}
		}
		if !p.ready.empty() {
			c.t.Errorf("side %d: QPs are ready to send", i)
		}
	}
}
