package prm

import (
	"fmt"
	"slices"
)

// Command is the opcode of a command.
type Command uint16

// The commands that the adapter supports, and those that the kernel's DEVX interface lets
// programs execute beside them.
const (
	CmdQueryHCACap       Command = 0x100
	CmdQueryAdapter      Command = 0x101
	CmdQueryISSI         Command = 0x10a
	CmdCreateMKey        Command = 0x200
	CmdQueryMKey         Command = 0x201
	CmdDestroyMKey       Command = 0x202
	CmdQuerySpecial      Command = 0x203
	CmdCreateCQ          Command = 0x400
	CmdDestroyCQ         Command = 0x401
	CmdQueryCQ           Command = 0x402
	CmdModifyCQ          Command = 0x403
	CmdCreateQP          Command = 0x500
	CmdDestroyQP         Command = 0x501
	CmdRst2InitQP        Command = 0x502
	CmdInit2RTRQP        Command = 0x503
	CmdRTR2RTSQP         Command = 0x504
	CmdRTS2RTSQP         Command = 0x505
	CmdSQErr2RTSQP       Command = 0x506
	CmdToErrQP           Command = 0x507
	CmdToRstQP           Command = 0x50a
	CmdQueryQP           Command = 0x50b
	CmdSQD2RTSQP         Command = 0x50c
	CmdInit2InitQP       Command = 0x50e
	CmdCreatePSV         Command = 0x600
	CmdDestroyPSV        Command = 0x601
	CmdCreateXRCSRQ      Command = 0x705
	CmdDestroyXRCSRQ     Command = 0x706
	CmdQueryXRCSRQ       Command = 0x707
	CmdArmXRCSRQ         Command = 0x708
	CmdCreateDCT         Command = 0x710
	CmdDestroyDCT        Command = 0x711
	CmdDrainDCT          Command = 0x712
	CmdQueryDCT          Command = 0x713
	CmdQueryVPortState   Command = 0x750
	CmdQueryESWContext   Command = 0x752
	CmdQueryNICVPort     Command = 0x754
	CmdQueryRoCEAddress  Command = 0x760
	CmdQueryHCAVPort     Command = 0x762
	CmdQueryVNICEnv      Command = 0x76f
	CmdQueryVPortCounter Command = 0x770
	CmdQueryQCounter     Command = 0x773
	CmdAllocPD           Command = 0x800
	CmdDeallocPD         Command = 0x801
	CmdAccessReg         Command = 0x805
	CmdAttachMCG         Command = 0x806
	CmdDetachMCG         Command = 0x807
	CmdNop               Command = 0x80d
	CmdAllocDomain       Command = 0x816
	CmdDeallocDomain     Command = 0x817
	CmdQueryCongStatus   Command = 0x822
	CmdQueryCongParams   Command = 0x824
	CmdQueryCongStats    Command = 0x826
	CmdQueryLAG          Command = 0x842
	CmdCreateRMP         Command = 0x90c
	CmdModifyRMP         Command = 0x90d
	CmdDestroyRMP        Command = 0x90e
	CmdQueryRMP          Command = 0x90f
	CmdCreateObject      Command = 0xa00
	CmdModifyObject      Command = 0xa01
	CmdQueryObject       Command = 0xa02
	CmdDestroyObject     Command = 0xa03
	CmdCreateUmem        Command = 0xa08
	CmdDestroyUmem       Command = 0xa0a

	CommandHeaderSize = 16 // of every command and answer
)

