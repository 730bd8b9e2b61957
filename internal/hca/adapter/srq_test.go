package adapter_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// srq is a shared receive queue as the driver sees it.
type srq struct {
	*adapter.SRQ
	p          *program
	buf, db    uint64
	head, tail uint16
	count      uint32
}

const srqShift = 6

func (p *program) srq(n int) *srq { return p.srqWith(n, func(*adapter.SRQAttr) {}) }

func (p *program) srqWith(n int, change func(*adapter.SRQAttr)) *srq {
	p.t.Helper()
	s := &srq{p: p, buf: p.mem.alloc(n << srqShift), db: p.mem.alloc(8), tail: uint16(n - 1)}
	for i := range n {
		next := make([]byte, 16)
		binary.BigEndian.PutUint16(next[2:], uint16((i+1)%n))
		p.mem.put(s.buf+uint64(i<<srqShift), next)
	}
	a := adapter.SRQAttr{PD: p.pd, Ring: adapter.Range(p.mem, s.buf), DB: adapter.Range(p.mem, s.db), MaxWR: uint32(n), MaxSGE: 3}
	change(&a)
	var err error
	s.SRQ, err = p.ctx.CreateSRQ(a)
	fatal.If(p.t, err)
	return s
}

func (s *srq) at(i uint16) uint64 { return s.buf + uint64(i)<<srqShift }

func (s *srq) next(i uint16) uint16 { return binary.BigEndian.Uint16(s.p.mem.get(s.at(i)+2, 2)) }

// post takes the first free request.
func (s *srq) post(d prm.Data) (index uint16) {
	index = s.head
	s.head = s.next(index)
	b := make([]byte, 48)
	prm.PutData(b, d)
	prm.PutData(b[16:], prm.Data{LKey: prm.InvalidLKey})
	s.p.mem.put(s.at(index)+16, b)
	s.count++
	s.p.mem.put32(s.db, s.count&0xffff)
	return index
}

// release puts a completed request after the last free one.
func (s *srq) release(i uint16) {
	s.p.mem.put(s.at(s.tail)+2, []byte{byte(i >> 8), byte(i)})
	s.tail = i
}

// TestSRQ lets two QPs take requests from one queue, in the order of its list.
func TestSRQ(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		s := p.b.srq(8)
		recv := p.b.cq(64, nil)
		var from, to [2]*qp
		for i := range from {
			from[i] = p.a.qp(p.qa.send, p.qa.recv, nil)
			to[i] = p.b.qp(p.qb.send, recv, func(a *adapter.QPAttr) { a.SRQ, a.RQCount, a.RQShift, a.UIDX = s.SRQ, 0, 0, uint32(0x100+i) })
			from[i].join(to[i])
		}
		mr, at := p.b.mr(1<<16, 1)
		for i := range 40 {
			want := bytes.Repeat([]byte{byte(i)}, 10+i)
			index := s.post(prm.Data{Length: 1 << 12, LKey: mr.LKey(), Addr: at})
			from[i%2].post(newWQE(prm.OpSend, 0, 0, 0).inline(want))
			p.a.ctx.Poll()
			c := recv.waitCQE()
			if c.Opcode != prm.CQERecv || c.Counter != index || c.UserIndex != uint32(0x100+i%2) || c.ByteCount != uint32(len(want)) {
				t.Fatalf("message %d to request %d: %+v", i, index, c)
			}
			if !bytes.Equal(p.b.mem.get(at, len(want)), want) {
				t.Fatalf("message %d: the data differ", i)
			}
			s.release(index)
		}
		// The limit raises one event.
		for range 3 {
			s.post(prm.Data{Length: 64, LKey: mr.LKey(), Addr: at})
		}
		fatal.If(t, s.Modify(0, 3, adapter.SRQLimit))
		from[0].post(newWQE(prm.OpSend, 0, 0, 0).inline([]byte{1}), newWQE(prm.OpSend, 0, 0, 0).inline([]byte{2}))
		p.a.ctx.Poll()
		if e := <-p.b.events; e.typ != rdma.EventSRQLimitReached || e.obj != s.SRQ {
			t.Errorf("event %+v", e)
		}
		if _, _, limit := s.Query(); limit != 0 {
			t.Errorf("limit %d after the event", limit)
		}
		// A QP in ERR takes nothing any more.
		to[1].modify(adapter.QPModify{State: rdma.StateErr}, ibv.AttrState)
		if e := <-p.b.events; e.typ != rdma.EventQPLastWQEReached || e.obj != to[1].QP {
			t.Errorf("event %+v", e)
		}
	})
}

