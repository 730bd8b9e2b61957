package adapter

import (
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// NewGuest makes a context of a guest's driver: its queues lie in lists of physical pages
// that the commands have, unless they say that they lie in a umem. Doorbells are delivered
// by [Context.RingQP] and [Context.ArmCQ].
func (d *Device) NewGuest(mem Memory, ev Events) *Context {
	c := d.NewContext(mem, ev)
	c.guest, c.xrcds = true, make(map[uint32]*XRCD)
	return c
}

// RingQP looks at the doorbell record of a QP after its register was written. It reports
// whether there is a QP with that number.
func (c *Context) RingQP(number uint32) bool {
	q := lookup(c, c.qps, number)
	if q == nil {
		return false
	}
	if q.db.size == 0 {
		return true
	}
	var b [prm.DoorbellSize]byte
	if err := q.db.read(0, b[:]); err != nil {
		q.lostMemory("the doorbell record", err)
		return true
	}
	q.rang(prm.Uint32(b[prm.DoorbellRecv:]), prm.Uint32(b[prm.DoorbellSend:]))
	return true
}

// ArmCQ arms a CQ with the word that was written to its register.
func (c *Context) ArmCQ(number, word uint32) {
	if q := lookup(c, c.cqs, number); q != nil {
		q.sawArm(word)
	}
}

// EQN returns the number of the event queue that the CQ reports to.
func (q *CQ) EQN() uint32 { return q.attr.EQN }

// Complete writes a completion of a queue that is not a QP, such as those of the Ethernet
// port. false: it is lost.
func (q *CQ) Complete(e interface {
	Put(b []byte)
	OpOwn(owner uint8) uint8
}) bool {
	return q.push(e, false)
}

// Use notes that a queue uses the CQ: the CQ cannot be destroyed until Unuse. what names the user.
func (q *CQ) Use(op, what string) error { return q.users.Enter(op, what) }

// Unuse ends a Use.
func (q *CQ) Unuse(what string) { q.users.Leave(what) }

// ringOf returns the memory of a queue: in a umem, or for a guest in the pages of the
// command.
func (c *Context) ringOf(x *call, what string, umemValid bool, umem uint32, off uint64, p prm.PageList) (*Umem, Segments, error) {
	if !c.guest || umemValid {
		return c.place(x, what, umem, off)
	}
	pages, ok := p.Pages(x.in)
	if !ok {
		return nil, nil, refuse(prm.CmdBadInputLen, synShortInput, "%s: its pages do not fit in %d bytes", what, len(x.in))
	}
	at := Pages(c.mem, p.Shift, pages).From(p.Offset)
	if at == nil {
		return nil, nil, refuse(prm.CmdBadParam, synMemory, "%s: %d pages of 2^%d bytes from %#x", what, len(pages), p.Shift, p.Offset)
	}
	return nil, at, nil
}

// recordOf returns the memory of a doorbell record.
func (c *Context) recordOf(x *call, umemValid bool, umem uint32, addr uint64) (*Umem, Segments, error) {
	const what = "the doorbell record"
	if !c.guest || umemValid {
		return c.place(x, what, umem, addr)
	}
	return nil, Range(c.mem, addr), nil
}
