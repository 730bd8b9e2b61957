package prm

import "github.com/softmkey/softmkey/internal/base/bitfield"

const qpcOff = 0x18 * 8

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

// Service types of a QP.
const (
	QPServiceRC  = 0
	QPServiceUC  = 1
	QPServiceUD  = 2
	QPServiceDCI = 5

	// QPServiceXRC is both ends of XRC: the one that receives has no send queue.
	QPServiceXRC = 3

	// QPServiceGSI is the QP of management datagrams, which kernel drivers make.
	QPServiceGSI = 8

	// QPServiceUMR is the QP of a kernel driver's UMRs. It has no peer.
	QPServiceUMR = 0xc
)

// Receive queues of a QP.
const (
	RQOwn  = 0
	RQSRQ  = 1 // an SRQ or RMP
	RQNone = 3
)

// The bits of OptParams that select the rights of the peer, and other attributes.
const (
	OptRead     = 1 << 1
	OptAtomic   = 1 << 2
	OptWrite    = 1 << 3
	OptQKey     = 1 << 5
	OptRNRTimer = 1 << 6
)

// Path is the primary address path of a QP.
type Path struct {
	ForceLoopback bool // the peer is this device
	AckTimeout    uint8
	SourceIndex   uint8 // of the GID table
	HopLimit      uint8
	TrafficClass  uint8
	FlowLabel     uint32
	GID           [16]byte
	UDPPort       uint16
	Priority      uint8 // of the frames
	MAC           [6]byte
	Port          uint8
}

// QPContext is the context of a QP, in the commands that create and change it and in the
// answer of QUERY_QP.
type QPContext struct {
	OptParams uint32 // of a command that changes a QP: the optional fields that it sets

	State                uint8
	Service              uint8 // QPService*
	DrainSigErr          bool
	BlockSelfMcast       bool // the QP does not receive its own multicasts
	PD, UserIndex        uint32
	LogRQSize            uint8 // requests
	LogRQStride          uint8 // units of 16 bytes
	NoSQ                 bool
	LogSQSize            uint8 // blocks of 64 bytes
	TimestampFormat      uint8
	CounterSet           uint8
	UAR                  uint32
	RemoteQPN            uint32
	MTU                  uint8
	LogMsgMax            uint8
	Path                 Path
	NextSendPSN          uint32
	NextRecvPSN          uint32
	LogSRAMax, LogRRAMax uint8 // READs and atomics in flight, as requester and as responder
	MinRNRNAK            uint8
	Read, Write, Atomic  bool // rights of the peer
	SendCQ, RecvCQ       uint32
	DBAddr               uint64
	DBUmem               uint32
	XRCD                 uint32
	RQType               uint8 // RQ*
	SRQN                 uint32
	QKey                 uint32
	HWSendBlock          uint16 // start of the next entry to execute
	SWSendBlock          uint16 // end of the last posted entry
	HWRecv, SWRecv       uint32
	RetryCount, RNRRetry uint8
	FastRegister         bool // requests may give memory keys lists of pages, as a kernel's do

	// Of a kernel driver's command, which has pages instead of umems.
	DBUmemValid, WQUmemValid bool
	LogPage, PageOffset      uint8
}

// Pages returns where the queues lie if they are not in a umem. They have size bytes.
func (q *QPContext) Pages(size uint64) PageList {
	return QueuePages(uint64(q.LogPage), uint64(q.PageOffset), size)
}

