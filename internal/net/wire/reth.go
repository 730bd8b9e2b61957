package wire

import "encoding/binary"

// RETHLen is the length of a RETH on the wire.
const RETHLen = 16

// RETH is the RDMA extended transport header of READ requests and of first and only
// packets of RDMA WRITE (section 9.3.3).
type RETH struct {
	VA     uint64 // address at the responder
	RKey   uint32
	Length uint32 // length of the message, not of the packet
}

// PutRETH writes h to b[:RETHLen].
func PutRETH(b []byte, h *RETH) {
	_ = b[RETHLen-1]
	binary.BigEndian.PutUint64(b, h.VA)
	binary.BigEndian.PutUint32(b[8:], h.RKey)
	binary.BigEndian.PutUint32(b[12:], h.Length)
}

// ParseRETH reads a RETH from the start of b.
func ParseRETH(b []byte) (h RETH, n int, err error) {
	if len(b) < RETHLen {
		return RETH{}, 0, ErrShort
	}
	return RETH{
		VA:     binary.BigEndian.Uint64(b),
		RKey:   binary.BigEndian.Uint32(b[8:]),
		Length: binary.BigEndian.Uint32(b[12:]),
	}, RETHLen, nil
}
