package pci

import "encoding/binary"

var (
	le = binary.LittleEndian
	be = binary.BigEndian
)

// The configuration space.
const (
	configSize    = 4096
	configCommand = 0x04
	commandMaster = 1 << 2 // Bus Master Enable
	capPCIe       = 0x60
	capMSIX       = 0x9c

	// VendorID and DeviceVF identify the function. A physical function is not emulated: its driver
	// fills a cache of 6,124 memory keys at each start.
	VendorID = 0x15b3
	DeviceVF = 0x101e // ConnectX family virtual function
)

// configSpace is the configuration space of a function.
type configSpace struct {
	b        [configSize]byte
	writable [configSize]byte // mask of the bits that the guest may change
}

func (c *configSpace) init(vectors int) {
	*c = configSpace{}
	set16 := func(off int, v uint16) { le.PutUint16(c.b[off:], v) }
	set32 := func(off int, v uint32) { le.PutUint32(c.b[off:], v) }
	set16(0x00, VendorID)
	set16(0x02, DeviceVF)
	set16(0x06, 1<<4)       // status: there are capabilities
	set32(0x08, 0x02000000) // Ethernet controller, revision 0
	set32(0x10, 0xc)        // BAR 0: memory, 64 bits, prefetchable
	set16(0x2c, VendorID)
	set16(0x2e, 0x0016)
	c.b[0x34] = capPCIe

	c.b[capPCIe], c.b[capPCIe+1] = 0x10, capMSIX
	set16(capPCIe+0x02, 2)
	set32(capPCIe+0x04, 0x10008fe0) // with function level reset
	set32(capPCIe+0x0c, 0x843)
	set16(capPCIe+0x12, 0x1043)

	c.b[capMSIX] = 0x11
	set16(capMSIX+2, uint16(vectors-1))
	set32(capMSIX+4, barMSIXTable) // in BAR 0
	set32(capMSIX+8, barMSIXPending)

	allow := func(off int, mask uint32) { le.PutUint32(c.writable[off:], mask) }
	allow(configCommand, 0x0547)       // memory, bus master, parity, SERR, INTx disable
	allow(0x10, ^uint32(barSize-1))    // BAR 0: a power of two
	allow(0x14, ^uint32(0))            //
	allow(0x3c, 0xff)                  // interrupt line
	allow(capPCIe+0x08, 0x0000ffff)    // device control
	allow(capPCIe+0x10, 0x0000ffff)    // link control
	allow(capPCIe+0x28, 0x0000ffff)    // device control 2
	allow(capMSIX, uint32(0xc000)<<16) // MSI-X: enable and mask
}

func (c *configSpace) read(off int, b []byte) { copy(b, c.b[off:]) }

func (c *configSpace) write(off int, b []byte) {
	for i, v := range b {
		mask := c.writable[off+i]
		c.b[off+i] = c.b[off+i]&^mask | v&mask
	}
}

// master reports whether the function may access memory.
func (c *configSpace) master() bool { return c.b[configCommand]&commandMaster != 0 }

const flrBit = 1 << 7 // of the high byte of PCIe's device control: initiate a function level reset

// resets reports whether a write initiates a function level reset. The bit reads as 0.
func (c *configSpace) resets() bool {
	b := &c.b[capPCIe+0x09]
	asked := *b&flrBit != 0
	*b &^= flrBit
	return asked
}
