package mad

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/softmkey/softmkey/internal/base/bitfield"
)

// Len is the size of every MAD, in bytes.
const Len = 256

// headerLen is the size of the common header; the message follows it.
const headerLen = 24

// The fixed values of the header of a communication manager's MAD.
const (
	baseVersion  = 1
	classCM      = 0x07 // management class ComMgt
	classVersion = 2
	methodSend   = 0x03 // ComMgtSend: every message, requests and replies alike
)

// Attr is the attribute of a MAD, which identifies the message.
type Attr uint16

// The attributes of the communication manager. LAP and APR, which move a
// connection to another path, have no message type here: RoCE has no alternate
// paths.
const (
	AttrREQ     Attr = 0x0010
	AttrMRA     Attr = 0x0011
	AttrREJ     Attr = 0x0012
	AttrREP     Attr = 0x0013
	AttrRTU     Attr = 0x0014
	AttrDREQ    Attr = 0x0015
	AttrDREP    Attr = 0x0016
	AttrSIDRREQ Attr = 0x0017
	AttrSIDRREP Attr = 0x0018
)

var attrNames = map[Attr]string{
	AttrREQ: "REQ", AttrMRA: "MRA", AttrREJ: "REJ", AttrREP: "REP", AttrRTU: "RTU",
	AttrDREQ: "DREQ", AttrDREP: "DREP", AttrSIDRREQ: "SIDR_REQ", AttrSIDRREP: "SIDR_REP",
}

// String returns the name of the message.
func (a Attr) String() string {
	if name, ok := attrNames[a]; ok {
		return name
	}
	return fmt.Sprintf("attribute(%#x)", uint16(a))
}

// Header is the part of the common MAD header that differs between messages.
type Header struct {
	TID      uint64 // transaction: a reply repeats that of its request
	Modifier uint32 // attribute modifier: the options of ECE in REQ and REP, else 0
}

// Message is one of the message types of this package.
type Message interface {
	// Attr returns the message's attribute.
	Attr() Attr

	// fields reads the message from a body of Len-headerLen bytes, or writes it to a zeroed one, as f says.
	fields(b []byte, f bitfield.Fields)
}

// The errors of Parse. MADs of other classes on QP 1 are not errors of the peer; the
// caller drops both.
var (
	ErrLength  = errors.New("mad: not 256 bytes")
	ErrClass   = errors.New("mad: not a message of the communication manager, class 7 version 2, method Send")
	ErrUnknown = errors.New("mad: unknown attribute of the communication manager")
)

// Append appends a MAD to b. It panics if private data is longer than the message's
// field.
func Append(b []byte, h Header, m Message) []byte {
	n := len(b)
	b = append(b, make([]byte, Len)...)
	p := b[n:]
	p[0], p[1], p[2], p[3] = baseVersion, classCM, classVersion, methodSend
	binary.BigEndian.PutUint64(p[8:], h.TID)
	binary.BigEndian.PutUint16(p[16:], uint16(m.Attr()))
	binary.BigEndian.PutUint32(p[20:], h.Modifier)
	m.fields(p[headerLen:], bitfield.Write(p[headerLen:], 0))
	return b
}

// Parse decodes a MAD. The private data of the message is a part of b. It has the full
// length of its field, because MADs do not carry the length.
func Parse(b []byte) (Header, Message, error) {
	if len(b) != Len {
		return Header{}, nil, ErrLength
	}
	if b[0] != baseVersion || b[1] != classCM || b[2] != classVersion || b[3] != methodSend {
		return Header{}, nil, ErrClass
	}
	h := Header{TID: binary.BigEndian.Uint64(b[8:]), Modifier: binary.BigEndian.Uint32(b[20:])}
	empty, ok := messagesOf[Attr(binary.BigEndian.Uint16(b[16:]))]
	if !ok {
		return h, nil, ErrUnknown
	}
	m := empty()
	m.fields(b[headerLen:], bitfield.Read(b[headerLen:], 0))
	return h, m, nil
}

var messagesOf = map[Attr]func() Message{
	AttrREQ: func() Message { return new(REQ) }, AttrMRA: func() Message { return new(MRA) }, AttrREJ: func() Message { return new(REJ) },
	AttrREP: func() Message { return new(REP) }, AttrRTU: func() Message { return new(RTU) }, AttrDREQ: func() Message { return new(DREQ) },
	AttrDREP: func() Message { return new(DREP) }, AttrSIDRREQ: func() Message { return new(SIDRREQ) }, AttrSIDRREP: func() Message { return new(SIDRREP) },
}

// private is private data, and its field of a message.
func private(f bitfield.Fields, field []byte, data *[]byte) {
	switch {
	case !f.Writing():
		*data = field
	case len(*data) > len(field):
		panic(fmt.Sprintf("mad: %d bytes of private data in a field of %d", len(*data), len(field)))
	default:
		copy(field, *data)
	}
}

func num[T ~uint8 | ~uint16 | ~uint32 | ~uint64](f bitfield.Fields, off, n int, v *T) {
	bitfield.Number(f, off, n, v)
}
