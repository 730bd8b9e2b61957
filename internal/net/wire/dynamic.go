package wire

import "encoding/binary"

// DynamicControl is the opcode of the packets that make and end the connections of the
// dynamically connected transport (DC). It is from the range that the specification leaves
// to manufacturers: the wire format of adapters is not public. A [Dynamic] follows the BTH.
const DynamicControl Opcode = 0xc3

// DynamicKind is the purpose of a DynamicControl packet.
type DynamicKind uint8

// The kinds. An initiator (DCI) sends DynamicConnect and DynamicDisconnect to the number of
// a target (DCT), which answers and sends DynamicRelease to the number of the initiator.
const (
	// DynamicConnect asks for a connection. The PSN in the BTH is that of the first
	// request, QPN is the initiator's number, and Key the target's access key. Code is
	// the path MTU (enum ibv_mtu), and Reads the number of READs and atomics that the
	// initiator may have outstanding.
	DynamicConnect DynamicKind = 1

	// DynamicAccept answers DynamicConnect. QPN is the number to which the initiator
	// sends its requests. Reads is the number of READs and atomics that may be
	// outstanding, at most that of the DynamicConnect.
	DynamicAccept DynamicKind = 2

	// DynamicRefuse answers DynamicConnect. Code is the reason.
	DynamicRefuse DynamicKind = 3

	// DynamicRelease asks an initiator to end its connection when its outstanding requests
	// have completed, because others wait for one.
	DynamicRelease DynamicKind = 4

	// DynamicDisconnect ends a connection. QPN is the initiator's number.
	DynamicDisconnect DynamicKind = 5
)

// Reasons of a DynamicRefuse.
const (
	DynamicBusy   = 1 // the target has as many connections as it keeps: try again
	DynamicBadKey = 2 // the access key is another
)

// DynamicLen is the length of a Dynamic on the wire.
const DynamicLen = 24

// Dynamic is the body of a DynamicControl packet.
type Dynamic struct {
	Kind    DynamicKind
	Code    uint8
	Reads   uint16
	Session uint32 // number of the connection, chosen by the initiator
	QPN     uint32 // 24 bits
	Key     uint64
}

// PutDynamic writes h to b[:DynamicLen].
func PutDynamic(b []byte, h *Dynamic) {
	_ = b[DynamicLen-1]
	b[0], b[1] = byte(h.Kind), h.Code
	binary.BigEndian.PutUint16(b[2:], h.Reads)
	binary.BigEndian.PutUint32(b[4:], h.Session)
	binary.BigEndian.PutUint32(b[8:], h.QPN&QPNMask)
	binary.BigEndian.PutUint32(b[12:], 0)
	binary.BigEndian.PutUint64(b[16:], h.Key)
}

// ParseDynamic reads a Dynamic from the start of b. Reserved bits are ignored.
func ParseDynamic(b []byte) Dynamic {
	_ = b[DynamicLen-1]
	return Dynamic{
		Kind: DynamicKind(b[0]), Code: b[1], Reads: binary.BigEndian.Uint16(b[2:]), Session: binary.BigEndian.Uint32(b[4:]),
		QPN: binary.BigEndian.Uint32(b[8:]) & QPNMask, Key: binary.BigEndian.Uint64(b[16:]),
	}
}
