//go:build linux

package uverbs

import (
	"syscall"
	"testing"
)

// TestModerateLimits sets the moderation of a CQ at the limits of an adapter, whose context has 12 bits for
// the period and 16 for the count, and beyond them. Nothing but the moderation can be changed.
func TestModerateLimits(t *testing.T) {
	p := newProgram(t, newDevice(t))
	c := p.cq(p.uar(), 16)
	for _, v := range []struct {
		mask          uint32
		count, period uint16
		want          syscall.Errno
	}{
		{1, 0, 0, 0},
		{1, 1, 4095, 0},
		{1, 0xffff, 4095, 0},
		{1, 1, 4096, syscall.EINVAL},
		{1, 0xffff, 0xffff, syscall.EINVAL},
		{0, 1, 1, syscall.EOPNOTSUPP},
		{2, 1, 1, syscall.EOPNOTSUPP},
		{3, 1, 1, syscall.EOPNOTSUPP},
	} {
		in := make(fields, 16)
		in.put32(0, c.handle)
		in.put32(4, v.mask)
		in.put16(8, v.count)
		in.put16(10, v.period)
		if _, errno := p.write(extended|cmdModifyCQ, in, 4); errno != v.want {
			t.Errorf("attributes %#x, %d completions, %d microseconds: %v, expected %v", v.mask, v.count, v.period, errno, v.want)
		}
	}
}

// TestDeviceFatal fails the device of a program. The program's later commands are EIO, the second failure
// and closing do nothing more, and a program that opens the device anew works.
func TestDeviceFatal(t *testing.T) {
	d := newDevice(t)
	p := newProgram(t, d)
	pd := p.pd()
	c := p.cq(p.uar(), 16)
	p.qp(c.uar, c, pd)
	for range 2 {
		p.file.Fail()
		for name, cmd := range map[string]uint32{"alloc PD": cmdAllocPD, "create channel": cmdCreateChannel} {
			if _, errno := p.write(cmd, make(fields, 8), 4); errno != syscall.EIO {
				t.Errorf("%s after the failure: %v, expected EIO", name, errno)
			}
		}
	}
	again := newProgram(t, d)
	again.pd()
}
