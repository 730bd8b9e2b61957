package wire

import "encoding/binary"

// XRCETHLen is the length of an XRCETH on the wire.
const XRCETHLen = 4

// XRCETH is the extended reliable connection header, which names the shared receive queue
// of a request (annex A14).
type XRCETH struct {
	SRQ uint32 // 24 bits
}

// PutXRCETH writes h to b[:XRCETHLen].
func PutXRCETH(b []byte, h *XRCETH) { binary.BigEndian.PutUint32(b, h.SRQ&QPNMask) }

// ParseXRCETH reads an XRCETH from the start of b. The reserved bits are ignored.
func ParseXRCETH(b []byte) (h XRCETH, n int, err error) {
	if len(b) < XRCETHLen {
		return XRCETH{}, 0, ErrShort
	}
	return XRCETH{SRQ: binary.BigEndian.Uint32(b) & QPNMask}, XRCETHLen, nil
}
