package pci

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// tis is a transport interface send (TIS), which send queues name. The model has one port and no
// priorities, so a TIS holds only its transport domain.
type tis struct{ domain uint32 }

var _ = register(map[prm.Command]handler{
	0x771: (*firmware).allocCounter,
	0x772: func(f *firmware, c *call) error { _, err := f.counters.remove(c.in32(0x58, 8)); return err },
	0x773: (*firmware).queryCounter,
	0x80e: (*firmware).allocXRCD,
	0x80f: (*firmware).deallocXRCD,
	0x816: func(f *firmware, c *call) error { return c.created(f.domains.add(struct{}{})) },
	0x817: func(f *firmware, c *call) error { _, err := f.domains.remove(c.number()); return err },
	0xa04: (*firmware).createUser,
	0xa06: func(f *firmware, c *call) error { _, err := f.users.remove(c.in32(0x50, 16)); return err },
	0x912: (*firmware).createTIS,
	0x913: func(f *firmware, c *call) error { _, err := f.tiss.get(c.number()); return err },
	0x914: func(f *firmware, c *call) error { _, err := f.tiss.remove(c.number()); return err },
})

// createUser makes a user: a program whose commands the driver executes.
func (f *firmware) createUser(c *call) error {
	n, err := f.users.add(struct{}{})
	c.set(0x50, 16, uint64(n))
	return err
}

const tisContext = 0x100 // in CREATE_TIS, in bits

func (f *firmware) createTIS(c *call) error {
	domain := c.in32(tisContext+0x128, 24)
	if _, err := f.domains.get(domain); err != nil {
		return err
	}
	return c.created(f.tiss.add(tis{domain: domain}))
}

func (f *firmware) allocXRCD(c *call) error {
	x, err := f.rdma.ctx.OpenXRCD()
	if err != nil {
		return err
	}
	f.rdma.ctx.AddXRCD(x)
	f.xrcds[x.Number()] = x
	return c.created(x.Number(), nil)
}

func (f *firmware) deallocXRCD(c *call) error {
	x := f.xrcds[c.number()]
	if x == nil {
		return failure.New("DEALLOC_XRCD", syscall.ENOENT, "XRC domain %#x does not exist", c.number())
	}
	if err := x.Close(); err != nil {
		return err
	}
	delete(f.xrcds, x.Number())
	f.rdma.ctx.RemoveXRCD(x)
	return nil
}
