package mad

import (
	"encoding/binary"
	"net/netip"
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

func (m *REQ) put(b []byte) {
	be := binary.BigEndian
	be.PutUint32(b[0:], m.LocalID)
	put24(b[5:], m.VendorID)
	be.PutUint64(b[8:], m.ServiceID)
	be.PutUint64(b[16:], m.CAGUID)
	be.PutUint32(b[28:], m.QKey)
	be.PutUint32(b[32:], m.QPN<<8|uint32(m.ResponderResources))
	be.PutUint32(b[36:], uint32(m.InitiatorDepth))
	b[43] = m.RemoteResponseTimeout<<3 | byte(m.Transport&3)<<1 | bit(m.FlowControl, 0)
	be.PutUint32(b[44:], m.PSN<<8|uint32(m.LocalResponseTimeout&31)<<3|uint32(m.RetryCount&7))
	be.PutUint16(b[48:], m.PKey)
	b[50] = m.MTU<<4 | m.RNRRetry&7
	b[51] = m.MaxCMRetries<<4 | bit(m.SRQ, 3)
	if m.Transport == XRC {
		b[51] |= 1
	}
	m.Path.put(b[52:96])
	putPrivate(b[140:], m.Private)
}

func parseREQ(b []byte) Message {
	be := binary.BigEndian
	m := &REQ{
		LocalID: be.Uint32(b[0:]), VendorID: get24(b[5:]), ServiceID: be.Uint64(b[8:]), CAGUID: be.Uint64(b[16:]),
		QKey: be.Uint32(b[28:]), QPN: get24(b[32:]), ResponderResources: b[35], InitiatorDepth: b[39],
		RemoteResponseTimeout: b[43] >> 3, Transport: Transport(b[43] >> 1 & 3), FlowControl: b[43]&1 != 0,
		PSN: get24(b[44:]), LocalResponseTimeout: b[47] >> 3, RetryCount: b[47] & 7,
		PKey: be.Uint16(b[48:]), MTU: b[50] >> 4, RNRRetry: b[50] & 7,
		MaxCMRetries: b[51] >> 4, SRQ: b[51]&8 != 0,
		Private: b[140:],
	}
	if m.Transport == XRC && b[51]&7 != 1 {
		m.Transport = 0xff // an extended type that the specification does not know
	}
	m.Path.parse(b[52:96])
	return m
}

func (p *PathInfo) put(b []byte) {
	be := binary.BigEndian
	be.PutUint16(b[0:], p.LocalLID)
	be.PutUint16(b[2:], p.RemoteLID)
	copy(b[4:], p.LocalGID[:])
	copy(b[20:], p.RemoteGID[:])
	be.PutUint32(b[36:], p.FlowLabel<<12|uint32(p.Rate&63))
	b[40], b[41] = p.TrafficClass, p.HopLimit
	b[42] = p.SL<<4 | bit(p.SubnetLocal, 3)
	b[43] = p.AckTimeout << 3
}

func (p *PathInfo) parse(b []byte) {
	be := binary.BigEndian
	*p = PathInfo{
		LocalLID: be.Uint16(b[0:]), RemoteLID: be.Uint16(b[2:]),
		LocalGID: [16]byte(b[4:]), RemoteGID: [16]byte(b[20:]),
		FlowLabel: be.Uint32(b[36:]) >> 12, Rate: b[39] & 63,
		TrafficClass: b[40], HopLimit: b[41], SL: b[42] >> 4, SubnetLocal: b[42]&8 != 0, AckTimeout: b[43] >> 3,
	}
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

func (m *MRA) put(b []byte) {
	putIDs(b, m.LocalID, m.RemoteID)
	b[8], b[9] = byte(m.About)<<6, m.ServiceTimeout<<3
	putPrivate(b[10:], m.Private)
}

func parseMRA(b []byte) Message {
	m := &MRA{About: About(b[8] >> 6), ServiceTimeout: b[9] >> 3, Private: b[10:]}
	m.LocalID, m.RemoteID = getIDs(b)
	return m
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

func (m *REJ) put(b []byte) {
	putIDs(b, m.LocalID, m.RemoteID)
	b[8], b[9] = byte(m.About)<<6, byte(len(m.ARI))<<1
	binary.BigEndian.PutUint16(b[10:], uint16(m.Reason))
	putPrivate(b[12:84], m.ARI)
	putPrivate(b[84:], m.Private)
}

func parseREJ(b []byte) Message {
	m := &REJ{About: About(b[8] >> 6), Reason: Reason(binary.BigEndian.Uint16(b[10:])), Private: b[84:]}
	m.LocalID, m.RemoteID = getIDs(b)
	m.ARI = b[12 : 12+min(int(b[9]>>1), ARILen)]
	return m
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

func (m *REP) put(b []byte) {
	be := binary.BigEndian
	putIDs(b, m.LocalID, m.RemoteID)
	be.PutUint32(b[8:], m.QKey)
	be.PutUint32(b[12:], m.QPN<<8|m.VendorID>>16&0xff)
	be.PutUint32(b[16:], m.VendorID>>8&0xff)
	be.PutUint32(b[20:], m.PSN<<8|m.VendorID&0xff)
	b[24], b[25] = m.ResponderResources, m.InitiatorDepth
	b[26] = m.TargetAckDelay<<3 | m.Failover&3<<1 | bit(m.FlowControl, 0)
	b[27] = m.RNRRetry<<5 | bit(m.SRQ, 4)
	be.PutUint64(b[28:], m.CAGUID)
	putPrivate(b[36:], m.Private)
}

func parseREP(b []byte) Message {
	be := binary.BigEndian
	m := &REP{
		QKey: be.Uint32(b[8:]), QPN: get24(b[12:]), PSN: get24(b[20:]),
		VendorID:           uint32(b[15])<<16 | uint32(b[19])<<8 | uint32(b[23]),
		ResponderResources: b[24], InitiatorDepth: b[25],
		TargetAckDelay: b[26] >> 3, Failover: b[26] >> 1 & 3, FlowControl: b[26]&1 != 0,
		RNRRetry: b[27] >> 5, SRQ: b[27]&16 != 0, CAGUID: be.Uint64(b[28:]), Private: b[36:],
	}
	m.LocalID, m.RemoteID = getIDs(b)
	return m
}

// RTU reports that the sender of the REQ is ready to use the connection (section 12.6.9).
type RTU struct {
	LocalID, RemoteID uint32
	Private           []byte
}

// Attr returns AttrRTU.
func (*RTU) Attr() Attr { return AttrRTU }

func (m *RTU) put(b []byte) {
	putIDs(b, m.LocalID, m.RemoteID)
	putPrivate(b[8:], m.Private)
}

func parseRTU(b []byte) Message {
	m := &RTU{Private: b[8:]}
	m.LocalID, m.RemoteID = getIDs(b)
	return m
}

// DREQ asks to end a connection (section 12.6.10).
type DREQ struct {
	LocalID, RemoteID uint32
	RemoteQPN         uint32 // of the receiver of the message; 24 bits
	Private           []byte
}

// Attr returns AttrDREQ.
func (*DREQ) Attr() Attr { return AttrDREQ }

func (m *DREQ) put(b []byte) {
	putIDs(b, m.LocalID, m.RemoteID)
	put24(b[8:], m.RemoteQPN)
	putPrivate(b[12:], m.Private)
}

func parseDREQ(b []byte) Message {
	m := &DREQ{RemoteQPN: get24(b[8:]), Private: b[12:]}
	m.LocalID, m.RemoteID = getIDs(b)
	return m
}

// DREP answers a DREQ (section 12.6.11).
type DREP struct {
	LocalID, RemoteID uint32
	Private           []byte
}

// Attr returns AttrDREP.
func (*DREP) Attr() Attr { return AttrDREP }

func (m *DREP) put(b []byte) {
	putIDs(b, m.LocalID, m.RemoteID)
	putPrivate(b[8:], m.Private)
}

func parseDREP(b []byte) Message {
	m := &DREP{Private: b[8:]}
	m.LocalID, m.RemoteID = getIDs(b)
	return m
}

// putIDs writes the communication ids at the start of most messages, the sender's first.
func putIDs(b []byte, local, remote uint32) {
	binary.BigEndian.PutUint32(b[0:], local)
	binary.BigEndian.PutUint32(b[4:], remote)
}

func getIDs(b []byte) (local, remote uint32) {
	return binary.BigEndian.Uint32(b[0:]), binary.BigEndian.Uint32(b[4:])
}
