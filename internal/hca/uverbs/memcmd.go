//go:build linux

package uverbs

import (
	"fmt"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/rdma"
)

// The commands of protection domains, memory regions and windows.

func (c *command) allocPD(fields) error {
	pd, err := c.file.ctx.AllocPD()
	if err != nil {
		return err
	}
	h, err := c.file.objects.add(pdObject{pd})
	if err != nil {
		return err
	}
	return outputs(c.output32(coreOut, h), c.output32(uhwOut, pd.Number()))
}

func (c *command) queryPD() error {
	pd, err := named[pdObject](c, queryPDHandle, "query PD")
	if err != nil {
		return err
	}
	return c.output32(queryPDNumber, pd.Number())
}

func (c *command) pd(handle uint32) (*adapter.PD, error) {
	o, err := get[pdObject](&c.file.objects, uint64(handle))
	return o.PD, err
}

// regMR answers REG_MR: struct ib_uverbs_reg_mr.
func (c *command) regMR(pd pdObject, in fields) error {
	mem, err := c.memory()
	if err != nil {
		return err
	}
	of, w := c.watchMemory(mem, in.u32(36))
	mr, err := c.file.ctx.RegMR(of, pd.PD, in.u64(8), in.u64(16), in.u64(24), in.u32(36))
	if err != nil {
		return err
	}
	if w != nil {
		w.name = fmt.Sprintf("region %#x", mr.LKey())
		w.register(in.u64(8), in.u64(16), in.u32(36))
		c.file.dev.watch(w)
	}
	h, err := c.file.objects.add(mrObject{MR: mr, watched: w, dev: c.file.dev})
	if err != nil {
		return err
	}
	r := make(fields, 12)
	r.put32(0, h)
	r.put32(4, mr.LKey())
	r.put32(8, mr.RKey())
	return c.output(coreOut, r)
}

// The flags of enum ib_uverbs' rereg_mr.
const reregPD = 1 << 1

// reregMR answers REREG_MR: struct ib_uverbs_rereg_mr.
func (c *command) reregMR(mr mrObject, in fields) (err error) {
	flags := in.u32(12)
	var pd *adapter.PD
	if flags&reregPD != 0 {
		if pd, err = c.pd(in.u32(40)); err != nil {
			return err
		}
	}
	if err := mr.Rereg(flags, pd, in.u64(16), in.u64(24), in.u64(32), in.u32(44)); err != nil {
		return err
	}
	if mr.watched != nil && flags&adapter.ReregTranslation != 0 {
		access := mr.watched.access()
		if flags&adapter.ReregAccess != 0 {
			access = in.u32(44)
		}
		mr.watched.register(in.u64(16), in.u64(24), access)
	}
	r := make(fields, 8)
	r.put32(0, mr.LKey())
	r.put32(4, mr.RKey())
	return c.output(coreOut, r)
}

func (c *command) queryMR() error {
	mr, err := named[mrObject](c, queryMRHandle, "query MR")
	if err != nil {
		return err
	}
	return outputs(c.output32(queryMRLKey, mr.LKey()), c.output32(queryMRRKey, mr.RKey()), c.output64(queryMRLength, mr.Length()), c.output64(queryMRIOVA, mr.IOVA()))
}

// mostAdvised bounds the ranges of an ADVISE_MR.
const mostAdvised = 1 << 12

// adviseMR answers ADVISE_MR, whose list is of struct ibv_sge.
func (c *command) adviseMR() error {
	const op = "advise on MR"
	h, err := c.need(adviseMRPD, op)
	if err != nil {
		return err
	}
	pd, err := c.pd(uint32(h))
	if err != nil {
		return err
	}
	advice, err := c.need(adviseMRAdvice, op)
	if err != nil {
		return err
	}
	flags, err := c.input(adviseMRFlags)
	if err != nil {
		return err
	}
	const sge = 16
	if n := c.room(adviseMRList) / sge; n == 0 || n > mostAdvised {
		return failure.New(op, syscall.EINVAL, "%d ranges: must be 1 to %d", n, mostAdvised)
	}
	list, err := c.input(adviseMRList)
	if err != nil {
		return err
	}
	ranges := make([]rdma.SGE, len(list)/sge)
	for i := range ranges {
		ranges[i] = rdma.SGE{Addr: list.u64(sge * i), Length: list.u32(sge*i + 8), LKey: list.u32(sge*i + 12)}
	}
	return c.file.ctx.AdviseMR(pd, uint32(advice), flags.u32(0), ranges)
}

// allocMW answers ALLOC_MW: struct ib_uverbs_alloc_mw.
func (c *command) allocMW(pd pdObject, in fields) error {
	mw, err := c.file.ctx.AllocMW(pd.PD, int(in.u8(12)))
	if err != nil {
		return err
	}
	h, err := c.file.objects.add(mwObject{mw})
	if err != nil {
		return err
	}
	r := make(fields, 8)
	r.put32(0, h)
	r.put32(4, mw.RKey())
	return c.output(coreOut, r)
}

// createAH answers CREATE_AH: struct ib_uverbs_create_ah.
func (c *command) createAH(pd pdObject, in fields) error {
	a := ahAttr(in, 24)
	if err := checkPort("create AH", &a); err != nil {
		return err
	}
	ah, err := c.file.ctx.CreateAH(pd.PD, a)
	if err != nil {
		return err
	}
	h, err := c.file.objects.add(ahObject{ah})
	if err != nil {
		return err
	}
	uhw := make(fields, 16) // struct mlx5_ib_create_ah_resp
	uhw.put32(0, uint32(min(len(uhw), c.room(uhwOut))))
	mac := ah.DMAC()
	copy(uhw[4:], mac[:])
	return outputs(c.output32(coreOut, h), c.output(uhwOut, uhw))
}
