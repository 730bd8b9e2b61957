package adapter

import (
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/keydoor"
)

// psv is a protection signature value. A key with block signatures names one for each domain
// and does not use its value: a block's signature has its initial value in the key. A
// transaction signature runs in it.
type psv struct {
	object
	pd    *PD
	value *keydoor.PSV
}

// set executes a SET_PSV.
func (p *psv) set(s *prm.SetPSV) { p.value.Set(uint32(s.Transient >> 32)) }

// psv returns the PSV that a request of the QP names, or nil if its protection domain has none with
// that number.
func (q *QP) psv(number uint32) *psv {
	if p := lookup(q.ctx, q.ctx.psvs, number); p != nil && p.pd == q.attr.PD {
		return p
	}
	return nil
}

// createPSV executes CREATE_PSV.
func createPSV(c *Context, x *prm.Call) error {
	p := prm.ParseCreatePSV(x.In)
	if p.Count < 1 || p.Count > 4 {
		return refuse(prm.CmdBadParam, synValue, "%d PSVs: must be 1 to 4", p.Count)
	}
	pd, err := c.pd(x, p.PD)
	if err != nil {
		return err
	}
	numbers := make([]uint32, p.Count)
	for i := range numbers {
		o := &psv{object: object{ctx: c, number: newNumber(c, &c.dev.next.psv, c.psvs), uid: x.UID}, pd: pd, value: keydoor.NewPSV()}
		if err := enter(c, x.Command.String(), c.psvs, o.number, o); err != nil {
			return err
		}
		numbers[i] = o.number
		c.trace(TraceObject, "psv", o.number, "create", nil)
	}
	prm.PutPSVs(x.Out, numbers)
	return nil
}

// Close destroys the PSV.
func (p *psv) Close() error {
	leave(p.ctx, p.ctx.psvs, p.number)
	p.ctx.trace(TraceObject, "psv", p.number, "destroy", nil)
	return nil
}
