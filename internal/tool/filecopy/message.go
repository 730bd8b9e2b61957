package filecopy

import (
	"encoding/binary"
	"errors"

	"github.com/softmkey/softmkey/internal/tool/keyplan"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/sig"
)

// kind is the type of a control message.
type kind uint8

const (
	kindCredit kind = 1 + iota // receiver: chunk may be written or sent
	kindReady                  // sender: chunk may be read
	kindTaken                  // receiver: chunk was read
	kindDone                   // sender: all chunks were sent
	kindResult                 // receiver: all chunks are in place
	kindStop                   // either: the copy has failed
	kindBye                    // sender: no more will come
)

// messageSize holds the sizes of messages, by kind. None is shorter than the part of a
// SEND that Wireshark's heuristics read.
var messageSize = [...]int{kindCredit: 24, kindReady: 32, kindTaken: 16, kindDone: 136, kindResult: 96, kindStop: 56, kindBye: 16}

// maxText is the longest text of a STOP, in bytes.
const maxText = 160

// maxMessage is the size of the largest message.
const maxMessage = 56 + maxText

// reason is why a side stops.
type reason uint8

const (
	reasonFailed      reason = 1 + iota // an error, in words
	reasonBad                           // a bad signature
	reasonInterrupted                   // the user interrupted the copy
)

// message is a control message. Its kind decides which fields are valid.
type message struct {
	kind   kind
	rkey   uint32
	chunk  uint64 // number of a chunk; DONE: number of all chunks
	addr   uint64
	length uint64 // bytes; READY: of the chunk on the wire; DONE: of data; RESULT: of DST

	badChunks    uint64
	bad          *mkey.BadBlock
	memory, wire sample // DONE: memory is of SRC; RESULT: memory is of DST, and wire is unused

	reason reason
	text   string
}

var errMessage = errors.New("the other side sent a malformed control message")

// append appends the message's bytes to b.
func (m *message) append(b []byte) []byte {
	start := len(b)
	b = append(b, make([]byte, messageSize[m.kind])...)
	p := b[start:]
	p[0] = byte(m.kind)
	be := binary.BigEndian
	switch m.kind {
	case kindCredit, kindReady:
		be.PutUint32(p[4:], m.rkey)
		be.PutUint64(p[8:], m.chunk)
		be.PutUint64(p[16:], m.addr)
		if m.kind == kindReady {
			be.PutUint64(p[24:], m.length)
		}
	case kindTaken:
		be.PutUint64(p[8:], m.chunk)
	case kindDone:
		be.PutUint64(p[8:], m.chunk)
		be.PutUint64(p[16:], m.length)
		be.PutUint64(p[24:], m.badChunks)
		putBad(p[32:], m.bad)
		m.memory.put(p[72:])
		m.wire.put(p[104:])
	case kindResult:
		be.PutUint64(p[8:], m.length)
		be.PutUint64(p[16:], m.badChunks)
		putBad(p[24:], m.bad)
		m.memory.put(p[64:])
	case kindStop:
		text := m.text[:min(len(m.text), maxText)]
		p[1] = byte(m.reason)
		be.PutUint16(p[2:], uint16(len(text)))
		putBad(p[16:], m.bad)
		b = append(b, text...)
	}
	return b
}

