package wire

import "encoding/binary"

// AtomicETHLen is the length of an AtomicETH on the wire.
const AtomicETHLen = 28

// AtomicETH is the extended header of compare-and-swap and fetch-and-add
// requests (section 9.3.4).
type AtomicETH struct {
	VA      uint64 // address at the responder, a multiple of 8
	RKey    uint32
	SwapAdd uint64 // CmpSwap: the value to store; FetchAdd: the value to add
	Compare uint64 // CmpSwap: the value to compare with; FetchAdd: not used
}

// PutAtomicETH writes h to b[:AtomicETHLen].
func PutAtomicETH(b []byte, h *AtomicETH) {
	_ = b[AtomicETHLen-1]
	binary.BigEndian.PutUint64(b, h.VA)
	binary.BigEndian.PutUint32(b[8:], h.RKey)
	binary.BigEndian.PutUint64(b[12:], h.SwapAdd)
	binary.BigEndian.PutUint64(b[20:], h.Compare)
}

// ParseAtomicETH reads an AtomicETH from the start of b.
func ParseAtomicETH(b []byte) (h AtomicETH, n int, err error) {
	if len(b) < AtomicETHLen {
		return AtomicETH{}, 0, ErrShort
	}
	return AtomicETH{
		VA:      binary.BigEndian.Uint64(b),
		RKey:    binary.BigEndian.Uint32(b[8:]),
		SwapAdd: binary.BigEndian.Uint64(b[12:]),
		Compare: binary.BigEndian.Uint64(b[20:]),
	}, AtomicETHLen, nil
}
