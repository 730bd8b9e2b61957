package wire

import "encoding/binary"

// ImmDtLen is the length of an ImmDt on the wire.
const ImmDtLen = 4

// ImmDt is the immediate data header of SEND and RDMA WRITE with immediate (section
// 9.3.6).
type ImmDt struct {
	Imm uint32
}

// PutImmDt writes h to b[:ImmDtLen].
func PutImmDt(b []byte, h *ImmDt) { binary.BigEndian.PutUint32(b, h.Imm) }

// ParseImmDt reads an ImmDt from the start of b.
func ParseImmDt(b []byte) (h ImmDt, n int, err error) {
	if len(b) < ImmDtLen {
		return ImmDt{}, 0, ErrShort
	}
	return ImmDt{Imm: binary.BigEndian.Uint32(b)}, ImmDtLen, nil
}
