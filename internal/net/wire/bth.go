package wire

import "encoding/binary"

// BTHLen is the length of a BTH on the wire.
const BTHLen = 12

// BTH is the base transport header, which starts every packet (section 9.2).
type BTH struct {
	Opcode    Opcode
	Solicited bool   // SE: request a solicited event at the receiver
	MigReq    bool   // M: path migration state; true for devices without migration
	Pad       uint8  // number of padding bytes after the payload, 0 to 3
	Version   uint8  // transport header version, 4 bits: 0
	PKey      uint16 // partition key
	FECN      bool   // the packet met congestion (RoCEv2 uses the IP header's ECN bits instead)
	BECN      bool   // set in congestion notification packets
	DestQP    uint32 // 24 bits
	AckReq    bool   // A: request an acknowledgement of this packet
	PSN       uint32 // 24 bits

	// Mark is the value of the 7 reserved bits next to AckReq, which a peer that does not
	// know it ignores: [ReadContinues] in some READ requests, and 0 otherwise.
	Mark uint8
}

// ReadContinues is the Mark of a READ request that continues the READ request before it: both are parts of one READ, with
// the same key, and the address is the first one that the other did not ask for.
const ReadContinues = 1

// PutBTH writes h to b[:BTHLen]. Fields are truncated to their width.
func PutBTH(b []byte, h *BTH) {
	_ = b[BTHLen-1]
	b[0] = byte(h.Opcode)
	b[1] = bit(h.Solicited, 7) | bit(h.MigReq, 6) | h.Pad&3<<4 | h.Version&15
	binary.BigEndian.PutUint16(b[2:], h.PKey)
	binary.BigEndian.PutUint32(b[4:], h.DestQP&QPNMask)
	b[4] = bit(h.FECN, 7) | bit(h.BECN, 6)
	binary.BigEndian.PutUint32(b[8:], h.PSN&PSNMask)
	b[8] = bit(h.AckReq, 7) | h.Mark&0x7f
}

// ParseBTH reads a BTH from the start of b. Reserved bits are ignored.
func ParseBTH(b []byte) BTH {
	_ = b[BTHLen-1]
	return BTH{
		Opcode:    Opcode(b[0]),
		Solicited: b[1]&0x80 != 0,
		MigReq:    b[1]&0x40 != 0,
		Pad:       b[1] >> 4 & 3,
		Version:   b[1] & 15,
		PKey:      binary.BigEndian.Uint16(b[2:]),
		FECN:      b[4]&0x80 != 0,
		BECN:      b[4]&0x40 != 0,
		DestQP:    binary.BigEndian.Uint32(b[4:]) & QPNMask,
		AckReq:    b[8]&0x80 != 0,
		Mark:      b[8] & 0x7f,
		PSN:       binary.BigEndian.Uint32(b[8:]) & PSNMask,
	}
}

// bit returns a byte with bit n set if on.
func bit(on bool, n uint) byte {
	if on {
		return 1 << n
	}
	return 0
}