var commandNames = map[Command]string{
	CmdQueryHCACap: "QUERY_HCA_CAP", CmdQueryAdapter: "QUERY_ADAPTER", CmdQueryISSI: "QUERY_ISSI",
	CmdCreateMKey: "CREATE_MKEY", CmdQueryMKey: "QUERY_MKEY", CmdDestroyMKey: "DESTROY_MKEY", CmdQuerySpecial: "QUERY_SPECIAL_CONTEXTS",
	CmdCreateCQ: "CREATE_CQ", CmdDestroyCQ: "DESTROY_CQ", CmdQueryCQ: "QUERY_CQ", CmdModifyCQ: "MODIFY_CQ",
	CmdCreateQP: "CREATE_QP", CmdDestroyQP: "DESTROY_QP", CmdRst2InitQP: "RST2INIT_QP", CmdInit2RTRQP: "INIT2RTR_QP", CmdRTR2RTSQP: "RTR2RTS_QP",
	CmdRTS2RTSQP: "RTS2RTS_QP", CmdSQErr2RTSQP: "SQERR2RTS_QP", CmdSQD2RTSQP: "SQD_RTS_QP", CmdToErrQP: "2ERR_QP", CmdToRstQP: "2RST_QP", CmdQueryQP: "QUERY_QP", CmdInit2InitQP: "INIT2INIT_QP",
	CmdCreatePSV: "CREATE_PSV", CmdDestroyPSV: "DESTROY_PSV", CmdCreateXRCSRQ: "CREATE_XRC_SRQ", CmdDestroyXRCSRQ: "DESTROY_XRC_SRQ", CmdQueryXRCSRQ: "QUERY_XRC_SRQ", CmdArmXRCSRQ: "ARM_XRC_SRQ",
	CmdCreateDCT: "CREATE_DCT", CmdDestroyDCT: "DESTROY_DCT", CmdDrainDCT: "DRAIN_DCT", CmdQueryDCT: "QUERY_DCT", CmdQueryVPortState: "QUERY_VPORT_STATE", CmdQueryESWContext: "QUERY_ESW_VPORT_CONTEXT",
	CmdQueryNICVPort: "QUERY_NIC_VPORT_CONTEXT", CmdQueryRoCEAddress: "QUERY_ROCE_ADDRESS", CmdQueryHCAVPort: "QUERY_HCA_VPORT_CONTEXT",
	CmdQueryVNICEnv: "QUERY_VNIC_ENV", CmdQueryVPortCounter: "QUERY_VPORT_COUNTER", CmdQueryQCounter: "QUERY_Q_COUNTER",
	CmdAllocPD: "ALLOC_PD", CmdDeallocPD: "DEALLOC_PD", CmdAccessReg: "ACCESS_REG", CmdAttachMCG: "ATTACH_TO_MCG", CmdDetachMCG: "DETACH_FROM_MCG", CmdNop: "NOP",
	CmdAllocDomain: "ALLOC_TRANSPORT_DOMAIN", CmdDeallocDomain: "DEALLOC_TRANSPORT_DOMAIN",
	CmdQueryCongStatus: "QUERY_CONG_STATUS", CmdQueryCongParams: "QUERY_CONG_PARAMS", CmdQueryCongStats: "QUERY_CONG_STATISTICS", CmdQueryLAG: "QUERY_LAG",
	CmdCreateRMP: "CREATE_RMP", CmdModifyRMP: "MODIFY_RMP", CmdDestroyRMP: "DESTROY_RMP", CmdQueryRMP: "QUERY_RMP",
	CmdCreateObject: "CREATE_GENERAL_OBJECT", CmdModifyObject: "MODIFY_GENERAL_OBJECT", CmdQueryObject: "QUERY_GENERAL_OBJECT", CmdDestroyObject: "DESTROY_GENERAL_OBJECT",
	CmdCreateUmem: "CREATE_UMEM", CmdDestroyUmem: "DESTROY_UMEM",
}

// String returns the command's name.
func (c Command) String() string {
	if s, ok := commandNames[c]; ok {
		return s
	}
	if s, ok := kernelNames[c]; ok {
		return s
	}
	return fmt.Sprintf("command(%#x)", uint16(c))
}

// CommandStatus is the status of an answer.
type CommandStatus uint8

