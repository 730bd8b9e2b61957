package wire

import "encoding/binary"

// Opcodes of selective repeat, from the range that the specification leaves to
// manufacturers. Two peers use them only if both offered selective repeat when they
// connected.
const (
	// SelectiveAck goes from responder to requester. The PSN in its BTH is the next
	// one that the responder expects; all requests before it were executed. A bitmap
	// follows the BTH, with a length that is a multiple of 4 bytes: bit i, counted
	// from the least significant bit of the first byte, is set if packet PSN+1+i has
	// arrived. The Mark is the number of packets that arrived twice, modulo 128.
	SelectiveAck Opcode = 0xc1

	// RepeatResponses goes from requester to responder. It lists the READ and atomic
	// responses that are missing, as [Span]s. The Mark in its BTH is its number. The
	// responder sends the listed responses before others. The last of them and all
	// later responses carry that Mark, so a listed response that is still missing then
	// was lost again. The PSN in its BTH grants responses: the responder may send those before
	// that PSN.
	RepeatResponses Opcode = 0xc2
)

// MaxSelectiveAck is the largest number of bits in the bitmap of a SelectiveAck.
const MaxSelectiveAck = 8192

// The Mark of a READ request limits the responses that may be sent before a
// RepeatResponses grants more: Mark times GrantUnit responses, none for GrantNone, all
// for 0.
const (
	GrantUnit = 16
	GrantNone = 0x7f
)

// ReadContinues is the Mark of a READ request to a peer without selective repeat. It states
// that the request continues the READ request before it: both are parts of one READ, with
// the same key, and the address is the first one that the other did not ask for.
const ReadContinues = 1

// MaxOutstanding is the largest number of outstanding READs and atomics that the Mark of
// a SEND or WRITE packet can state; see [OutstandingMark].
const MaxOutstanding = 0x7e

// OutstandingMark returns the Mark of a SEND or WRITE packet. It states that the
// requester has all responses to its earlier READs and atomics, except for the newest n
// at most. The responder must not repeat the others, because the application may have
// reused their memory. OutstandingMark returns 0, which states nothing, if n exceeds
// MaxOutstanding.
func OutstandingMark(n int) uint8 {
	if n > MaxOutstanding {
		return 0
	}
	return uint8(n + 1)
}

// SpanLen is the length of a Span on the wire. MaxSpans is the largest number of Spans in
// a packet.
const (
	SpanLen  = 8
	MaxSpans = 64
)

// Span is a range of Count packets from First on. In a RepeatResponses, a Span of 0
// packets states that all responses before First have arrived and must not be repeated.
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

// ParseSpan reads a Span from the start of b.
func ParseSpan(b []byte) (h Span, n int, err error) {
	if len(b) < SpanLen {
		return Span{}, 0, ErrShort
	}
	return Span{First: binary.BigEndian.Uint32(b) & PSNMask, Count: binary.BigEndian.Uint32(b[4:])}, SpanLen, nil
}

// ParseSelective returns the body of packet p, and whether p is a well-formed
// SelectiveAck or RepeatResponses.
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
