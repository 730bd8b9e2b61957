package prm

// OpLSO is the opcode of large send offload: the adapter splits a frame into segments. Only
// send queues of the Ethernet port have it.
const OpLSO Opcode = 0x0e

// Flags of the Ethernet segment: the checksums that the adapter computes.
const (
	ethL3Checksum = 1 << 6
	ethL4Checksum = 1 << 7
	ethInsertVLAN = 1 << 15
	ethInlineMask = 0x3ff
	ethSegStart   = ControlSize
	ethInline     = 14 // of the inlined headers in the segment
)

// EthernetWQE is an entry of a send queue of the Ethernet port.
type EthernetWQE struct {
	Control
	L3Checksum, L4Checksum bool
	SegmentSize            int    // payload of a segment, for OpLSO
	Headers                []byte // the start of the frame, inline in the entry
	InsertVLAN             bool
	VLAN                   uint16 // tag control information
	Data                   []Data // the rest of the frame
}

// Parse decodes an entry of Size bytes. Headers refer to b.
func (w *EthernetWQE) Parse(b []byte) error {
	const op = "decode a frame to send"
	ctrl, err := ParseControl(b)
	if err != nil {
		return err
	}
	*w = EthernetWQE{Control: ctrl, Data: w.Data[:0]}
	if len(b) < ctrl.Size {
		return refuse(op, "%d bytes: the entry has %d", len(b), ctrl.Size)
	}
	b = b[:ctrl.Size]
	switch ctrl.Opcode {
	case OpNop:
		return nil
	case OpSend, OpLSO:
	default:
		return refuse(op, "%v is no request of the Ethernet port", ctrl.Opcode)
	}
	if len(b) < ethSegStart+16 {
		return refuse(op, "%d bytes: no Ethernet segment", len(b))
	}
	seg := b[ethSegStart:]
	w.L3Checksum, w.L4Checksum = seg[4]&ethL3Checksum != 0, seg[4]&ethL4Checksum != 0
	w.SegmentSize = int(be.Uint16(seg[6:]) & 0x3fff)
	at := 16
	if insert := be.Uint16(seg[12:]); insert&ethInsertVLAN != 0 {
		w.InsertVLAN, w.VLAN = true, be.Uint16(seg[ethInline:])
	} else if n := int(insert & ethInlineMask); n > 0 {
		if ethInline+n > len(seg) {
			return refuse(op, "%d bytes of headers in an entry of %d", n, len(b))
		}
		w.Headers = seg[ethInline : ethInline+n]
		at = max(16, (ethInline+n+15)&^15)
	}
	for at = ethSegStart + at; at+DataSegSize <= len(b); at += DataSegSize {
		d := ParseData(b[at:])
		if d.Length&inlineBit != 0 {
			return refuse(op, "inline data in a data segment: the headers are inlined before")
		}
		if d.Length > 0 {
			w.Data = append(w.Data, d)
		}
	}
	if ctrl.Opcode == OpLSO && (w.SegmentSize == 0 || len(w.Headers) == 0) {
		return refuse(op, "segments of %d bytes behind %d bytes of headers", w.SegmentSize, len(w.Headers))
	}
	return nil
}

// Kinds of headers that a receive completion names.
const (
	EthL3IPv4 = 1
	EthL3IPv6 = 2
	EthL4TCP  = 1
	EthL4UDP  = 2
)

// EthernetCQE is the completion of a received frame.
type EthernetCQE struct {
	RQN       uint32
	Counter   uint16
	ByteCount uint32
	Hash      uint32 // of RSS
	L3, L4    uint8  // the headers that the hash covers
	Checksum  uint16 // ones' complement sum of the IP packet
	Timestamp uint64
}

// Put encodes the completion into 64 bytes, except for the last one.
func (c *EthernetCQE) Put(b []byte) {
	clear(b[:CQESize-1])
	be.PutUint32(b[12:], c.Hash)
	b[16] = c.L3<<2 | c.L4<<6
	be.PutUint16(b[20:], c.Checksum)
	be.PutUint32(b[44:], c.ByteCount)
	be.PutUint64(b[48:], c.Timestamp)
	be.PutUint32(b[56:], c.RQN&0xffffff)
	be.PutUint16(b[60:], c.Counter)
}

// OpOwn returns the last byte of the completion.
func (c *EthernetCQE) OpOwn(owner uint8) uint8 { return opOwn(CQERecv, false, owner) }
