package mad

import (
	"net/netip"

	"github.com/softmkey/softmkey/internal/base/bitfield"
)

// Transport is the service type of the queue pairs that a REQ asks to connect.
type Transport uint8

// The service types, as the field of the REQ numbers them.
const (
	RC  Transport = 0
	UC  Transport = 1
	RD  Transport = 2
	XRC Transport = 3 // extended: field 3 and extended transport type 1
)

// The sizes of the private data, in bytes.
const (
	REQPrivate  = 92
	MRAPrivate  = 222
	REJPrivate  = 148
	REPPrivate  = 196
	RTUPrivate  = 224
	DREQPrivate = 220
	DREPPrivate = 224
	ARILen      = 72 // additional reject information
)

// REQ asks a listener for a connection (section 12.6.5).
type REQ struct {
	LocalID   uint32 // communication id of the sender
	ServiceID uint64
	CAGUID    uint64 // of the sender
	QKey      uint32
	QPN       uint32 // 24 bits

	ResponderResources uint8 // READs and atomics that the sender can answer at a time
	InitiatorDepth     uint8 // READs and atomics that the sender wants to have in flight

	RemoteResponseTimeout uint8 // 4.096 µs · 2^n until the receiver must answer; 5 bits
	LocalResponseTimeout  uint8 // 4.096 µs · 2^n until the sender answers; 5 bits
	MaxCMRetries          uint8 // of messages; 4 bits

	Transport   Transport
	FlowControl bool   // end to end
	PSN         uint32 // that the receiver's QP begins to send with; 24 bits
	RetryCount  uint8  // 3 bits
	RNRRetry    uint8  // 3 bits
	PKey        uint16
	MTU         uint8 // 1 (256 bytes) to 5 (4096 bytes)
	SRQ         bool  // the sender's QP receives from a shared receive queue

	VendorID uint32 // vendor of the ECE options (enhanced connection establishment); 24 bits

	Path PathInfo

	Private []byte // at most REQPrivate bytes
}

// PathInfo is the primary path of a REQ. An alternate path is neither sent nor
// read.
type PathInfo struct {
	LocalLID, RemoteLID uint16
	LocalGID, RemoteGID [16]byte
	FlowLabel           uint32 // 20 bits
	Rate                uint8  // enum ibv_rate; 6 bits
	TrafficClass        uint8
	HopLimit            uint8
	SL                  uint8 // 4 bits
	SubnetLocal         bool
	AckTimeout          uint8 // of the sender's QP, 4.096 µs · 2^n; 5 bits
}

// GID returns the GID of an IP address: its IPv6 form.
func GID(a netip.Addr) [16]byte { return a.As16() }

// Attr returns AttrREQ.
func (*REQ) Attr() Attr { return AttrREQ }

func (m *REQ) fields(b []byte, f bitfield.Fields) {
	num(f, 0*8, 32, &m.LocalID)
	num(f, 5*8, 24, &m.VendorID)
	num(f, 8*8, 64, &m.ServiceID)
	num(f, 16*8, 64, &m.CAGUID)
	num(f, 28*8, 32, &m.QKey)
	num(f, 32*8, 24, &m.QPN)
	num(f, 35*8, 8, &m.ResponderResources)
	num(f, 39*8, 8, &m.InitiatorDepth)
	num(f, 43*8, 5, &m.RemoteResponseTimeout)
	extended := uint8(0)
	if m.Transport == XRC {
		extended = 1
	}
	num(f, 43*8+5, 2, &m.Transport)
	bitfield.Flag(f, 43*8+7, &m.FlowControl)
	num(f, 44*8, 24, &m.PSN)
	num(f, 47*8, 5, &m.LocalResponseTimeout)
	num(f, 47*8+5, 3, &m.RetryCount)
	num(f, 48*8, 16, &m.PKey)
	num(f, 50*8, 4, &m.MTU)
	num(f, 50*8+5, 3, &m.RNRRetry)
	num(f, 51*8, 4, &m.MaxCMRetries)
	bitfield.Flag(f, 51*8+4, &m.SRQ)
	num(f, 51*8+5, 3, &extended)
	if m.Transport == XRC && extended != 1 {
		m.Transport = 0xff // an extended type that the specification does not know
	}
	m.Path.fields(f)
	private(f, b[140:], &m.Private)
}

func (p *PathInfo) fields(f bitfield.Fields) {
	const at = 52 * 8
	num(f, at+0*8, 16, &p.LocalLID)
	num(f, at+2*8, 16, &p.RemoteLID)
	bitfield.Bytes(f, at+4*8, p.LocalGID[:])
	bitfield.Bytes(f, at+20*8, p.RemoteGID[:])
	num(f, at+36*8, 20, &p.FlowLabel)
	num(f, at+39*8+2, 6, &p.Rate)
	num(f, at+40*8, 8, &p.TrafficClass)
	num(f, at+41*8, 8, &p.HopLimit)
	num(f, at+42*8, 4, &p.SL)
	bitfield.Flag(f, at+42*8+4, &p.SubnetLocal)
	num(f, at+43*8, 5, &p.AckTimeout)
}

// About is the message to which an MRA or a REJ refers.
type About uint8

