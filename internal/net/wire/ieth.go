package wire

import "encoding/binary"

// IETHLen is the length of an IETH on the wire.
const IETHLen = 4

// IETH is the header of a SEND with invalidate: the key to invalidate (section 9.3.7).
type IETH struct {
	RKey uint32
}

// PutIETH writes h to b[:IETHLen].
func PutIETH(b []byte, h *IETH) { binary.BigEndian.PutUint32(b, h.RKey) }

// ParseIETH reads an IETH from the start of b.
func ParseIETH(b []byte) (h IETH, n int, err error) {
	if len(b) < IETHLen {
		return IETH{}, 0, ErrShort
	}
	return IETH{RKey: binary.BigEndian.Uint32(b)}, IETHLen, nil
}
