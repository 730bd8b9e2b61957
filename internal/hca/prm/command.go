package prm

import "fmt"

// Command is the opcode of a command.
type Command uint16

// The commands that the adapter supports.
const (
	CmdQueryHCACap    Command = 0x100
	CmdCreateMKey     Command = 0x200
	CmdQueryMKey      Command = 0x201
	CmdDestroyMKey    Command = 0x202
	CmdCreateQP       Command = 0x500
	CmdRTS2RTSQP      Command = 0x505
	CmdQueryQP        Command = 0x50b
	CmdInit2InitQP    Command = 0x50e
	CmdCreatePSV      Command = 0x600
	CmdDestroyPSV     Command = 0x601
	CmdCreateObject   Command = 0xa00
	CmdModifyObject   Command = 0xa01
	CmdQueryObject    Command = 0xa02
	CmdDestroyObject  Command = 0xa03
	CommandHeaderSize         = 16 // of every command and answer
	ObjectDEK         uint16  = 0x0c
	ObjectCryptoLogin uint16  = 0x1f
	mkcOff                    = 0x10 * 8
	objOff                    = 0x10 * 8
	qpcOff                    = 0x18 * 8
	AccessModeMTT             = 1
	AccessModeKLM             = 2
	KeySizeField              = 0x80 // bytes of a DEK object's key
	KeyPurposeXTS             = 3
)

var commandNames = map[Command]string{
	CmdQueryHCACap: "QUERY_HCA_CAP", CmdCreateMKey: "CREATE_MKEY", CmdQueryMKey: "QUERY_MKEY", CmdDestroyMKey: "DESTROY_MKEY",
	CmdCreateQP: "CREATE_QP", CmdRTS2RTSQP: "RTS2RTS_QP", CmdQueryQP: "QUERY_QP", CmdInit2InitQP: "INIT2INIT_QP",
	CmdCreatePSV: "CREATE_PSV", CmdDestroyPSV: "DESTROY_PSV", CmdCreateObject: "CREATE_GENERAL_OBJECT",
	CmdModifyObject: "MODIFY_GENERAL_OBJECT", CmdQueryObject: "QUERY_GENERAL_OBJECT", CmdDestroyObject: "DESTROY_GENERAL_OBJECT",
}