// The statuses.
const (
	CmdOK             CommandStatus = 0x00
	CmdInternalErr    CommandStatus = 0x01
	CmdBadOp          CommandStatus = 0x02
	CmdBadParam       CommandStatus = 0x03
	CmdBadSystemState CommandStatus = 0x04
	CmdBadResource    CommandStatus = 0x05
	CmdResourceBusy   CommandStatus = 0x06
	CmdExceedLimit    CommandStatus = 0x08
	CmdBadResState    CommandStatus = 0x09
	CmdBadIndex       CommandStatus = 0x0a
	CmdNoResources    CommandStatus = 0x0f
	CmdBadQPState     CommandStatus = 0x10
	CmdBadInputLen    CommandStatus = 0x50
	CmdBadOutputLen   CommandStatus = 0x51
)

// Answer returns an empty answer to a command, of n bytes but at least as long as the
// header.
func Answer(n int, status CommandStatus, syndrome uint32) []byte {
	out := make([]byte, max(n, CommandHeaderSize))
	out[0] = uint8(status)
	be.PutUint32(out[4:], syndrome)
	return out[:n]
}

// OpcodeOf returns the opcode of a command and its modifier.
func OpcodeOf(in []byte) (c Command, mod uint16) {
	return Command(Bits(in, 0, 16)), uint16(Bits(in, 0x30, 16))
}

var statusNames = map[CommandStatus]string{
	CmdOK: "OK", CmdInternalErr: "INTERNAL_ERR", CmdBadOp: "BAD_OP", CmdBadParam: "BAD_PARAM", CmdBadSystemState: "BAD_SYS_STATE", CmdBadResource: "BAD_RESOURCE",
	CmdResourceBusy: "RESOURCE_BUSY", CmdExceedLimit: "EXCEED_LIM", CmdBadResState: "BAD_RES_STATE", CmdBadIndex: "BAD_INDEX", CmdNoResources: "NO_RESOURCES",
	CmdBadQPState: "BAD_QP_STATE", CmdBadInputLen: "BAD_INPUT_LEN", CmdBadOutputLen: "BAD_OUTPUT_LEN",
}

// String returns the status's name in the driver, without its prefix.
func (s CommandStatus) String() string {
	if n, ok := statusNames[s]; ok {
		return n
	}
	return fmt.Sprintf("status(%#x)", uint8(s))
}

// NumberOf returns the number of the object that a command names or an answer has: a QP, CQ,
// RMP, PD, umem or PSV, or the index of a memory key.
func NumberOf(b []byte) uint32 { return uint32(Bits(b, 0x48, 24)) }

// PutNumber writes the number of a new object to an answer, or of an object to a command.
func PutNumber(b []byte, n uint32) { SetBits(b, 0x48, 24, uint64(n)) }

// GroupOf returns the GID of the multicast group that ATTACH_TO_MCG or DETACH_FROM_MCG names.
func GroupOf(in []byte) [16]byte { return [16]byte(in[0x10:0x20]) }

// PutCommand writes the opcode of a command, and its modifier.
func PutCommand(in []byte, c Command, mod uint16) {
	SetBits(in, 0, 16, uint64(c))
	SetBits(in, 0x30, 16, uint64(mod))
}

// StatusOf returns the status and the syndrome of an answer.
func StatusOf(out []byte) (CommandStatus, uint32) {
	return CommandStatus(Bits(out, 0, 8)), uint32(Bits(out, 32, 32))
}

// destroys maps each command that creates an object to the command that destroys it.
var destroys = map[Command]Command{
	CmdCreateMKey: CmdDestroyMKey, CmdCreateCQ: CmdDestroyCQ, CmdCreateQP: CmdDestroyQP, CmdCreatePSV: CmdDestroyPSV, CmdCreateRMP: CmdDestroyRMP,
	CmdCreateDCT: CmdDestroyDCT, CmdCreateObject: CmdDestroyObject, CmdAllocPD: CmdDeallocPD, CmdCreateUmem: CmdDestroyUmem,
	CmdAllocDomain: CmdDeallocDomain,
}

// Destruction is a command that destroys an object.
type Destruction struct {
	Command Command
	Type    uint16 // of a general object
	Number  uint32
}

