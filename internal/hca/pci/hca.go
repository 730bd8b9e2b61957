package pci

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/pci/ether"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// hcaState is the function as a whole: its pages and its capabilities.
type hcaState struct {
	issi  uint32
	pages []uint64 // given by the driver, and taken back by it
	caps  map[uint16][]byte
}

func newHCAState() hcaState { return hcaState{caps: map[uint16][]byte{}} }

// Numbers of pages that the function asks for: at the boot of the driver and before INIT_HCA. The
// model does not use the pages. It was not tried how drivers react if they are asked for none.
const (
	bootPages = 4
	initPages = 8
	maxPages  = 1 << 16 // that are kept
)

const psid = "SMK0000000001\x00\x00\x00" // board_id in ibv_devinfo

// Registers of ACCESS_REG.
const (
	regPMLP            = 0x5002
	regPMTU            = 0x5003
	regPTYS            = 0x5004
	regPAOS            = 0x5006
	regPFCC            = 0x5007
	regPPCNT           = 0x5008
	regNodeDescription = 0x6001
	regHostEndianness  = 0x7004
	speed100GBaseCR4   = 1 << 20
	portMTU            = 10000 // with headers, tag and FCS: the driver subtracts 22 bytes
)

var _ = register(map[prm.Command]handler{
	prm.CmdQueryHCACap:      (*firmware).queryHCACap,
	prm.CmdQueryAdapter:     (*firmware).queryAdapter,
	prm.CmdInitHCA:          func(f *firmware, c *call) error { return nil },
	prm.CmdTeardownHCA:      (*firmware).teardownHCA,
	prm.CmdEnableHCA:        (*firmware).enableHCA,
	prm.CmdDisableHCA:       (*firmware).disableHCA,
	prm.CmdQueryPages:       (*firmware).queryPages,
	prm.CmdManagePages:      (*firmware).managePages,
	prm.CmdSetHCACap:        (*firmware).setHCACap,
	prm.CmdQueryISSI:        (*firmware).queryISSI,
	prm.CmdSetISSI:          (*firmware).setISSI,
	prm.CmdSetDriverVersion: func(f *firmware, c *call) error { return nil }, // the model does not use it
	prm.CmdQuerySpecial:     (*firmware).querySpecialContexts,
	prm.CmdAllocUAR:         (*firmware).allocUAR,
	prm.CmdDeallocUAR:       (*firmware).deallocUAR,
	prm.CmdAccessReg:        (*firmware).accessReg,
	prm.CmdNop:              func(f *firmware, c *call) error { return nil },
})

func (f *firmware) enableHCA(c *call) error {
	f.destroyAll()
	f.clear()
	if err := f.rdma.open(f); err != nil {
		f.rdma.close()
		return err
	}
	f.port = ether.New(ether.Config{
		Memory: f.dev.dma, Resolve: physical(f.rdma.ctx), Transmit: f.dev.transmit, Clock: f.dev.clock,
		Trace: func(object string, number uint32, err error) { f.dev.trace(object, number, "failed", err) },
	})
	f.port.SetAddresses(f.vport.unicast)
	return nil
}

// teardownHCA destroys the objects that the driver has left. The pages stay until the driver
// takes them back.
func (f *firmware) teardownHCA(c *call) error {
	f.forget()
	return nil
}

func (f *firmware) disableHCA(c *call) error {
	f.forget()
	f.hca = newHCAState()
	return nil
}

// forget destroys all objects, except for the state of the function as a whole (hcaState).
func (f *firmware) forget() {
	hca := f.hca
	f.destroyAll()
	f.clear()
	f.hca = hca
}

func (f *firmware) queryISSI(c *call) error {
	c.set(0x50, 16, uint64(f.hca.issi))
	c.set(0x360, 32, 1<<0|1<<1)
	return nil
}

func (f *firmware) setISSI(c *call) error {
	v := c.in32(0x50, 16)
	if v > 1 {
		return failure.New("SET_ISSI", syscall.EINVAL, "interface step %d: 0 and 1 are supported", v)
	}
	f.hca.issi = v
	return nil
}

func (f *firmware) queryPages(c *call) error {
	switch c.Mod {
	case 1:
		c.set(0x60, 32, bootPages)
	case 2:
		c.set(0x60, 32, initPages)
	}
	return nil
}

