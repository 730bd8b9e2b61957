package wire

import "encoding/binary"

// Syndrome is the meaning of an acknowledgement: its kind in bits 5 and 6 and a value in
// bits 0 to 4 (table 44).
type Syndrome uint8

// Kinds of Syndrome.
const (
	KindACK Syndrome = 0x00 // the value is a credit count code
	KindRNR Syndrome = 0x20 // receiver not ready; the value is a timer code
	KindNAK Syndrome = 0x60 // the value is an error code

	kindMask Syndrome = 0xe0 // bit 7 is reserved and 0
)

// Syndromes without a parameter (tables 44 and 46).
const (
	// ACKNoCredits acknowledges without end-to-end credits: with code 31 the
	// requester does not count the responder's receive requests.
	ACKNoCredits Syndrome = KindACK | 31

	NAKSequence          Syndrome = KindNAK // code 0: PSN sequence error
	NAKInvalidRequest    Syndrome = KindNAK | 1
	NAKRemoteAccess      Syndrome = KindNAK | 2
	NAKRemoteOperational Syndrome = KindNAK | 3
	NAKInvalidRDRequest  Syndrome = KindNAK | 4
)

// RNR returns the RNR NAK with timer code c.
func RNR(c uint8) Syndrome { return KindRNR | Syndrome(c&31) }

// Kind returns the syndrome's kind. Values other than the constants are reserved.
func (s Syndrome) Kind() Syndrome { return s & kindMask }

// Value returns the credit count code, the timer code or the error code, by kind.
func (s Syndrome) Value() uint8 { return uint8(s & 31) }

// AETH is the header of acknowledgements and of first, last and only packets of
// READ responses (section 9.3.5).
type AETH struct {
	Syndrome Syndrome
	MSN      uint32 // number of messages that the responder has completed, 24 bits
}

// PutAETH writes h to b[:AETHLen].
func PutAETH(b []byte, h *AETH) {
	binary.BigEndian.PutUint32(b, uint32(h.Syndrome)<<24|h.MSN&0xffffff)
}

// ParseAETH reads an AETH from the start of b.
func ParseAETH(b []byte) AETH {
	v := binary.BigEndian.Uint32(b)
	return AETH{Syndrome: Syndrome(v >> 24), MSN: v & 0xffffff}
}
