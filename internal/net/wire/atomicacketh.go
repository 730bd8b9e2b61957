package wire

import "encoding/binary"

// AtomicAckETHLen is the length of an AtomicAckETH on the wire.
const AtomicAckETHLen = 8

// AtomicAckETH carries the result of an atomic operation (section 9.5.3).
type AtomicAckETH struct {
	Orig uint64 // previous value of the responder's memory
}

// PutAtomicAckETH writes h to b[:AtomicAckETHLen].
func PutAtomicAckETH(b []byte, h *AtomicAckETH) { binary.BigEndian.PutUint64(b, h.Orig) }

// ParseAtomicAckETH reads an AtomicAckETH from the start of b.
func ParseAtomicAckETH(b []byte) (h AtomicAckETH, n int, err error) {
	if len(b) < AtomicAckETHLen {
		return AtomicAckETH{}, 0, ErrShort
	}
	return AtomicAckETH{Orig: binary.BigEndian.Uint64(b)}, AtomicAckETHLen, nil
}