// parseMessage reads a message of the other side.
func parseMessage(p []byte) (m message, err error) {
	if len(p) == 0 || p[0] == 0 || int(p[0]) >= len(messageSize) {
		return m, errMessage
	}
	m.kind = kind(p[0])
	fixed := messageSize[m.kind]
	if len(p) < fixed || len(p) > fixed && m.kind != kindStop {
		return m, errMessage
	}
	be := binary.BigEndian
	switch m.kind {
	case kindCredit, kindReady:
		m.rkey, m.chunk, m.addr = be.Uint32(p[4:]), be.Uint64(p[8:]), be.Uint64(p[16:])
		if m.kind == kindReady {
			m.length = be.Uint64(p[24:])
		}
	case kindTaken:
		m.chunk = be.Uint64(p[8:])
	case kindDone:
		m.chunk, m.length, m.badChunks = be.Uint64(p[8:]), be.Uint64(p[16:]), be.Uint64(p[24:])
		if m.bad, err = parseBad(p[32:]); err == nil {
			err = errors.Join(m.memory.parse(p[72:]), m.wire.parse(p[104:]))
		}
	case kindResult:
		m.length, m.badChunks = be.Uint64(p[8:]), be.Uint64(p[16:])
		if m.bad, err = parseBad(p[24:]); err == nil {
			err = m.memory.parse(p[64:])
		}
	case kindStop:
		m.reason = reason(p[1])
		if n := int(be.Uint16(p[2:])); n != len(p)-fixed || n > maxText || m.reason < reasonFailed || m.reason > reasonInterrupted {
			return m, errMessage
		}
		m.text = string(p[fixed:])
		if m.bad, err = parseBad(p[16:]); err == nil && (m.bad != nil) != (m.reason == reasonBad) {
			err = errMessage
		}
	}
	if (m.kind == kindDone || m.kind == kindResult) && (m.bad != nil) != (m.badChunks > 0) {
		err = errMessage
	}
	return m, err
}

// badSize is the size of a bad block in a message: kind, domain, key, block,
// offset, stored, computed; all zeros for none.
const badSize = 40

func putBad(p []byte, b *mkey.BadBlock) {
	if b == nil {
		return
	}
	be := binary.BigEndian
	p[0], p[1] = byte(b.Sig.Kind), byte(b.Domain)
	be.PutUint32(p[4:], b.Key)
	be.PutUint64(p[8:], b.Sig.Block)
	be.PutUint64(p[16:], b.Sig.Offset)
	be.PutUint64(p[24:], b.Sig.Stored)
	be.PutUint64(p[32:], b.Sig.Computed)
}

func parseBad(p []byte) (*mkey.BadBlock, error) {
	p = p[:badSize]
	if p[0] == 0 {
		return nil, nil
	}
	if sig.Kind(p[0]) > sig.BadAppTag || mkey.Domain(p[1]) > mkey.WireDomain {
		return nil, errMessage
	}
	be := binary.BigEndian
	return &mkey.BadBlock{
		Domain: mkey.Domain(p[1]), Key: be.Uint32(p[4:]),
		Sig: sig.Error{
			Kind: sig.Kind(p[0]), Block: be.Uint64(p[8:]), Offset: be.Uint64(p[16:]),
			Stored: be.Uint64(p[24:]), Computed: be.Uint64(p[32:]),
		},
	}, nil
}

// sample is the beginning of a domain: its first bytes and the field of its first
// block.
type sample struct {
	first [sampleBytes]byte
	n     int // valid bytes of first
	field [8]byte
	width int // valid bytes of field
}

const (
	sampleBytes = 16
	sampleSize  = 32 // in a message: two counts, 6 zero bytes, first, field
)

// sampleOf returns the sample of a domain that begins with p.
func sampleOf(p []byte, s keyplan.Stream) (l sample) {
	l.n = copy(l.first[:], p)
	if s.Signed() && int64(len(p)) >= s.Stride() {
		l.width = copy(l.field[:], p[s.Block:s.Stride()])
	}
	return l
}

func (l *sample) put(p []byte) {
	p[0], p[1] = byte(l.n), byte(l.width)
	copy(p[8:], l.first[:])
	copy(p[24:], l.field[:])
}

func (l *sample) parse(p []byte) error {
	p = p[:sampleSize]
	if p[0] > sampleBytes || p[1] > 8 {
		return errMessage
	}
	l.n, l.width = int(p[0]), int(p[1])
	copy(l.first[:], p[8:])
	copy(l.field[:], p[24:])
	return nil
}