// The messages to which an MRA or a REJ can refer.
const (
	AboutREQ   About = 0
	AboutREP   About = 1
	AboutOther About = 2
)

// MRA asks the peer to wait longer for the answer to a received message (section 12.6.6).
type MRA struct {
	LocalID, RemoteID uint32
	About             About
	ServiceTimeout    uint8 // 4.096 µs · 2^n until the answer; 5 bits
	Private           []byte
}

// Attr returns AttrMRA.
func (*MRA) Attr() Attr { return AttrMRA }

func (m *MRA) fields(b []byte, f bitfield.Fields) {
	ids(f, &m.LocalID, &m.RemoteID)
	num(f, 8*8, 2, &m.About)
	num(f, 9*8, 5, &m.ServiceTimeout)
	private(f, b[10:], &m.Private)
}

// REJ refuses or abandons a connection (section 12.6.7).
type REJ struct {
	LocalID, RemoteID uint32
	About             About
	Reason            Reason
	ARI               []byte // additional reject information, at most ARILen bytes
	Private           []byte
}

// Attr returns AttrREJ.
func (*REJ) Attr() Attr { return AttrREJ }

func (m *REJ) fields(b []byte, f bitfield.Fields) {
	ids(f, &m.LocalID, &m.RemoteID)
	num(f, 8*8, 2, &m.About)
	n := uint8(len(m.ARI))
	num(f, 9*8, 7, &n)
	num(f, 10*8, 16, &m.Reason)
	private(f, b[12:12+min(int(n), ARILen)], &m.ARI)
	private(f, b[84:], &m.Private)
}

// REP accepts a REQ (section 12.6.8).
type REP struct {
	LocalID, RemoteID  uint32
	QKey               uint32
	QPN                uint32 // 24 bits
	PSN                uint32 // that the receiver's QP begins to send with; 24 bits
	ResponderResources uint8
	InitiatorDepth     uint8
	TargetAckDelay     uint8 // 4.096 µs · 2^n; 5 bits
	Failover           uint8 // 2 bits: 1 means that alternate paths are not supported
	FlowControl        bool
	RNRRetry           uint8 // 3 bits
	SRQ                bool
	CAGUID             uint64
	VendorID           uint32 // ECE; 24 bits
	Private            []byte
}

// Attr returns AttrREP.
func (*REP) Attr() Attr { return AttrREP }

func (m *REP) fields(b []byte, f bitfield.Fields) {
	ids(f, &m.LocalID, &m.RemoteID)
	num(f, 8*8, 32, &m.QKey)
	num(f, 12*8, 24, &m.QPN)
	high, middle, low := uint8(m.VendorID>>16), uint8(m.VendorID>>8), uint8(m.VendorID)
	num(f, 15*8, 8, &high)
	num(f, 19*8, 8, &middle)
	num(f, 20*8, 24, &m.PSN)
	num(f, 23*8, 8, &low)
	if !f.Writing() {
		m.VendorID = uint32(high)<<16 | uint32(middle)<<8 | uint32(low)
	}
	num(f, 24*8, 8, &m.ResponderResources)
	num(f, 25*8, 8, &m.InitiatorDepth)
	num(f, 26*8, 5, &m.TargetAckDelay)
	num(f, 26*8+5, 2, &m.Failover)
	bitfield.Flag(f, 26*8+7, &m.FlowControl)
	num(f, 27*8, 3, &m.RNRRetry)
	bitfield.Flag(f, 27*8+3, &m.SRQ)
	num(f, 28*8, 64, &m.CAGUID)
	private(f, b[36:], &m.Private)
}

// RTU reports that the sender of the REQ is ready to use the connection (section 12.6.9).
type RTU struct {
	LocalID, RemoteID uint32
	Private           []byte
}

// Attr returns AttrRTU.
func (*RTU) Attr() Attr { return AttrRTU }

func (m *RTU) fields(b []byte, f bitfield.Fields) {
	ids(f, &m.LocalID, &m.RemoteID)
	private(f, b[8:], &m.Private)
}

// DREQ asks to end a connection (section 12.6.10).
type DREQ struct {
	LocalID, RemoteID uint32
	RemoteQPN         uint32 // of the receiver of the message; 24 bits
	Private           []byte
}

// Attr returns AttrDREQ.
func (*DREQ) Attr() Attr { return AttrDREQ }

func (m *DREQ) fields(b []byte, f bitfield.Fields) {
	ids(f, &m.LocalID, &m.RemoteID)
	num(f, 8*8, 24, &m.RemoteQPN)
	private(f, b[12:], &m.Private)
}

// DREP answers a DREQ (section 12.6.11).
type DREP struct {
	LocalID, RemoteID uint32
	Private           []byte
}

// Attr returns AttrDREP.
func (*DREP) Attr() Attr { return AttrDREP }

func (m *DREP) fields(b []byte, f bitfield.Fields) {
	ids(f, &m.LocalID, &m.RemoteID)
	private(f, b[8:], &m.Private)
}

// ids are the communication ids at the start of most messages, the sender's first.
func ids(f bitfield.Fields, local, remote *uint32) {
	num(f, 0*8, 32, local)
	num(f, 4*8, 32, remote)
}
