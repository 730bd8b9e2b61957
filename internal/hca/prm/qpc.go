package prm

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
	return queuePages(uint64(q.LogPage), uint64(q.PageOffset), size)
}

// qpField is a field of a QP's context that is a number.
type qpField struct {
	off, n int
	get    func(q *QPContext) uint64
	set    func(q *QPContext, v uint64)
}

type unsigned interface {
	~uint8 | ~uint16 | ~uint32 | ~uint64
}

func numberAt[T unsigned](off, n int, of func(q *QPContext) *T) qpField {
	return qpField{off, n, func(q *QPContext) uint64 { return uint64(*of(q)) }, func(q *QPContext, v uint64) { *of(q) = T(v) }}
}

func flagAt(off int, of func(q *QPContext) *bool) qpField {
	return qpField{off, 1, func(q *QPContext) uint64 {
		if *of(q) {
			return 1
		}
		return 0
	}, func(q *QPContext, v uint64) { *of(q) = v != 0 }}
}

// qpFields are the fields of a QP's context, by their offsets in bits.
var qpFields = []qpField{
	numberAt(0, 4, func(q *QPContext) *uint8 { return &q.State }),
	numberAt(0x08, 8, func(q *QPContext) *uint8 { return &q.Service }),
	flagAt(0x21, func(q *QPContext) *bool { return &q.BlockSelfMcast }),
	flagAt(0x25, func(q *QPContext) *bool { return &q.DrainSigErr }),
	numberAt(0x28, 24, func(q *QPContext) *uint32 { return &q.PD }),
	numberAt(0x40, 3, func(q *QPContext) *uint8 { return &q.MTU }),
	numberAt(0x43, 5, func(q *QPContext) *uint8 { return &q.LogMsgMax }),
	numberAt(0x49, 4, func(q *QPContext) *uint8 { return &q.LogRQSize }),
	numberAt(0x4d, 3, func(q *QPContext) *uint8 { return &q.LogRQStride }),
	flagAt(0x50, func(q *QPContext) *bool { return &q.NoSQ }),
	numberAt(0x51, 4, func(q *QPContext) *uint8 { return &q.LogSQSize }),
	numberAt(0x58, 2, func(q *QPContext) *uint8 { return &q.TimestampFormat }),
	numberAt(0x60, 8, func(q *QPContext) *uint8 { return &q.CounterSet }),
	numberAt(0x68, 24, func(q *QPContext) *uint32 { return &q.UAR }),
	numberAt(0x88, 24, func(q *QPContext) *uint32 { return &q.UserIndex }),
	numberAt(0xa8, 24, func(q *QPContext) *uint32 { return &q.RemoteQPN }),
	numberAt(0xa3, 5, func(q *QPContext) *uint8 { return &q.LogPage }),
	flagAt(0xc0, func(q *QPContext) *bool { return &q.Path.ForceLoopback }),
	numberAt(0x100, 5, func(q *QPContext) *uint8 { return &q.Path.AckTimeout }),
	numberAt(0x108, 8, func(q *QPContext) *uint8 { return &q.Path.SourceIndex }),
	numberAt(0x118, 8, func(q *QPContext) *uint8 { return &q.Path.HopLimit }),
	numberAt(0x124, 8, func(q *QPContext) *uint8 { return &q.Path.TrafficClass }),
	numberAt(0x12c, 20, func(q *QPContext) *uint32 { return &q.Path.FlowLabel }),
	numberAt(0x1d0, 16, func(q *QPContext) *uint16 { return &q.Path.UDPPort }),
	numberAt(0x1e1, 3, func(q *QPContext) *uint8 { return &q.Path.Priority }),
	numberAt(0x1e8, 8, func(q *QPContext) *uint8 { return &q.Path.Port }),
	numberAt(0x388, 3, func(q *QPContext) *uint8 { return &q.LogSRAMax }),
	numberAt(0x38d, 3, func(q *QPContext) *uint8 { return &q.RetryCount }),
	numberAt(0x390, 3, func(q *QPContext) *uint8 { return &q.RNRRetry }),
	flagAt(0x394, func(q *QPContext) *bool { return &q.FastRegister }),
	numberAt(0x3c8, 24, func(q *QPContext) *uint32 { return &q.NextSendPSN }),
	numberAt(0x3e8, 24, func(q *QPContext) *uint32 { return &q.SendCQ }),
	numberAt(0x488, 3, func(q *QPContext) *uint8 { return &q.LogRRAMax }),
	flagAt(0x490, func(q *QPContext) *bool { return &q.Read }),
	flagAt(0x491, func(q *QPContext) *bool { return &q.Write }),
	flagAt(0x492, func(q *QPContext) *bool { return &q.Atomic }),
	numberAt(0x494, 6, func(q *QPContext) *uint8 { return &q.PageOffset }),
	numberAt(0x4a3, 5, func(q *QPContext) *uint8 { return &q.MinRNRNAK }),
	numberAt(0x4a8, 24, func(q *QPContext) *uint32 { return &q.NextRecvPSN }),
	numberAt(0x4c8, 24, func(q *QPContext) *uint32 { return &q.XRCD }),
	numberAt(0x4e8, 24, func(q *QPContext) *uint32 { return &q.RecvCQ }),
	numberAt(0x500, 64, func(q *QPContext) *uint64 { return &q.DBAddr }),
	numberAt(0x540, 32, func(q *QPContext) *uint32 { return &q.QKey }),
	numberAt(0x565, 3, func(q *QPContext) *uint8 { return &q.RQType }),
	numberAt(0x568, 24, func(q *QPContext) *uint32 { return &q.SRQN }),
	numberAt(0x5a0, 16, func(q *QPContext) *uint16 { return &q.HWSendBlock }),
	numberAt(0x5b0, 16, func(q *QPContext) *uint16 { return &q.SWSendBlock }),
	numberAt(0x5c0, 32, func(q *QPContext) *uint32 { return &q.HWRecv }),
	numberAt(0x5e0, 32, func(q *QPContext) *uint32 { return &q.SWRecv }),
	flagAt(0x683, func(q *QPContext) *bool { return &q.DBUmemValid }),
	numberAt(0x720, 32, func(q *QPContext) *uint32 { return &q.DBUmem }),
}

