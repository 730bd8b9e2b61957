package prm

import "fmt"

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

// Call is a command that is being executed. Out is the answer, zeroed; it has at least
// CommandHeaderSize bytes.
type Call struct {
	Command Command
	Mod     uint16 // op_mod, whose meaning depends on Command
	UID     uint16 // the user that the command is executed for; 0: the owner of the context
	In, Out []byte
}

// May reports whether the caller may use an object. owner is the UID of the command that made it.
func (x *Call) May(owner uint16) bool { return x.UID == 0 || x.UID == owner }

// Destruction is a command that destroys an object. It names an object among all that commands made.
type Destruction struct {
	Command Command
	Type    uint16 // of a general object
	Number  uint32
}

// ParseDestruction decodes a command that destroys, changes or queries an object: c is the
// command that destroys the object.
func ParseDestruction(c Command, in []byte) Destruction {
	if c == CmdDestroyObject {
		_, typ := OpcodeOf(in)
		return Destruction{c, typ, ObjectIDOf(in)}
	}
	return Destruction{c, 0, NumberOf(in)}
}

// Objects returns the number of objects that a command makes: 0 if it makes none, and more than one only for PSVs.
func Objects(in []byte) int {
	c, _ := OpcodeOf(in)
	switch {
	case c == CmdCreatePSV:
		return ParseCreatePSV(in).Count
	case c.Spec().Does == Makes:
		return 1
	}
	return 0
}

// DestructionOf returns the command that destroys object i of those that the command in has
// made with the answer out. ok is false if no command does that alone.
func DestructionOf(in, out []byte, i int) (d Destruction, ok bool) {
	c, mod := OpcodeOf(in)
	switch d.Command = c.Spec().Destroyer; c {
	case CmdCreateObject:
		d.Type, d.Number = mod, ObjectIDOf(out)
	case CmdCreatePSV:
		d.Number = uint32(Bits(out, 0x88+32*i, 24))
	default:
		d.Number = NumberOf(out)
	}
	return d, d.Command != 0
}

// Put encodes the command.
func (d *Destruction) Put(in []byte) {
	PutCommand(in, d.Command, d.Type)
	if d.Command == CmdDestroyObject {
		PutObjectID(in, d.Number)
	} else {
		PutNumber(in, d.Number)
	}
}

// PutRoCEEnabled writes that RoCE is enabled to the answer of QUERY_NIC_VPORT_CONTEXT.
func PutRoCEEnabled(out []byte) { SetBits(out, 0x80+0x1f, 1, 1) }

// PutStatus writes the status and the syndrome of an answer.
func PutStatus(out []byte, st CommandStatus, syndrome uint32) {
	SetBits(out, 0, 8, uint64(st))
	SetBits(out, 32, 32, uint64(syndrome))
}