// senderTo connects a QP of a to one of b that takes its receive requests from s. recv is the CQ of the
// latter.
func (p *pair) senderTo(s *srq) (from *qp, recv *cq) {
	recv = p.b.cq(64, nil)
	from = p.a.qp(p.qa.send, p.qa.recv, nil)
	to := p.b.qp(p.qb.send, recv, func(a *adapter.QPAttr) { a.SRQ, a.RQCount, a.RQShift = s.SRQ, 0, 0 })
	from.join(to)
	return from, recv
}

// A cyclic queue that is full has its requests replaced in place.
func TestCyclicSRQ(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		const entries = 8
		p := newPair(t, o)
		s := p.b.srqWith(entries, func(a *adapter.SRQAttr) { a.Cyclic = true })
		from, recv := p.senderTo(s)
		mr, at := p.b.mr(1<<16, 1)
		for round := range uint64(3) {
			first := at + round*entries*64
			for i := range uint64(entries) {
				s.post(prm.Data{Length: 64, LKey: mr.LKey(), Addr: first + i*64})
			}
			for i := range uint64(entries) {
				want := []byte{byte(round), byte(i), 'x'}
				from.post(newWQE(prm.OpSend, 0, 0, 0).inline(want))
				p.a.ctx.Poll()
				if c := recv.waitCQE(); c.Opcode != prm.CQERecv || c.Counter != uint16(i) {
					t.Fatalf("round %d, message %d: %+v", round, i, c)
				}
				if got := p.b.mem.get(first+i*64, len(want)); !bytes.Equal(got, want) {
					t.Fatalf("round %d, message %d: %x", round, i, got)
				}
			}
		}
	})
}

// Requests are posted several at a time, and given back in a random order, so that the list leads through
// the ring in a random order after a while. Each message has to go to the memory of its own request.
func TestSRQOrder(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		const entries = 32
		rnd := rand.New(rand.NewPCG(1, 2))
		p := newPair(t, o)
		s := p.b.srq(entries)
		from, recv := p.senderTo(s)
		mr, at := p.b.mr(1<<16, 1)
		type request struct {
			index uint16
			addr  uint64
		}
		var posted []request
		var taken []uint16
		sent := 0
		for range 60 {
			for range rnd.IntN(entries - len(posted) - len(taken)) {
				r := request{addr: at + uint64(rnd.IntN(1<<10))<<6}
				r.index = s.post(prm.Data{Length: 64, LKey: mr.LKey(), Addr: r.addr})
				posted = append(posted, r)
			}
			for range rnd.IntN(len(posted) + 1) {
				sent++
				want := binary.BigEndian.AppendUint64(nil, uint64(sent))
				from.post(newWQE(prm.OpSend, 0, 0, 0).inline(want))
				p.a.ctx.Poll()
				r := posted[0]
				posted = posted[1:]
				c := recv.waitCQE()
				if c.Opcode != prm.CQERecv || c.Counter != r.index {
					t.Fatalf("message %d to request %d: %+v", sent, r.index, c)
				}
				if got := p.b.mem.get(r.addr, len(want)); !bytes.Equal(got, want) {
					t.Fatalf("message %d to request %d: %x", sent, r.index, got)
				}
				taken = append(taken, r.index)
			}
			rnd.Shuffle(len(taken), func(i, j int) { taken[i], taken[j] = taken[j], taken[i] })
			for n := rnd.IntN(len(taken) + 1); n > 0; n-- {
				s.release(taken[0])
				taken = taken[1:]
			}
		}
		if sent < 100 {
			t.Errorf("only %d messages", sent)
		}
	})
}