// managePages takes pages from the driver, or gives them back.
func (f *firmware) managePages(c *call) error {
	const op = "MANAGE_PAGES"
	count := c.in32(0x60, 32)
	switch c.Mod {
	case 0: // the driver could not allocate the pages that it was asked for
		return nil
	case 1:
		if uint64(count) > uint64(maxPages-len(f.hca.pages)) {
			return failure.New(op, syscall.ENOMEM, "%d pages: the function keeps up to %d", count, maxPages)
		}
		pages, err := c.addresses(0x10, uint64(count))
		f.hca.pages = append(f.hca.pages, pages...)
		return err
	case 2:
		n := int(min(uint64(count), uint64(len(f.hca.pages)), uint64(len(c.Out)-0x10)/8))
		for i, page := range f.hca.pages[:n] {
			be.PutUint64(c.Out[0x10+8*i:], page)
		}
		f.hca.pages = f.hca.pages[n:]
		c.set(0x40, 32, uint64(n))
		return nil
	}
	return failure.New(op, syscall.EINVAL, "modifier %d: must be 0 (none), 1 (give) or 2 (take)", c.Mod)
}

func (f *firmware) queryAdapter(c *call) error {
	c.set(0x80+0xc8, 24, 0x2c9) // the manufacturer
	copyInto(c.Out, 0x100, []byte(psid))
	return nil
}

// copyInto copies b to an offset of an answer that may be shorter.
func copyInto(out []byte, at int, b []byte) {
	if at < len(out) {
		copy(out[at:], b)
	}
}

// Special keys. Both stand for themselves in lists of data segments.
const (
	reservedLKey  = 0x300 // physical addresses, for queues of the kernel
	terminateLKey = 0x100 // ends a list of data segments
)

func (f *firmware) querySpecialContexts(c *call) error {
	c.set(0x60, 32, reservedLKey)
	c.set(0x80, 32, terminateLKey)
	c.set(0xa0, 32, terminateLKey)
	return nil
}

// accessReg reads or writes a register of the port. The answer has the data of the command,
// with the fields that the port knows better.
func (f *firmware) accessReg(c *call) error {
	const op = "ACCESS_REG"
	id, read := c.in32(0x50, 16), c.Mod == 1
	copyInto(c.Out, 0x10, c.In[0x10:])
	set := func(off, n int, v uint64) { c.set(0x80+off, n, v) }
	switch id {
	case regHostEndianness, regNodeDescription:
		return nil
	case regPFCC: // pause frames: none are sent or obeyed, and a virtual function cannot change that
		clear(c.Out[min(0x18, len(c.Out)):])
	case regPMLP: // lanes of the port: none, because a virtual function has no module
		clear(c.Out[min(0x14, len(c.Out)):])
	case regPTYS:
		for _, off := range []int{0x60, 0xc0, 0x120} { // supported, admitted, in use
			set(off, 32, speed100GBaseCR4)
		}
	case regPMTU:
		if mtu := c.in32(0x80+0x40, 16); !read {
			if mtu > portMTU {
				return failure.New(op, syscall.EINVAL, "an MTU of %d bytes: at most %d", mtu, portMTU)
			}
			f.vport.mtu = mtu
		}
		set(0x20, 16, portMTU)
		set(0x40, 16, uint64(f.vport.mtu))
		set(0x60, 16, uint64(f.vport.mtu))
	case regPAOS:
		set(0x1c, 4, 1) // up
	case regPPCNT:
		f.putPortCounters(c)
	default:
		return failure.New(op, syscall.EINVAL, "register %#x is not supported", id)
	}
	return nil
}

// allocUAR gives a page of BAR 0 away.
func (f *firmware) allocUAR(c *call) error {
	n, err := f.uars.add(nil)
	if err != nil {
		return err
	}
	// Doorbells are delivered one by one: the adapter never looks at the page.
	u, err := f.rdma.ctx.NewUAR(n, make([]byte, prm.UARSize))
	f.uars.objects[n] = u
	return c.created(n, err)
}

func (f *firmware) deallocUAR(c *call) error {
	u, err := f.uars.remove(c.number())
	if err != nil {
		return err
	}
	return u.Close()
}
