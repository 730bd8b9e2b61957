package adapter_test

import (
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/rdma"
)

// nop posts signaled requests that do nothing and waits until they are executed.
func (q *qp) nop(n int) {
	for range n {
		q.post(newWQE(prm.OpNop, 0, 0, prm.FlagCQUpdate))
	}
	q.p.ctx.Scan()
}

// events returns the number of completion events of the CQ. To be sure that all have
// arrived, it sends an event of another CQ after them.
func (c *cq) events() int {
	c.p.t.Helper()
	// Events are delivered in order, so the other CQ's event arrives last.
	probe := c.p.cq(2, nil)
	q := probe.loopback()
	probe.arm(false)
	q.nop(1)
	for range 1000 {
		select {
		case got := <-c.p.comp:
			if got != probe.CQ {
				continue
			}
			fatal.If(c.p.t, q.Close())
			fatal.If(c.p.t, probe.Close())
			c.p.mu.Lock()
			defer c.p.mu.Unlock()
			return c.p.fired[c.CQ]
		case <-time.After(20 * time.Second):
			c.p.t.Fatal("no event of the probe")
		}
	}
	return -1
}

// TestArm checks that there is one event for each arm, and only for completions that
// came since the last one.
func TestArm(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o).a
		c := p.cq(64, nil)
		q := c.loopback()
		check := func(what string, want int) {
			t.Helper()
			if got := c.events(); got != want {
				t.Errorf("%s: %d events, want %d", what, got, want)
			}
		}
		q.nop(1)
		check("not armed", 0)
		c.waitCQE()
		c.arm(false)
		p.ctx.Scan()
		check("armed, nothing came", 0)
		q.nop(3)
		check("armed", 1)
		c.arm(false) // with the sequence number of an event that was not fetched
		q.nop(1)
		check("armed anew without fetching the event", 1)
		c.sn++ // fetched
		c.arm(false)
		p.ctx.Scan()
		check("armed with a consumer index that is behind", 2)
		c.sn++
		for range 4 {
			c.waitCQE()
		}
		c.arm(false)
		p.ctx.Scan()
		check("nothing came since the last event", 2)
		q.nop(1)
		check("something came", 3)
		c.sn++
		c.waitCQE()
		c.arm(true)
		q.nop(1)
		check("armed for solicited completions only", 3)
		c.arm(false)
		p.ctx.Scan()
		check("armed for all on top of that", 4)
		c.sn++
		c.waitCQE()
		c.arm(false)
		p.ctx.Scan()
		c.arm(true)
		p.ctx.Scan()
		q.nop(1)
		check("armed for solicited completions on top of all", 5)
		c.sn++
		c.waitCQE()
		c.arm(true)
		q.nop(1)
		check("armed for solicited completions only, again", 5)
	})
}

// TestFirstArm arms with a word of 0, which stood in the record before the CQ was made.
func TestFirstArm(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o).a
		c := p.cq(64, nil)
		q := c.loopback()
		p.mem.put32(c.db+4, 0)
		q.nop(1)
		if n := c.events(); n != 1 {
			t.Errorf("%d events, want 1", n)
		}
	})
}

// TestCQE128 polls completions from entries of 128 bytes through several rounds.
func TestCQE128(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o).a
		c := p.cq(4, func(a *adapter.CQAttr) { a.CQESize = 128 })
		q := c.loopback()
		for i := range 10 {
			at := q.post(newWQE(prm.OpNop, 0, 0, prm.FlagCQUpdate))
			if e := c.waitCQE(); e.Counter != at || e.Opcode != prm.CQERequester {
				t.Fatalf("completion %d: %+v", i, e)
			}
		}
	})
}

// TestOverrun overruns a CQ: the CQ and the QP fail, and nothing else does.
func TestOverrun(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o).a
		c := p.cq(4, nil)
		q := c.loopback()
		q.nop(5)
		if e := <-p.events; e.typ != rdma.EventCQErr || e.obj != c.CQ {
			t.Errorf("event %+v", e)
		}
		if e := <-p.events; e.typ != rdma.EventQPFatal || e.obj != q.QP {
			t.Errorf("event %+v", e)
		}
		other := p.cq(4, nil)
		r := other.loopback()
		r.nop(1)
		if e := other.waitCQE(); e.Opcode != prm.CQERequester {
			t.Errorf("completion %+v", e)
		}
	})
}

// TestResize moves a CQ with completions in it, as the driver does.
func TestResize(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o).a
		c := p.cq(8, nil)
		q := c.loopback()
		for range 5 {
			q.post(newWQE(prm.OpNop, 0, 0, prm.FlagCQUpdate))
			c.waitCQE()
		}
		q.nop(3)
		old := *c
		c.buf, c.entries = p.mem.alloc(32*64), 32
		c.clear()
		fatal.If(t, c.Resize(adapter.Range(p.mem, c.buf), 32, 64))
		// The driver copies the entries before the one that ends the old ring.
		for i := old.consumer; ; i++ {
			e := p.mem.get(old.buf+uint64(i&7)*64, 64)
			if prm.CQEOpcode(e[63]>>4) == prm.CQEResize {
				break
			}
			e[63] = e[63]&^1 | byte((i+1)/32&1)
			p.mem.put(c.buf+uint64((i+1)&31)*64, e)
		}
		c.consumer++
		for i := range 3 {
			if e := c.waitCQE(); e.Counter != uint16(5+i) {
				t.Errorf("completion %d: %+v", i, e)
			}
		}
		for i := range 40 {
			at := q.post(newWQE(prm.OpNop, 0, 0, prm.FlagCQUpdate))
			if e := c.waitCQE(); e.Counter != at {
				t.Fatalf("completion %d after the move: %+v", i, e)
			}
		}
		if err := c.Resize(adapter.Range(p.mem, c.buf), 3, 64); err == nil {
			t.Error("3 entries were taken")
		}
	})
}

// TestModeration: a moderated CQ raises its event only after the set number of completions, or
// when the set time has passed.
func TestModeration(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o).a
		c := p.cq(64, nil)
		q := c.loopback()
		fatal.If(t, c.Moderate(3, 60000))
		c.arm(false)
		q.nop(2)
		q.nop(1)
		if n := c.events(); n != 1 {
			t.Errorf("%d events, want 1", n)
		}
		c.sn++
		fatal.If(t, c.Moderate(100, 1))
		for range 3 {
			c.waitCQE()
		}
		c.arm(false)
		q.nop(1)
		select {
		case got := <-p.comp:
			if got != c.CQ {
				t.Errorf("an event of CQ %#x", got.Number())
			}
		case <-time.After(20 * time.Second):
			t.Error("no event after the period")
		}
	})
}
