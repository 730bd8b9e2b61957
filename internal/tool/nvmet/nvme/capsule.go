package nvme

import "fmt"

// Command is a submission queue entry (Base 4.2, Fabrics 2.2).
type Command struct {
	Opcode Opcode
	Flags  uint8 // fused operation, and whether there are PRPs or SGLs
	ID     uint16
	NSID   uint32 // of a fabrics command: byte 0 is the type
	SGL    SGL
	DW     [6]uint32 // command dwords 10 to 15
}

// Fused returns the fused operation, 0 if there is none.
func (c *Command) Fused() uint8 { return c.Flags & 3 }

// UsesSGL reports whether the command's data pointer is an SGL, as it must be over fabrics.
func (c *Command) UsesSGL() bool { return c.Flags>>6 == 1 }

// FabricsType returns the type of a fabrics command.
func (c *Command) FabricsType() uint8 { return uint8(c.NSID) }

// ParseCommand reads the command at the beginning of a capsule.
func ParseCommand(b []byte) (c Command, err error) {
	if len(b) < CommandSize {
		return c, fmt.Errorf("a command capsule of %d bytes: must have at least %d", len(b), CommandSize)
	}
	c = Command{Opcode: Opcode(b[0]), Flags: b[1], ID: le.Uint16(b[2:]), NSID: le.Uint32(b[4:]), SGL: parseSGL(b[24:])}
	for i := range c.DW {
		c.DW[i] = le.Uint32(b[40+4*i:])
	}
	return c, nil
}

// Append appends the command's 64 bytes.
func (c *Command) Append(b []byte) []byte {
	var e [CommandSize]byte
	e[0], e[1] = byte(c.Opcode), c.Flags
	le.PutUint16(e[2:], c.ID)
	le.PutUint32(e[4:], c.NSID)
	c.SGL.put(e[24:])
	for i, v := range c.DW {
		le.PutUint32(e[40+4*i:], v)
	}
	return append(b, e[:]...)
}

// The types and subtypes of SGL descriptors that RDMA uses (Base 4.4, Fabrics 2.3).
const (
	DataBlock  = 0x0
	KeyedBlock = 0x4

	Address    = 0x0
	Offset     = 0x1 // the address is an offset in the capsule's data
	Invalidate = 0xf // the key is invalidated with the response
)

// SGL is an SGL descriptor.
type SGL struct {
	Type, Subtype uint8
	Addr          uint64
	Length        uint32 // of a keyed block: 24 bits
	Key           uint32 // of a keyed block
}

func parseSGL(b []byte) SGL {
	s := SGL{Type: b[15] >> 4, Subtype: b[15] & 15, Addr: le.Uint64(b), Length: le.Uint32(b[8:])}
	if s.Type == KeyedBlock {
		s.Length &= 1<<24 - 1
		s.Key = le.Uint32(b[11:])
	}
	return s
}

func (s *SGL) put(b []byte) {
	le.PutUint64(b, s.Addr)
	le.PutUint32(b[8:], s.Length)
	if s.Type == KeyedBlock {
		le.PutUint32(b[11:], s.Key)
	}
	b[15] = s.Type<<4 | s.Subtype
}

// Completion is a completion queue entry (Base 4.6).
type Completion struct {
	Result uint64 // dwords 0 and 1
	SQHead uint16
	ID     uint16
	Status Status
}

// Append appends the completion's 16 bytes.
func (c *Completion) Append(b []byte) []byte {
	b = le.AppendUint64(b, c.Result)
	b = le.AppendUint16(b, c.SQHead)
	b = le.AppendUint16(b, 0) // SQID, reserved over fabrics
	b = le.AppendUint16(b, c.ID)
	return le.AppendUint16(b, uint16(c.Status)<<1)
}

// RW has the fields of the commands that name a range of blocks (NVM 3.2).
type RW struct {
	SLBA    uint64
	Blocks  uint32 // number of blocks; the field NLB counts from 0
	PRInfo  uint8  // bit 3 PRACT; bits 2 to 0 PRCHK: guard, application tag, reference tag
	FUA     bool
	RefTag  uint32 // initial or expected initial logical block reference tag
	AppTag  uint16 // logical block application tag, or the expected one
	AppMask uint16
}

