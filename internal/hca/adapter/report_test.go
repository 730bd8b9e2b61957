package adapter_test

import (
	"bytes"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// checked is a key of side b that checks a block on the wire. The peer of side a writes bad blocks to it.
type checked struct {
	*pair
	k        *key
	at, from uint64
	src, dst *adapter.MR
}

func newChecked(t *testing.T, o options) *checked {
	c := &checked{pair: newPair(t, o)}
	c.src, c.from = c.a.mr(4096, 1)
	c.dst, c.at = c.b.mr(4096, 1)
	c.a.mem.put(c.from, bytes.Repeat([]byte{7}, 4096))
	c.k = c.b.newKey(keyKind{entries: 4, signature: true})
	return c
}

// configure configures the key anew, with the driver's count if it has changed since the last configuration.
func (c *checked) configure() {
	c.k.configure().access(rwAccess).list(prm.Data{Length: 512, LKey: c.dst.LKey(), Addr: c.at}).signature(prm.SignatureBSF{CheckMask: 0xff, Wire: t10()}).do(c.qb)
}

// write writes a bad block through a queue whose peer is on side b.
func (c *checked) write(q *qp) {
	c.a.t.Helper()
	w := newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate)
	if q.QP.Type() == ibv.XRCSend {
		w.xrc(0)
	}
	q.post(w.raddr(0, c.k.number).data(c.from, 520, c.src.LKey()))
	q.done()
}

// reports polls a CQ until it is empty, and returns its reports.
func (c *checked) reports(q *cq) (n int) {
	c.b.ctx.Poll()
	for b := q.next(); b != nil; b = q.next() {
		if prm.CQEOpcode(b[63]>>4) == prm.CQESigErr {
			n++
			c.k.errors++
			c.k.expectNext = true
		}
	}
	return n
}

// want compares the number of reports.
func (c *checked) want(what string, got, want int) {
	c.a.t.Helper()
	if got != want {
		c.a.t.Errorf("%s: %d reports, want %d", what, got, want)
	}
}

// other makes another connection of both sides, whose receiving end has a CQ and a user index.
func (c *checked) other(recv *cq, uidx uint32) (a, b *qp) {
	a, b = c.a.qp(c.qa.send, c.qa.recv, nil), c.b.qp(c.b.cq(64, nil), recv, func(q *adapter.QPAttr) { q.UIDX = uidx })
	a.join(b)
	return a, b
}

// TestReportsAreNotLost: whatever takes a report away before the program polls it, a later bad block of the key is
// reported.
func TestReportsAreNotLost(t *testing.T) {
	t.Run("xrc", func(t *testing.T) {
		c := newChecked(t, options{})
		x, err := c.b.ctx.OpenXRCD()
		fatal.If(t, err)
		shared := open(t, c.b.dev, options{})
		theirs := shared.cq(64, nil)
		foreign := shared.srqWith(8, func(a *adapter.SRQAttr) { a.Type, a.XRCD, a.CQ = 1, x, theirs.CQ })
		ours := c.b.cq(64, nil)
		own := c.b.srqWith(8, func(a *adapter.SRQAttr) { a.Type, a.XRCD, a.CQ = 1, x, ours.CQ })
		a, _ := c.xrc(t, x)
		send := func(to *srq) {
			to.post(prm.Data{Length: 64, LKey: c.dst.LKey(), Addr: c.at})
			a.post(newWQE(prm.OpSend, 0, 0, prm.FlagCQUpdate).xrc(to.Number()).inline([]byte("written")))
			a.done()
		}
		c.configure()
		c.write(a)
		c.write(a)
		send(own)
		if b := ours.wait(); prm.CQEOpcode(b[63]>>4) != prm.CQESigErr {
			t.Errorf("completion of kind %d, want the report before the message", b[63]>>4)
		}
		c.k.errors, c.k.expectNext = 2, true
		ours.waitCQE()

		c.configure()
		c.write(a)
		foreign.post(prm.Data{})
		a.post(newWQE(prm.OpSend, 0, 0, prm.FlagCQUpdate).xrc(foreign.Number()))
		a.done()
		if r := theirs.waitCQE(); r.Opcode != prm.CQERecv {
			t.Errorf("another program's CQ has %+v", r)
		}
		c.configure()
		c.write(c.qa)
		c.want("a bad block on a CQ of the QP's own", c.reports(c.qb.recv), 1)
	})
	t.Run("overrun", func(t *testing.T) {
		c := newChecked(t, options{})
		a, b := c.other(c.b.cq(1, nil), 0x1234)
		c.configure()
		b.postRecv(prm.Data{})
		a.post(newWQE(prm.OpSend, 0, 0, prm.FlagCQUpdate))
		a.done()
		c.write(a)
		c.want("a full CQ", c.reports(b.recv), 0)
		c.configure()
		c.write(c.qa)
		c.want("another CQ", c.reports(c.qb.recv), 1)
		c.write(c.qa)
		c.want("the key was not configured anew", c.reports(c.qb.recv), 0)
	})
	// libmlx5 drops the completions whose bytes 33 to 35 are the user index, and a kernel those of the QP's number.
	for _, v := range []struct {
		name  string
		uidx  uint32
		drops bool
	}{{"reset by libmlx5", 0, true}, {"reset by a kernel", 0xffffff, true}, {"reset of another QP", 0x1234, false}} {
		t.Run(v.name, func(t *testing.T) {
			c := newChecked(t, options{})
			a, b := c.other(c.b.cq(64, nil), v.uidx)
			c.configure()
			c.write(a)
			b.modify(adapter.QPModify{State: rdma.StateReset}, ibv.AttrState)
			if v.drops {
				for b.recv.next() != nil {
				}
			}
			c.configure()
			c.write(c.qa)
			want := 0
			if v.drops {
				want = 1
			}
			c.want("the next bad block", c.reports(c.qb.recv), want)
		})
	}
	t.Run("closed CQ", func(t *testing.T) {
		c := newChecked(t, options{})
		a, b := c.other(c.b.cq(64, nil), 0x1234)
		c.configure()
		c.write(a)
		for _, o := range []interface{ Close() error }{b, b.recv} {
			fatal.If(t, o.Close())
		}
		c.configure()
		c.write(c.qa)
		c.want("the next bad block", c.reports(c.qb.recv), 1)
	})
	// A driver takes its count as repeated although the configuration was aborted.
	for _, used := range []bool{false, true} {
		t.Run("abort", func(t *testing.T) {
			c := newChecked(t, options{})
			if used {
				c.configure()
				c.write(c.qa)
				c.want("a key that was used", c.reports(c.qb.recv), 1)
			}
			c.k.expectNext = false
			c.configure()
			c.write(c.qa)
			c.configure()
			c.write(c.qa) // the driver has not polled yet: it keeps the first error
			c.want("aborted, then configured", c.reports(c.qb.recv), 1)
			for range 3 {
				c.configure()
				c.write(c.qa)
				c.want("again", c.reports(c.qb.recv), 1)
			}
		})
	}
}
