package nvme

// Controller is what a controller says of itself (Base 5.15.2.2, Fabrics 4.1).
type Controller struct {
	Serial, Model, Firmware string
	Subsystem               string // SUBNQN
	ID                      uint16 // CNTLID
	Discovery               bool   // a discovery controller
	MDTS                    uint8  // largest transfer: 4096 bytes times 2 to the power of MDTS
	MaxEvents               uint8  // asynchronous event requests at a time
	ErrorEntries            uint8  // entries of the error log
	MaxCommands             uint16 // of a queue
	KeepAlive               uint16 // granularity in units of 100 ms
	Namespaces              uint32 // largest identifier
	CapsuleData             int    // bytes of data in a command capsule
	Optional                uint16 // ONCS
	Warning, Critical       uint16 // WCTEMP and CCTEMP, in kelvins
}

// Bits of Controller.Optional.
const (
	HasCompare           = 1 << 0
	HasDatasetManagement = 1 << 2
	HasWriteZeroes       = 1 << 3
	HasVerify            = 1 << 7
)

// Append appends the structure's 4096 bytes.
func (c *Controller) Append(dst []byte) []byte {
	b := make([]byte, IdentifySize)
	pad(b[4:24], c.Serial)
	pad(b[24:64], c.Model)
	pad(b[64:72], c.Firmware)
	b[76] = 1<<0 | 1<<1 // CMIC: several ports and controllers
	b[77] = c.MDTS
	le.PutUint16(b[78:], c.ID)
	le.PutUint32(b[80:], Version)
	le.PutUint32(b[96:], 1<<0) // CTRATT: host identifiers of 128 bits
	b[111] = 1                 // CNTRLTYPE: I/O
	b[258] = 3                 // ACL: 4 abort commands at a time
	b[259] = c.MaxEvents - 1
	b[261] = 1<<1 | 1<<2 // LPA: effects log; offsets in log pages
	b[262] = c.ErrorEntries - 1
	le.PutUint16(b[266:], c.Warning)
	le.PutUint16(b[268:], c.Critical)
	le.PutUint16(b[320:], c.KeepAlive)
	b[512], b[513] = 0x66, 0x44 // SQES, CQES: 64 and 16 bytes
	le.PutUint16(b[514:], c.MaxCommands)
	le.PutUint32(b[516:], c.Namespaces)
	le.PutUint16(b[520:], c.Optional)
	b[525] = 1<<0 | 3<<1                         // VWC: there is a write cache; a flush may name all namespaces
	le.PutUint32(b[536:], 1<<0|1<<2|1<<18|1<<20) // SGLS: SGLs; keyed blocks; longer than the data; offsets
	copy(b[768:1024], c.Subsystem)
	le.PutUint32(b[1792:], uint32(CommandSize+c.CapsuleData)/16) // IOCCSZ
	le.PutUint32(b[1796:], CompletionSize/16)                    // IORCSZ
	b[1803] = 1                                                  // MSDBD: one descriptor
	le.PutUint16(b[1804:], 1<<0)                                 // OFCS: Disconnect
	if c.Discovery {
		b[111] = 2
		b[525] = 0
	}
	return append(dst, b...)
}

// AppendLimits appends what a controller says of its NVM command set, 4096 bytes (NVM 4.1.5.2). most is the number of
// blocks that one Dataset Management deallocates.
func AppendLimits(dst []byte, most uint32) []byte {
	b := make([]byte, IdentifySize)
	le.PutUint32(b[4:], most)         // DMRSL: blocks of a range
	le.PutUint64(b[8:], uint64(most)) // DMSL: blocks of all ranges
	return append(dst, b...)
}

// Namespace is what a controller says of a namespace (NVM 4.1.5.1).
type Namespace struct {
	Blocks    uint64
	BlockBits uint8 // LBADS: a block has 2 to the power of it bytes
	Metadata  uint16
	PIType    uint8 // 0: none
	ReadOnly  bool
	NGUID     [16]byte
}

// Append appends the structure's 4096 bytes. A namespace has one format, whose metadata, if any, are
// protection information and follow their block.
func (n *Namespace) Append(dst []byte) []byte {
	b := make([]byte, IdentifySize)
	for _, off := range []int{0, 8, 16} { // NSZE, NCAP, NUSE
		le.PutUint64(b[off:], n.Blocks)
	}
	b[30] = 1 << 0 // NMIC: several controllers
	b[33] = 1 << 4 // DLFEAT: deallocated blocks have the guard of their data, which is not known before
	if n.Metadata > 0 {
		b[26], b[27] = 1<<4, 1<<0 // FLBAS, MC: metadata follow the block
	}
	if n.PIType > 0 {
		b[28] = 1<<(n.PIType-1) | 1<<4 // DPC: the type; the last bytes of the metadata
		b[29] = n.PIType
	}
	if n.ReadOnly {
		b[99] = 1 // NSATTR: write protected
	}
	copy(b[104:], n.NGUID[:])
	le.PutUint16(b[128:], n.Metadata)
	b[130] = n.BlockBits
	return append(dst, b...)
}

// AppendList appends a list of namespace identifiers above after, 4096 bytes (Base 5.15.2.4).
func AppendList(dst []byte, ids []uint32, after uint32) []byte {
	b := make([]byte, IdentifySize)
	i := 0
	for _, id := range ids {
		if id > after && i < IdentifySize/4 {
			le.PutUint32(b[4*i:], id)
			i++
		}
	}
	return append(dst, b...)
}

// AppendDescriptors appends the identification descriptors of a namespace, 4096 bytes: NGUID and UUID,
// which are the same here, and the command set (Base 5.15.2.5).
func AppendDescriptors(dst []byte, id [16]byte) []byte {
	b := make([]byte, 0, IdentifySize)
	for _, kind := range []byte{2, 3} {
		b = append(b, kind, 16, 0, 0)
		b = append(b, id[:]...)
	}
	b = append(b, 4, 1, 0, 0, 0)
	return append(dst, b[:IdentifySize]...)
}
