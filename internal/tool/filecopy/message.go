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

// fields moves the fields of a message between m and its bytes, except for the kind and the text, and the length of that.
func (m *message) fields(c *codec) {
	switch m.kind {
	case kindCredit, kindReady:
		c.at(4, &m.rkey)
		c.at(8, &m.chunk)
		c.at(16, &m.addr)
		if m.kind == kindReady {
			c.at(24, &m.length)
		}
	case kindTaken:
		c.at(8, &m.chunk)
	case kindDone:
		c.at(8, &m.chunk)
		c.at(16, &m.length)
		c.at(24, &m.badChunks)
		c.badBlock(32, &m.bad)
		c.at(72, &m.memory)
		c.at(104, &m.wire)
	case kindResult:
		c.at(8, &m.length)
		c.at(16, &m.badChunks)
		c.badBlock(24, &m.bad)
		c.at(64, &m.memory)
	case kindStop:
		c.at(1, &m.reason)
		c.badBlock(16, &m.bad)
	}
}

// append appends the message's bytes to b.
func (m *message) append(b []byte) []byte {
	p := make([]byte, messageSize[m.kind])
	p[0] = byte(m.kind)
	m.fields(&codec{p: p, writes: true})
	if m.kind != kindStop {
		return append(b, p...)
	}
	text := m.text[:min(len(m.text), maxText)]
	binary.BigEndian.PutUint16(p[2:], uint16(len(text)))
	return append(append(b, p...), text...)
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
	c := codec{p: p}
	m.fields(&c)
	wrong := c.wrong
	switch m.kind {
	case kindDone, kindResult:
		wrong = wrong || (m.bad != nil) != (m.badChunks > 0) || !m.memory.valid() || !m.wire.valid()
	case kindStop:
		n := int(binary.BigEndian.Uint16(p[2:]))
		wrong = wrong || n != len(p)-fixed || n > maxText || m.reason < reasonFailed || m.reason > reasonInterrupted || (m.bad != nil) != (m.reason == reasonBad)
		m.text = string(p[fixed:])
	}
	if wrong {
		return m, errMessage
	}
	return m, nil
}

// codec moves fields between the bytes of a message and variables, in one of the two directions.
type codec struct {
	p      []byte
	writes bool // to p
	wrong  bool // what was read is no bad block
}

// at moves a field, to which v points, from or to an offset.
func (c *codec) at(offset int, v any) {
	var err error
	if c.writes {
		_, err = binary.Encode(c.p[offset:], binary.BigEndian, v)
	} else {
		_, err = binary.Decode(c.p[offset:], binary.BigEndian, v)
	}
	if err != nil {
		panic(err) // messageSize has room for every field
	}
}

// badBlock moves a bad block: kind, domain, key, block, offset, stored, computed; all zeros for none.
func (c *codec) badBlock(offset int, b **mkey.BadBlock) {
	var r struct {
		Kind                            sig.Kind
		Domain                          mkey.Domain
		_                               [2]byte
		Key                             uint32
		Block, Offset, Stored, Computed uint64
	}
	if from := *b; c.writes && from != nil {
		r.Kind, r.Domain, r.Key = from.Sig.Kind, from.Domain, from.Key
		r.Block, r.Offset, r.Stored, r.Computed = from.Sig.Block, from.Sig.Offset, from.Sig.Stored, from.Sig.Computed
	}
	c.at(offset, &r)
	if !c.writes && r.Kind != 0 {
		c.wrong = c.wrong || r.Kind > sig.BadAppTag || r.Domain > mkey.WireDomain
		*b = &mkey.BadBlock{Domain: r.Domain, Key: r.Key, Sig: sig.Error{Kind: r.Kind, Block: r.Block, Offset: r.Offset, Stored: r.Stored, Computed: r.Computed}}
	}
}

// sample is the beginning of a domain: its first bytes and the field of its first block. Its fields are those of a
// message.
type sample struct {
	N     uint8 // valid bytes of First
	Width uint8 // valid bytes of Field
	_     [6]byte
	First [16]byte
	Field [8]byte
}

// sampleOf returns the sample of a domain that begins with p.
func sampleOf(p []byte, s keyplan.Stream) (l sample) {
	l.N = uint8(copy(l.First[:], p))
	if s.Signed() && int64(len(p)) >= s.Stride() {
		l.Width = uint8(copy(l.Field[:], p[s.Block:s.Stride()]))
	}
	return l
}

// valid reports whether the counts of a sample that was read are within its bytes.
func (l *sample) valid() bool { return int(l.N) <= len(l.First) && int(l.Width) <= len(l.Field) }