// DestructionOf returns the command that destroys the object that the command in has created
// with the answer out. ok is false for a command that creates nothing.
func DestructionOf(in, out []byte) (d Destruction, ok bool) {
	c, mod := OpcodeOf(in)
	if d.Command, ok = destroys[c]; !ok {
		return d, false
	}
	switch c {
	case CmdCreateObject:
		d.Type, d.Number = mod, uint32(Bits(out, 0x40, 32))
	case CmdCreatePSV:
		d.Number = uint32(Bits(out, 0x88, 24))
	default:
		d.Number = NumberOf(out)
	}
	return d, true
}

// Put encodes the command.
func (d *Destruction) Put(in []byte) {
	PutCommand(in, d.Command, d.Type)
	if d.Command == CmdDestroyObject {
		SetBits(in, 0x40, 32, uint64(d.Number))
	} else {
		PutNumber(in, d.Number)
	}
}

// Names reports whether a command that changes or queries an object names this one.
func (d *Destruction) Names(in []byte) bool {
	if d.Command == CmdDestroyObject {
		h := ParseObject(in)
		return h.ID == d.Number && h.Type == d.Type
	}
	return NumberOf(in) == d.Number
}

// otherCreations are commands that DEVX lets programs execute and that the adapter does not
// have for them: of XRC, Ethernet, multicast and flow steering, for example CREATE_SQ.
var otherCreations = [...]Command{
	0x700, 0x705, 0x717, 0x771, 0x782, CmdAttachMCG, 0x80e, 0x825, 0x827, 0x829, 0x900, 0x904, 0x908, 0x912, 0x916, 0x930, 0x933, 0x936, 0x939, 0x93d, 0x940,
}

// Creates reports whether DEVX executes the command to create an object with a handle.
func (c Command) Creates() bool {
	_, ok := destroys[c]
	return ok && c != CmdCreateUmem || slices.Contains(otherCreations[:], c)
}

// Changes reports whether DEVX executes the command on the handle of an object and changes
// the object.
func (c Command) Changes() bool {
	switch c {
	case CmdModifyCQ, CmdRst2InitQP, CmdInit2RTRQP, CmdRTR2RTSQP, CmdRTS2RTSQP, CmdSQErr2RTSQP, CmdToErrQP, CmdToRstQP, CmdInit2InitQP, CmdModifyRMP, CmdModifyObject, CmdDrainDCT:
		return true
	}
	return false
}

// Queries reports whether DEVX executes the command on the handle of an object, without
// changing it.
func (c Command) Queries() bool {
	switch c {
	case CmdQueryMKey, CmdQueryCQ, CmdQueryQP, CmdQueryRMP, CmdQueryObject, CmdQueryDCT:
		return true
	}
	return false
}

// OfQP reports whether the command changes or queries a QP, of which a DCT is one.
func (c Command) OfQP() bool {
	return c>>8 == CmdCreateQP>>8 || c == CmdQueryDCT || c == CmdDrainDCT
}

// OfCQ reports whether the command changes or queries a CQ.
func (c Command) OfCQ() bool { return c>>8 == CmdCreateCQ>>8 }

// General reports whether DEVX executes the command without an object.
func (c Command) General() bool {
	switch c {
	case CmdQueryHCACap, CmdQueryAdapter, CmdQueryISSI, CmdQuerySpecial, CmdQueryVPortState, CmdQueryESWContext, CmdQueryNICVPort, CmdQueryRoCEAddress,
		CmdQueryHCAVPort, CmdQueryVNICEnv, CmdQueryVPortCounter, CmdQueryQCounter, CmdAccessReg, CmdNop, CmdQueryCongStatus, CmdQueryCongParams,
		CmdQueryCongStats, CmdQueryLAG:
		return true
	}
	return false
}

// PutRoCEEnabled writes that RoCE is enabled to the answer of QUERY_NIC_VPORT_CONTEXT.
func PutRoCEEnabled(out []byte) { SetBits(out, 0x80+0x1f, 1, 1) }

// PutStatus writes the status and the syndrome of an answer.
func PutStatus(out []byte, st CommandStatus, syndrome uint32) {
	SetBits(out, 0, 8, uint64(st))
	SetBits(out, 32, 32, uint64(syndrome))
}