// fields are the fields of a QP's context.
func (q *QPContext) fields(f bitfield.Fields) {
	bitfield.Number(f, 0, 4, &q.State)
	bitfield.Number(f, 0x08, 8, &q.Service)
	bitfield.Flag(f, 0x21, &q.BlockSelfMcast)
	bitfield.Flag(f, 0x25, &q.DrainSigErr)
	bitfield.Number(f, 0x28, 24, &q.PD)
	bitfield.Number(f, 0x40, 3, &q.MTU)
	bitfield.Number(f, 0x43, 5, &q.LogMsgMax)
	bitfield.Number(f, 0x49, 4, &q.LogRQSize)
	bitfield.Number(f, 0x4d, 3, &q.LogRQStride)
	bitfield.Flag(f, 0x50, &q.NoSQ)
	bitfield.Number(f, 0x51, 4, &q.LogSQSize)
	bitfield.Number(f, 0x58, 2, &q.TimestampFormat)
	bitfield.Number(f, 0x60, 8, &q.CounterSet)
	bitfield.Number(f, 0x68, 24, &q.UAR)
	bitfield.Number(f, 0x88, 24, &q.UserIndex)
	bitfield.Number(f, 0xa8, 24, &q.RemoteQPN)
	bitfield.Number(f, 0xa3, 5, &q.LogPage)
	bitfield.Flag(f, 0xc0, &q.Path.ForceLoopback)
	bitfield.Number(f, 0x100, 5, &q.Path.AckTimeout)
	bitfield.Number(f, 0x108, 8, &q.Path.SourceIndex)
	bitfield.Number(f, 0x118, 8, &q.Path.HopLimit)
	bitfield.Number(f, 0x124, 8, &q.Path.TrafficClass)
	bitfield.Number(f, 0x12c, 20, &q.Path.FlowLabel)
	bitfield.Number(f, 0x1d0, 16, &q.Path.UDPPort)
	bitfield.Number(f, 0x1e1, 3, &q.Path.Priority)
	bitfield.Number(f, 0x1e8, 8, &q.Path.Port)
	bitfield.Number(f, 0x388, 3, &q.LogSRAMax)
	bitfield.Number(f, 0x38d, 3, &q.RetryCount)
	bitfield.Number(f, 0x390, 3, &q.RNRRetry)
	bitfield.Flag(f, 0x394, &q.FastRegister)
	bitfield.Number(f, 0x3c8, 24, &q.NextSendPSN)
	bitfield.Number(f, 0x3e8, 24, &q.SendCQ)
	bitfield.Number(f, 0x488, 3, &q.LogRRAMax)
	bitfield.Flag(f, 0x490, &q.Read)
	bitfield.Flag(f, 0x491, &q.Write)
	bitfield.Flag(f, 0x492, &q.Atomic)
	bitfield.Number(f, 0x494, 6, &q.PageOffset)
	bitfield.Number(f, 0x4a3, 5, &q.MinRNRNAK)
	bitfield.Number(f, 0x4a8, 24, &q.NextRecvPSN)
	bitfield.Number(f, 0x4c8, 24, &q.XRCD)
	bitfield.Number(f, 0x4e8, 24, &q.RecvCQ)
	bitfield.Number(f, 0x500, 64, &q.DBAddr)
	bitfield.Number(f, 0x540, 32, &q.QKey)
	bitfield.Number(f, 0x565, 3, &q.RQType)
	bitfield.Number(f, 0x568, 24, &q.SRQN)
	bitfield.Number(f, 0x5a0, 16, &q.HWSendBlock)
	bitfield.Number(f, 0x5b0, 16, &q.SWSendBlock)
	bitfield.Number(f, 0x5c0, 32, &q.HWRecv)
	bitfield.Number(f, 0x5e0, 32, &q.SWRecv)
	bitfield.Flag(f, 0x683, &q.DBUmemValid)
	bitfield.Number(f, 0x720, 32, &q.DBUmem)
	bitfield.Bytes(f, 0x140, q.Path.GID[:])
	bitfield.Bytes(f, 0x1f0, q.Path.MAC[:])
}

// ParseQP decodes the context in a command on a QP.
func ParseQP(in []byte) (q QPContext) {
	q.OptParams = uint32(Bits(in, 0x80, 32))
	q.fields(bitfield.Read(in, qpcOff))
	q.WQUmemValid = Bits(in, 0x860, 1) != 0
	q.Path.TrafficClass |= uint8(Bits(in, qpcOff+0x1ca, 6) << 2) // dscp
	return q
}

// PutQP writes a QP's context to the answer of QUERY_QP, or to a command.
func PutQP(out []byte, q *QPContext) { q.fields(bitfield.Write(out, qpcOff)) }

// QueueOf returns the umem and the offset in it of the queues of a CREATE_QP.
func QueueOf(in []byte) (umem uint32, off uint64) {
	return uint32(Bits(in, 0x840, 32)), Bits(in, 0x800, 64)
}

// PutQueue writes the umem and the offset of the queues to a CREATE_QP.
func PutQueue(in []byte, umem uint32, off uint64) {
	SetBits(in, 0x840, 32, uint64(umem))
	SetBits(in, 0x800, 64, off)
}
