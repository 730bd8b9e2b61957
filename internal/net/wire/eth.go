package wire

import "encoding/binary"

// Lengths of the extended headers on the wire. Four of them are one number: the result of an atomic operation
// (AtomicAckETH, section 9.5.3), immediate data (ImmDt, section 9.3.6), the key that a SEND with invalidate names (IETH,
// section 9.3.7), and the shared receive queue of a request, of 24 bits (XRCETH, annex A14).
const (
	DETHLen         = 8
	XRCETHLen       = 4
	RETHLen         = 16
	AtomicETHLen    = 28
	AETHLen         = 4
	AtomicAckETHLen = 8
	ImmDtLen        = 4
	IETHLen         = 4
)

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
func ParseDETH(b []byte) DETH {
	return DETH{QKey: binary.BigEndian.Uint32(b), SrcQP: binary.BigEndian.Uint32(b[4:]) & QPNMask}
}

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
func ParseRETH(b []byte) RETH {
	_ = b[RETHLen-1]
	return RETH{VA: binary.BigEndian.Uint64(b), RKey: binary.BigEndian.Uint32(b[8:]), Length: binary.BigEndian.Uint32(b[12:])}
}

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
func ParseAtomicETH(b []byte) AtomicETH {
	_ = b[AtomicETHLen-1]
	return AtomicETH{
		VA:      binary.BigEndian.Uint64(b),
		RKey:    binary.BigEndian.Uint32(b[8:]),
		SwapAdd: binary.BigEndian.Uint64(b[12:]),
		Compare: binary.BigEndian.Uint64(b[20:]),
	}
}