// The places of the path's GID and MAC address in a context, in bytes.
const (
	qpcGID = 0x140 / 8
	qpcMAC = 0x1f0 / 8
)

// ParseQP decodes the context in a command on a QP.
func ParseQP(in []byte) (q QPContext) {
	q.OptParams = uint32(Bits(in, 0x80, 32))
	for i := range qpFields {
		f := &qpFields[i]
		f.set(&q, Bits(in, qpcOff+f.off, f.n))
	}
	q.WQUmemValid = Bits(in, 0x860, 1) != 0
	q.Path.TrafficClass |= uint8(Bits(in, qpcOff+0x1ca, 6) << 2) // dscp
	copyAt(q.Path.GID[:], in, qpcOff/8+qpcGID)
	copyAt(q.Path.MAC[:], in, qpcOff/8+qpcMAC)
	return q
}

// PutQP writes a QP's context to the answer of QUERY_QP, or to a command.
func PutQP(out []byte, q *QPContext) {
	for i := range qpFields {
		f := &qpFields[i]
		SetBits(out, qpcOff+f.off, f.n, f.get(q))
	}
	for _, f := range []struct {
		at int
		b  []byte
	}{{qpcGID, q.Path.GID[:]}, {qpcMAC, q.Path.MAC[:]}} {
		if at := qpcOff/8 + f.at; at < len(out) {
			copy(out[at:], f.b)
		}
	}
}

// QueueOf returns the umem and the offset in it of the queues of a CREATE_QP.
func QueueOf(in []byte) (umem uint32, off uint64) {
	return uint32(Bits(in, 0x840, 32)), Bits(in, 0x800, 64)
}

// PutQueue writes the umem and the offset of the queues to a CREATE_QP.
func PutQueue(in []byte, umem uint32, off uint64) {
	SetBits(in, 0x840, 32, uint64(umem))
	SetBits(in, 0x800, 64, off)
}
