//go:build linux

package uverbs

import (
	"math/bits"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/adapter"
)

// The commands of shared receive queues.

// createSRQ answers CREATE_SRQ: struct ib_uverbs_create_srq. The driver ignores its srq_limit, as ibv_create_srq(3) says.
func (c *command) createSRQ(pd pdObject, in fields) error {
	return c.makeSRQ(in.u64(8), adapter.SRQAttr{PD: pd.PD, MaxWR: in.u32(20), MaxSGE: in.u32(24)}, nil)
}

// createXSRQ answers CREATE_XSRQ: struct ib_uverbs_create_xsrq, which makes
// plain SRQs too.
func (c *command) createXSRQ(pd pdObject, in fields) error {
	const basic, xrc = 0, 1
	a := adapter.SRQAttr{PD: pd.PD, Type: int(in.u32(16)), MaxWR: in.u32(24), MaxSGE: in.u32(28)}
	var domain *xrcdObject
	switch a.Type {
	case basic:
	case xrc:
		var err error
		if domain, err = c.xrcd(uint64(in.u32(40))); err != nil {
			return err
		}
		q, err := get[*cqObject](&c.file.objects, uint64(in.u32(44)))
		if err != nil {
			return err
		}
		a.XRCD, a.CQ = domain.XRCD, q.CQ
	default:
		return failure.New("create SRQ", syscall.EOPNOTSUPP, "SRQ type %d: the device has basic (0) and XRC (1)", a.Type)
	}
	return c.makeSRQ(in.u64(8), a, domain)
}

func (c *command) makeSRQ(user uint64, a adapter.SRQAttr, domain *xrcdObject) error {
	const op = "create SRQ"
	f := c.file
	uhw, err := c.input(uhwIn) // struct mlx5_ib_create_srq
	if err != nil {
		return err
	}
	most := uint32(f.dev.attr.MaxSRQWR)
	if a.MaxWR > most {
		return failure.New(op, syscall.EINVAL, "%d requests: at most %d are possible", a.MaxWR, most)
	}
	if a.MaxSGE > uint32(f.dev.attr.MaxSRQSGE) {
		return failure.New(op, syscall.EINVAL, "%d scatter entries: at most %d are possible", a.MaxSGE, f.dev.attr.MaxSRQSGE)
	}
	a.MaxWR = 1 << bits.Len32(a.MaxWR) // libmlx5's ring has one entry more, rounded up to a power of two
	if flags := uhw.u32(16); flags&1 != 0 {
		return failure.New(op, syscall.EOPNOTSUPP, "driver flags %#x: signatures of requests are not supported", flags)
	}
	mem, err := c.memory()
	if err != nil {
		return err
	}
	a.Ring, a.DB, a.UIDX = adapter.Range(mem, uhw.u64(0)), adapter.Range(mem, uhw.u64(8)), uhw.u32(24)
	o := &srqObject{xrcd: domain, eventCounts: eventCounts{user: user}}
	if o.async, err = f.asyncOf(c, noAttr); err != nil {
		return err
	}
	h, err := f.create(o, &o.regions, func() (key any, err error) {
		o.SRQ, err = f.ctx.CreateSRQ(a)
		return o.SRQ, err
	})
	if err != nil {
		return err
	}
	o.xrcd.use()
	wr, sge, _ := o.Query()
	r := make(fields, 16)
	r.put32(0, h)
	r.put32(4, wr)
	r.put32(8, sge)
	r.put32(12, o.Number())
	out := make(fields, 8)
	out.put32(0, o.Number())
	return outputs(c.output(coreOut, r), c.output(uhwOut, out))
}

// modifySRQ answers MODIFY_SRQ: struct ib_uverbs_modify_srq.
func (c *command) modifySRQ(o *srqObject, in fields) error {
	return o.Modify(in.u32(8), in.u32(12), in.u32(4))
}

// querySRQ answers QUERY_SRQ.
func (c *command) querySRQ(o *srqObject, _ fields) error {
	wr, sge, limit := o.Query()
	r := make(fields, 16)
	r.put32(0, wr)
	r.put32(4, sge)
	r.put32(8, limit)
	return c.output(coreOut, r)
}

func (c *command) destroySRQ() error {
	o, err := remove[*srqObject](c, destroySRQHandle, "destroy SRQ")
	if err != nil {
		return err
	}
	c.file.forget(o.SRQ)
	o.xrcd.leave()
	c.file.maps.leave(o.regions)
	return c.output32(destroySRQAnswer, o.async.take(o.user, &o.asyncEvents))
}
