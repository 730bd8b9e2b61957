package prm

// CQEOpcode is the kind of a completion, the upper half of its last byte.
type CQEOpcode uint8

// The kinds of completions.
const (
	CQERequester    CQEOpcode = 0
	CQERecvWriteImm CQEOpcode = 1
	CQERecv         CQEOpcode = 2
	CQERecvImm      CQEOpcode = 3
	CQERecvInv      CQEOpcode = 4
	CQEResize       CQEOpcode = 5
	CQESigErr       CQEOpcode = 12
	CQERequesterErr CQEOpcode = 13
	CQERecvErr      CQEOpcode = 14
	CQEInvalid      CQEOpcode = 15
)

// Syndrome is the error of a completion (MLX5_CQE_SYNDROME_*).
type Syndrome uint8

// The errors of completions.
const (
	SyndromeLocalLength    Syndrome = 0x01
	SyndromeLocalQPOp      Syndrome = 0x02
	SyndromeLocalProt      Syndrome = 0x04
	SyndromeFlush          Syndrome = 0x05
	SyndromeMWBind         Syndrome = 0x06
	SyndromeBadResponse    Syndrome = 0x10
	SyndromeLocalAccess    Syndrome = 0x11
	SyndromeRemoteInvalid  Syndrome = 0x12
	SyndromeRemoteAccess   Syndrome = 0x13
	SyndromeRemoteOp       Syndrome = 0x14
	SyndromeRetryExceeded  Syndrome = 0x15
	SyndromeRNRExceeded    Syndrome = 0x16
	SyndromeRemoteAborted  Syndrome = 0x22
	SyndromeUnknownGeneral Syndrome = 0x7f // not in the header: the driver reports a general error
)

// CQESize is the size of a completion. In an entry of 128 bytes, the completion is the
// second half.
const CQESize = 64

// The network headers of RoCE v2 in the service level of a datagram's completion: bit 3
// means UDP, the other bits select the header. UCX uses them to find the destination GID.
const (
	SLGRH  = 1 << 3 // RoCE v1
	SLIPv6 = 1<<3 | 1
	SLIPv4 = 1<<3 | 2
)

// CQE is a completion.
type CQE struct {
	Opcode    CQEOpcode
	Solicited bool
	UserIndex uint32 // of the QP, or of an XRC SRQ (srqn_uidx)
	QPN       uint32
	SendOp    Opcode // in a requester's completion
	Counter   uint16 // index of the completed entry
	ByteCount uint32
	Imm       uint32 // immediate data, or the invalidated key
	Timestamp uint64

	// Only in a receiver's completion.
	SrcQPN uint32
	SL     uint8 // on Ethernet the network header's type: SLIPv4 or SLIPv6
	GRH    bool

	// Only in the completion of a datagram that came in a frame with a VLAN tag.
	HasVLAN bool
	VLAN    uint16 // tag control information

	Syndrome Syndrome // of a failed completion
	Vendor   uint8
}

// Put encodes the completion into 64 bytes, except for the last one.
func (c *CQE) Put(b []byte) {
	clear(b[:CQESize-1])
	be.PutUint32(b[32:], c.UserIndex&0xffffff)
	be.PutUint32(b[56:], uint32(c.SendOp)<<24|c.QPN&0xffffff)
	be.PutUint16(b[60:], c.Counter)
	if c.Opcode == CQERequesterErr || c.Opcode == CQERecvErr {
		b[54], b[55] = c.Vendor, uint8(c.Syndrome)
		return
	}
	w := uint32(c.SL&0xf)<<24 | c.SrcQPN&0xffffff
	if c.GRH {
		w |= 1 << 28
	}
	be.PutUint32(b[24:], w)
	if c.HasVLAN {
		b[29] = 1
		be.PutUint16(b[30:], c.VLAN)
	}
	be.PutUint32(b[36:], c.Imm)
	be.PutUint32(b[44:], c.ByteCount)
	be.PutUint64(b[48:], c.Timestamp)
}

