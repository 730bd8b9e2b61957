package wire

import "encoding/binary"

// Opcodes of masked atomics on a reliable connection, from the range that the specification
// leaves to manufacturers: the specification has no masked atomics, and the wire format of
// adapters is not public. On an extended reliable connection the opcodes are 0xf8 and 0xf9.
// An [AtomicETH] and a [MaskETH] follow, and AtomicAcknowledge answers.
const (
	MaskedCompareSwap Opcode = 0xd8
	MaskedFetchAdd    Opcode = 0xd9

	maskedXRC = 0x20 // bit of the opcodes on an extended reliable connection
)

// masked reports whether o is the opcode of a masked atomic.
func (o Opcode) masked() bool { return o&^(maskedXRC|1) == MaskedCompareSwap }

// MaskETHLen is the length of a MaskETH on the wire.
const MaskETHLen = 20

// MaskETH is the second extended header of masked atomics.
type MaskETH struct {
	Size    uint8  // bytes of the word, 4 or 8; numbers of 4 bytes are in the low halves of the fields
	Swap    uint64 // MaskedCompareSwap: the bits to store; MaskedFetchAdd: not used
	Compare uint64 // MaskedCompareSwap: the bits to compare; MaskedFetchAdd: the highest bit of each field
}

// PutMaskETH writes h to b[:MaskETHLen].
func PutMaskETH(b []byte, h *MaskETH) {
	_ = b[MaskETHLen-1]
	binary.BigEndian.PutUint32(b, uint32(h.Size))
	binary.BigEndian.PutUint64(b[4:], h.Swap)
	binary.BigEndian.PutUint64(b[12:], h.Compare)
}

// ParseMaskETH reads a MaskETH from the start of b. Reserved bits are ignored.
func ParseMaskETH(b []byte) MaskETH {
	_ = b[MaskETHLen-1]
	return MaskETH{Size: b[3], Swap: binary.BigEndian.Uint64(b[4:]), Compare: binary.BigEndian.Uint64(b[12:])}
}
