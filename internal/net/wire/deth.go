package wire

import "encoding/binary"

// DETHLen is the length of a DETH on the wire.
const DETHLen = 8

// DETH is the datagram extended transport header of the packets of unreliable datagram
// QPs (section 9.3.2).
type DETH struct {
	QKey  uint32 // must equal the Q_Key of the receiving QP
	SrcQP uint32 // 24 bits
}

// PutDETH writes h to b[:DETHLen].
func PutDETH(b []byte, h *DETH) {
	_ = b[DETHLen-1]
	binary.BigEndian.PutUint32(b, h.QKey)
	binary.BigEndian.PutUint32(b[4:], h.SrcQP&QPNMask)
}

// ParseDETH reads a DETH from the start of b. Reserved bits are ignored.
func ParseDETH(b []byte) (h DETH, n int, err error) {
	if len(b) < DETHLen {
		return DETH{}, 0, ErrShort
	}
	return DETH{QKey: binary.BigEndian.Uint32(b), SrcQP: binary.BigEndian.Uint32(b[4:]) & QPNMask}, DETHLen, nil
}
