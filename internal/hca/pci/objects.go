package pci

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

var _ = register(map[prm.Command]handler{
	prm.CmdAllocQCounter:   (*firmware).allocCounter,
	prm.CmdDeallocQCounter: func(f *firmware, c *call) error { _, err := f.counters.remove(c.in32(0x58, 8)); return err },
	prm.CmdQueryQCounter:   (*firmware).queryCounter,
	prm.CmdCreateUser:      (*firmware).createUser,
	prm.CmdDestroyUser:     func(f *firmware, c *call) error { _, err := f.users.remove(c.in32(0x50, 16)); return err },
	prm.CmdCreateTIS:       (*firmware).createTIS,
	prm.CmdModifyTIS:       func(f *firmware, c *call) error { _, err := f.tiss.get(c.number()); return err },
	prm.CmdDestroyTIS:      func(f *firmware, c *call) error { _, err := f.tiss.remove(c.number()); return err },
})

// createUser makes a user: a program whose commands the driver executes.
func (f *firmware) createUser(c *call) error {
	n, err := f.users.add(struct{}{})
	c.set(0x50, 16, uint64(n))
	return err
}

const tisContext = 0x100 // in CREATE_TIS, in bits

func (f *firmware) createTIS(c *call) error {
	if err := f.needDomain(c.in32(tisContext+0x128, 24)); err != nil {
		return err
	}
	return c.created(f.tiss.add(struct{}{}))
}

// needDomain refuses a queue in a transport domain that does not exist.
func (f *firmware) needDomain(number uint32) error {
	if !f.rdma.ctx.HasDomain(number) {
		return failure.New("find", syscall.ENOENT, "transport domain %#x does not exist", number)
	}
	return nil
}
