//go:build linux

package uverbs

import (
	"math/bits"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/adapter"
)

// The commands of completion queues and channels.

// createChannel answers CREATE_COMP_CHANNEL.
func (c *command) createChannel(fields) error {
	_, fd, err := c.file.newChannel(c, compEventSize)
	if err != nil {
		return err
	}
	return c.output32(coreOut, uint32(fd))
}

func (c *command) allocAsync() error {
	ch, fd, err := c.file.newChannel(c, asyncEventSize)
	if err != nil {
		return err
	}
	c.file.evMu.Lock()
	if c.file.async == nil {
		c.file.async = ch
	}
	c.file.evMu.Unlock()
	c.give(allocAsyncDescriptor, uint64(fd))
	return nil
}

func (c *command) createCQ() error {
	const op = "create CQ"
	v, err := c.inputs(createCQEntries, createCQUser, createCQVector, createCQFlags, uhwIn)
	if err != nil {
		return err
	}
	cqe, user, vector, flags, in := v[0], v[1], v[2], v[3], v[4] // in is struct mlx5_ib_create_cq
	f := c.file
	n := int(cqe.u32(0))
	if n <= 0 || n > f.dev.attr.MaxCQE {
		return failure.New(op, syscall.EINVAL, "%d entries: from 1 to %d are possible", n, f.dev.attr.MaxCQE)
	}
	if vector.u32(0) >= compVectors {
		return failure.New(op, syscall.EINVAL, "completion vector %d: the device has %d", vector.u32(0), compVectors)
	}
	if len(in) < 24 {
		return failure.New(op, syscall.EINVAL, "%d bytes of driver data: mlx5 has 24 and more", len(in))
	}
	o := &cqObject{entries: 1 << bits.Len(uint(n)), eventCounts: eventCounts{user: user.u64(0)}}
	if o.comp, err = f.channelOf(c, createCQChannel, compEventSize); err != nil {
		return err
	}
	if o.async, err = f.asyncOf(c, createCQEvents); err != nil {
		return err
	}
	mem, err := c.memory()
	if err != nil {
		return err
	}
	a := adapter.CQAttr{
		Entries: o.entries, CQESize: int(in.u32(16)), Ring: adapter.Range(mem, in.u64(0)), DB: adapter.Range(mem, in.u64(8)),
		IgnoreOverrun: flags.u32(0)&2 != 0, Channel: o.comp != nil,
	}
	if uar := f.uars[uint32(in.u16(24))]; uar != nil {
		a.UAR = uar.UAR
	}
	h, err := f.create(o, &o.regions, func() (key any, err error) {
		o.CQ, err = f.ctx.CreateCQ(a)
		return o.CQ, err
	})
	if err != nil {
		return err
	}
	c.give(createCQHandle, uint64(h))
	uhw := make(fields, 8)
	uhw.put32(0, o.Number())
	return outputs(c.output32(createCQAnswerEntries, uint32(o.entries-1)), c.output(uhwOut, uhw))
}

func (c *command) destroyCQ() error {
	o, err := remove[*cqObject](c, destroyCQHandle, "destroy CQ")
	if err != nil {
		return err
	}
	c.file.forget(o.CQ)
	c.file.maps.leave(o.regions)
	r := make(fields, 8)
	r.put32(0, o.comp.take(o.user, &o.compEvents))
	r.put32(4, o.async.take(o.user, &o.asyncEvents))
	return c.output(destroyCQAnswer, r)
}

// resizeCQ answers RESIZE_CQ: struct ib_uverbs_resize_cq and mlx5_ib_resize_cq.
func (c *command) resizeCQ(o *cqObject, in fields) error {
	const op = "resize CQ"
	uhw, err := c.input(uhwIn)
	if err != nil {
		return err
	}
	n := int(in.u32(12))
	if n <= 0 || n > c.file.dev.attr.MaxCQE {
		return failure.New(op, syscall.EINVAL, "%d entries: from 1 to %d are possible", n, c.file.dev.attr.MaxCQE)
	}
	entries := 1 << bits.Len(uint(n))
	mem, err := c.memory()
	if err != nil {
		return err
	}
	maps := &c.file.maps
	used, err := maps.using(func() error { return o.Resize(adapter.Range(mem, uhw.u64(0)), entries, int(uhw.u16(8))) })
	if err != nil {
		return err
	}
	maps.leave(o.regions)
	o.regions, o.entries = used, entries
	return c.output32(coreOut, uint32(entries-1))
}

// modifyCQ answers MODIFY_CQ: struct ib_uverbs_ex_modify_cq.
func (c *command) modifyCQ(o *cqObject, in fields) error {
	const moderation = 1 // IB_CQ_MODERATE
	if mask := in.u32(4); mask != moderation {
		return failure.New("modify CQ", syscall.EOPNOTSUPP, "attributes %#x: only the moderation, %#x, can be changed", mask, moderation)
	}
	if period := in.u16(10); period > mostModeratePeriod {
		return failure.New("modify CQ", syscall.EINVAL, "a moderation of %d microseconds: at most %d", period, mostModeratePeriod)
	}
	return o.Moderate(in.u16(8), in.u16(10))
}

// The largest moderation of a CQ: completions and microseconds.
const (
	mostModerateCount  = 0xffff
	mostModeratePeriod = 0xfff
)
