package wire

import "encoding/binary"

// Opcodes of selective repeat, from the range that the specification leaves to
// manufacturers. Only peers that agreed on it when they connected use them.
const (
	// SelectiveAck goes from responder to requester. The PSN of its BTH is the one
	// that the responder expects next; all before it were carried out. Behind the BTH
	// follows a bitmap, a multiple of 4 bytes long: bit i, counted from the least
	// significant bit of the first byte, says whether the packet PSN+1+i has arrived.
	SelectiveAck Opcode = 0xc1

	// RepeatResponses goes from requester to responder: it names the responses to READ
	// and atomic requests that are missing, as a list of [Span]. The Mark of its BTH
	// numbers it. The responder sends those responses before any others, and from then
	// on its responses carry that Mark: a response that is still missing then was lost
	// again. The PSN of its BTH grants responses: those before it may be sent.
	RepeatResponses Opcode = 0xc2
)

// MaxSelectiveAck is the largest number of bits in the bitmap of a SelectiveAck.
const MaxSelectiveAck = 4096

// The Mark of a READ request between such peers says how many of its responses may be
// sent before a RepeatResponses grants more: GrantUnit for each, all for 0, none for
// GrantNone.
const (
	GrantUnit = 16
	GrantNone = 0x7f
)

// MaxOutstanding is the largest number of outstanding READs and atomics that the Mark of
// a SEND or WRITE packet can state; see [OutstandingMark].
const MaxOutstanding = 0x7e

// OutstandingMark returns the Mark of a SEND or WRITE packet between such peers. It states
// that the requester has all responses of its earlier READs and atomics, except those of
// the newest n at most. The responder does not repeat the former any more: their memory
// may be in use for something else. OutstandingMark returns 0, which states nothing, if n
// does not fit.
func OutstandingMark(n int) uint8 {
	if n > MaxOutstanding {
		return 0
	}
	return uint8(n + 1)
}

// SpanLen is the length of a Span on the wire, and MaxSpans the largest number of them
// in a packet.
const (
	SpanLen  = 8
	MaxSpans = 64
)

// Span is a run of packets. A Span of 0 packets in a RepeatResponses states that all
// responses before First have arrived, so that none of them is to be sent again.
type Span struct {
	First uint32 // PSN, 24 bits
	Count uint32
}

// PutSpan writes h to b[:SpanLen].
func PutSpan(b []byte, h *Span) {
	_ = b[SpanLen-1]
	binary.BigEndian.PutUint32(b, h.First&PSNMask)
	binary.BigEndian.PutUint32(b[4:], h.Count)
}

// AppendSpan appends h to b.
func AppendSpan(b []byte, h *Span) []byte {
	b = binary.BigEndian.AppendUint32(b, h.First&PSNMask)
	return binary.BigEndian.AppendUint32(b, h.Count)
}

// ParseSpan reads a Span from the start of b.
func ParseSpan(b []byte) (h Span, n int, err error) {
	if len(b) < SpanLen {
		return Span{}, 0, ErrShort
	}
	return Span{First: binary.BigEndian.Uint32(b) & PSNMask, Count: binary.BigEndian.Uint32(b[4:])}, SpanLen, nil
}

// ParseSelective returns the body of packet p if it is a well-formed SelectiveAck or
// RepeatResponses.
func ParseSelective(p []byte) (body []byte, ok bool) {
	n := len(p) - BTHLen - ICRCLen
	switch {
	case n < 0 || p[1]&15 != 0 || p[1]>>4&3 != 0:
		return nil, false
	case Opcode(p[0]) == SelectiveAck:
		ok = n > 0 && n%4 == 0 && 8*n <= MaxSelectiveAck
	case Opcode(p[0]) == RepeatResponses:
		ok = n%SpanLen == 0 && n <= MaxSpans*SpanLen
	}
	return p[BTHLen : BTHLen+n], ok
}