// String returns the command's name.
func (c Command) String() string {
	if s, ok := commandNames[c]; ok {
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
	CmdNoResources    CommandStatus = 0x0f
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

// MKeyContext is the context of a memory key in CREATE_MKEY.
type MKeyContext struct {
	Free             bool
	UMR              bool
	Access           uint8 // Context*
	Mode             uint8 // AccessMode*
	QPN              uint32
	Tag              uint8
	PD               uint32
	BSF              bool
	RemoteInvalidate bool
	Start, Len       uint64
	Octowords        uint32 // of the layout: entries of 16 bytes
	BSFOctowords     uint32
	Crypto           bool
	SigErr           bool
}

// ParseCreateMKey decodes the context in a CREATE_MKEY.
func ParseCreateMKey(in []byte) (m MKeyContext) {
	f := func(off, n int) uint64 { return Bits(in, mkcOff+off, n) }
	m = MKeyContext{
		Free: f(1, 1) != 0, UMR: f(0x10, 1) != 0, Mode: uint8(f(3, 3)<<2 | f(0x16, 2)),
		QPN: uint32(f(0x20, 24)), Tag: uint8(f(0x38, 8)), PD: uint32(f(0x68, 24)),
		BSF: f(0x61, 1) != 0, SigErr: f(0x65, 1) != 0, RemoteInvalidate: f(0x67, 1) != 0,
		Start: f(0x80, 64), Len: f(0xc0, 64), BSFOctowords: uint32(f(0x100, 32)), Octowords: uint32(f(0x1a0, 32)),
		Crypto: f(0x1e3, 2) != 0,
	}
	for _, a := range []struct {
		off int
		bit uint8
	}{{0x11, ContextAtomic}, {0x12, ContextRW}, {0x13, ContextRR}, {0x14, ContextLW}, {0x15, ContextLR}} {
		if f(a.off, 1) != 0 {
			m.Access |= a.bit
		}
	}
	return m
}

// PutMKeyIndex writes the index of a new key to the answer of CREATE_MKEY.
func PutMKeyIndex(out []byte, index uint32) { SetBits(out, 0x48, 24, uint64(index)) }

// CreatePSV is a CREATE_PSV.
type CreatePSV struct {
	Count int
	PD    uint32
}

// ParseCreatePSV decodes a CREATE_PSV.
func ParseCreatePSV(in []byte) CreatePSV {
	return CreatePSV{Count: int(Bits(in, 0x40, 4)), PD: uint32(Bits(in, 0x48, 24))}
}

// PutPSVs writes the indexes of new PSVs to the answer of CREATE_PSV.
func PutPSVs(out []byte, indexes []uint32) {
	for i, n := range indexes {
		SetBits(out, 0x88+32*i, 24, uint64(n))
	}
}

// ObjectHeader is the head of a command on a general object.
type ObjectHeader struct {
	Type uint16
	ID   uint32
}

// ParseObject decodes the head of a command on a general object.
func ParseObject(in []byte) ObjectHeader {
	return ObjectHeader{Type: uint16(Bits(in, 0x30, 16)), ID: uint32(Bits(in, 0x40, 32))}
}

// PutObjectID writes the number of an object to an answer.
func PutObjectID(out []byte, id uint32) { SetBits(out, 0x40, 32, uint64(id)) }

// DEK is the object that holds a data encryption key.
type DEK struct {
	Size      uint8 // 0: 128 bit, 1: 256 bit
	HasKeyTag bool
	Purpose   uint8
	PD        uint32
	Opaque    [8]byte
	Key       [KeySizeField]byte
}

// ParseDEK decodes the object in a command that creates a DEK.
func ParseDEK(in []byte) (d DEK) {
	d = DEK{
		Size: uint8(Bits(in, objOff+0x54, 4)), HasKeyTag: Bits(in, objOff+0x58, 1) != 0, Purpose: uint8(Bits(in, objOff+0x5c, 4)),
		PD: uint32(Bits(in, objOff+0x68, 24)),
	}
	copyAt(d.Opaque[:], in, objOff/8+0x30)
	copyAt(d.Key[:], in, objOff/8+0x40)
	return d
}

func copyAt(dst, b []byte, off int) {
	if off < len(b) {
		copy(dst, b[off:])
	}
}

// PutDEK writes the visible part of a DEK to the answer of a query: its state and
// metadata, never the key.
func PutDEK(out []byte, d *DEK, state uint8) {
	SetBits(out, objOff+0x40, 8, uint64(state))
	SetBits(out, objOff+0x54, 4, uint64(d.Size))
	if d.HasKeyTag {
		SetBits(out, objOff+0x58, 1, 1)
	}
	SetBits(out, objOff+0x5c, 4, uint64(d.Purpose))
	SetBits(out, objOff+0x68, 24, uint64(d.PD))
	if len(out) > objOff/8+0x30 {
		copy(out[objOff/8+0x30:], d.Opaque[:])
	}
}

// Login is the object of a crypto login.
type Login struct {
	Credential uint32
	KEK        uint32
	Wrapped    [48]byte
}

// ParseLogin decodes the object in a command that creates a login.
func ParseLogin(in []byte) (l Login) {
	l = Login{Credential: uint32(Bits(in, objOff+0x88, 24)), KEK: uint32(Bits(in, objOff+0xa8, 24))}
	copyAt(l.Wrapped[:], in, objOff/8+0x40)
	return l
}

// PutLoginState writes the state of a login to the answer of a query.
func PutLoginState(out []byte, l *Login, state uint8) {
	SetBits(out, objOff+0x84, 4, uint64(state))
	SetBits(out, objOff+0x88, 24, uint64(l.Credential))
	SetBits(out, objOff+0xa8, 24, uint64(l.KEK))
}

// QPNOf returns the QP's number in a command on a QP.
func QPNOf(in []byte) uint32 { return uint32(Bits(in, 0x48, 24)) }

// DrainSigErr returns the field drain_sigerr in the context of INIT2INIT_QP.
func DrainSigErr(in []byte) bool { return Bits(in, qpcOff+0x25, 1) != 0 }

// States of a QP in its context. They differ from those of the verbs.
const (
	QPStateReset     = 0
	QPStateInit      = 1
	QPStateRTR       = 2
	QPStateRTS       = 3
	QPStateSQErr     = 4
	QPStateSQDrained = 5
	QPStateErr       = 6
	QPStateSQDrain   = 7
)

// QPContext is the context in the answer of QUERY_QP.
type QPContext struct {
	State                uint8
	DrainSigErr          bool
	PD, UserIndex        uint32
	RemoteQPN            uint32
	MTU                  uint8
	LogMsgMax            uint8
	NextSendPSN          uint32
	SendCQ, RecvCQ       uint32
	QKey                 uint32
	HWSendBlock          uint16 // start of the next entry to execute
	SWSendBlock          uint16 // end of the last posted entry
	HWRecv, SWRecv       uint32
	RetryCount, RNRRetry uint8
}

// PutQP writes a QP's context to the answer of QUERY_QP.
func PutQP(out []byte, q *QPContext) {
	set := func(off, n int, v uint64) { SetBits(out, qpcOff+off, n, v) }
	set(0, 4, uint64(q.State))
	if q.DrainSigErr {
		set(0x25, 1, 1)
	}
	set(0x28, 24, uint64(q.PD))
	set(0x40, 3, uint64(q.MTU))
	set(0x43, 5, uint64(q.LogMsgMax))
	set(0x88, 24, uint64(q.UserIndex))
	set(0xa8, 24, uint64(q.RemoteQPN))
	set(0x38d, 3, uint64(q.RetryCount))
	set(0x390, 3, uint64(q.RNRRetry))
	set(0x3c8, 24, uint64(q.NextSendPSN))
	set(0x3e8, 24, uint64(q.SendCQ))
	set(0x4e8, 24, uint64(q.RecvCQ))
	set(0x540, 32, uint64(q.QKey))
	set(0x5a0, 16, uint64(q.HWSendBlock))
	set(0x5b0, 16, uint64(q.SWSendBlock))
	set(0x5c0, 32, uint64(q.HWRecv))
	set(0x5e0, 32, uint64(q.SWRecv))
}