// Bits of RW.PRInfo.
const (
	PRAct   = 1 << 3
	PRGuard = 1 << 2
	PRApp   = 1 << 1
	PRRef   = 1 << 0
)

// RW returns the fields of a command that names a range of blocks.
func (c *Command) RW() RW {
	return RW{
		SLBA: uint64(c.DW[1])<<32 | uint64(c.DW[0]), Blocks: c.DW[2]&0xffff + 1,
		PRInfo: uint8(c.DW[2]>>26) & 15, FUA: c.DW[2]>>30&1 == 1,
		RefTag: c.DW[4], AppTag: uint16(c.DW[5]), AppMask: uint16(c.DW[5] >> 16),
	}
}

// Range is an entry of Dataset Management (NVM 3.2.3).
type Range struct {
	Blocks uint32
	SLBA   uint64
}

// ParseRange reads an entry.
func ParseRange(b []byte) Range { return Range{le.Uint32(b[4:]), le.Uint64(b[8:])} }

// ConnectCommand has the fields of Connect (Fabrics 3.3).
type ConnectCommand struct {
	Format     uint16
	QID        uint16
	SQSize     uint16 // counts from 0
	Attributes uint8
	KATO       uint32 // keep alive timeout in milliseconds
}

// NoFlowControl is the bit of ConnectCommand.Attributes that turns SQ flow control off.
const NoFlowControl = 1 << 2

// Connect returns the fields of Connect.
func (c *Command) Connect() ConnectCommand {
	return ConnectCommand{
		Format: uint16(c.DW[0]), QID: uint16(c.DW[0] >> 16), SQSize: uint16(c.DW[1]), Attributes: uint8(c.DW[1] >> 16), KATO: c.DW[2],
	}
}

// ConnectData is the data of Connect (Fabrics 3.3).
type ConnectData struct {
	HostID    [16]byte
	CNTLID    uint16 // AnyController: the target chooses
	Subsystem string // SUBNQN
	Host      string // HOSTNQN
}

// AnyController is the controller identifier of a host that takes any.
const AnyController = 0xffff

// ParseConnectData reads the data of Connect.
func ParseConnectData(b []byte) (d ConnectData, err error) {
	if len(b) < ConnectDataSize {
		return d, fmt.Errorf("data of %d bytes: Connect has %d", len(b), ConnectDataSize)
	}
	d = ConnectData{CNTLID: le.Uint16(b[16:]), Subsystem: cString(b[256:512]), Host: cString(b[512:768])}
	copy(d.HostID[:], b)
	return d, nil
}

// Offsets in the data and in the command of Connect, for the result of one that was refused.
const (
	ConnectDataCNTLID  = 16
	ConnectDataSUBNQN  = 256
	ConnectDataHOSTNQN = 512
	ConnectQID         = 42
	ConnectSQSize      = 44
)

// Invalid returns the result of a Connect that was refused with InvalidParameters: the offset of the
// invalid field in the data, or in the command.
func Invalid(inData bool, offset int) uint64 {
	if inData {
		return 1<<16 | uint64(offset)
	}
	return uint64(offset)
}

// Property has the fields of Property Get and Property Set (Fabrics 3.5, 3.6).
type Property struct {
	Size8  bool // 8 bytes instead of 4
	Offset uint32
	Value  uint64
}

// Property returns the fields of Property Get and Property Set.
func (c *Command) Property() Property {
	return Property{Size8: c.DW[0]&7 == 1, Offset: c.DW[1], Value: uint64(c.DW[3])<<32 | uint64(c.DW[2])}
}

// LogPage has the fields of Get Log Page (Base 5.14).
type LogPage struct {
	ID     uint8
	Length uint64
	Offset uint64
}

// LogPage returns the fields of Get Log Page. Length is at most 16 GiB.
func (c *Command) LogPage() LogPage {
	dwords := uint64(c.DW[1]&0xffff)<<16 | uint64(c.DW[0]>>16)
	return LogPage{ID: uint8(c.DW[0]), Length: (dwords + 1) * 4, Offset: uint64(c.DW[3])<<32 | uint64(c.DW[2])}
}