// OpOwn returns the last byte of a completion. owner alternates between 0 and 1 with each
// round through the queue.
func (c *CQE) OpOwn(owner uint8) uint8 { return opOwn(c.Opcode, c.Solicited, owner) }

func opOwn(op CQEOpcode, solicited bool, owner uint8) uint8 {
	v := uint8(op)<<4 | owner&1
	if solicited {
		v |= 2
	}
	return v
}

// ParseCQE decodes a completion of 64 bytes. It is the inverse of Put and OpOwn, for
// tests and traces.
func ParseCQE(b []byte) (c CQE, owner uint8) {
	if len(b) < CQESize {
		return CQE{Opcode: CQEInvalid}, 0
	}
	last := b[63]
	c = CQE{
		Opcode: CQEOpcode(last >> 4), Solicited: last&2 != 0, UserIndex: be.Uint32(b[32:]) & 0xffffff,
		QPN: be.Uint32(b[56:]) & 0xffffff, SendOp: Opcode(b[56]), Counter: be.Uint16(b[60:]),
	}
	if c.Opcode == CQERequesterErr || c.Opcode == CQERecvErr {
		c.Vendor, c.Syndrome = b[54], Syndrome(b[55])
		return c, last & 1
	}
	w := be.Uint32(b[24:])
	c.SrcQPN, c.SL, c.GRH = w&0xffffff, uint8(w>>24)&0xf, w>>28&3 != 0
	c.HasVLAN, c.VLAN = b[29]&1 != 0, be.Uint16(b[30:])
	c.Imm, c.ByteCount, c.Timestamp = be.Uint32(b[36:]), be.Uint32(b[44:]), be.Uint64(b[48:])
	return c, last & 1
}

// Bits of SigErrCQE.Syndrome.
const (
	SigErrRefTag = 1 << 11
	SigErrAppTag = 1 << 12
	SigErrGuard  = 1 << 13
)

// SigErrCQE reports a bad signature of a key. Expected and Actual are the field as one
// number: guard, application tag and reference tag of a T10-DIF, a CRC32 in the upper
// half, a CRC64.
type SigErrCQE struct {
	Syndrome         uint16
	Expected, Actual uint64
	Memory           bool // the domain: memory, or wire
	MKey             uint32
	Offset           uint64
	QPN              uint32 // whose transfer found it. Linux' driver looks it up before anything else
}

// Put encodes the report into 64 bytes, except for the last one.
func (c *SigErrCQE) Put(b []byte) {
	clear(b[:CQESize-1])
	be.PutUint32(b[16:], uint32(c.Expected>>32))
	be.PutUint32(b[20:], uint32(c.Actual>>32))
	be.PutUint32(b[24:], uint32(c.Expected))
	be.PutUint32(b[28:], uint32(c.Actual))
	be.PutUint16(b[32:], c.Syndrome)
	if c.Memory {
		b[35] = 1
	}
	be.PutUint32(b[36:], c.MKey)
	be.PutUint64(b[40:], c.Offset)
	be.PutUint32(b[56:], c.QPN&0xffffff)
}

// OpOwn returns the last byte of the report.
func (c *SigErrCQE) OpOwn(owner uint8) uint8 { return opOwn(CQESigErr, false, owner) }

// ParseSigErrCQE is the inverse of Put, for tests and traces.
func ParseSigErrCQE(b []byte) (c SigErrCQE) {
	if len(b) < CQESize {
		return c
	}
	word := func(hi, lo int) uint64 { return uint64(be.Uint32(b[hi:]))<<32 | uint64(be.Uint32(b[lo:])) }
	return SigErrCQE{
		Syndrome: be.Uint16(b[32:]), Expected: word(16, 24), Actual: word(20, 28),
		Memory: b[35] != 0, MKey: be.Uint32(b[36:]), Offset: be.Uint64(b[40:]), QPN: be.Uint32(b[56:]) & 0xffffff,
	}
}
