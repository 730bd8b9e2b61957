package umlpci

import (
	"encoding/binary"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// The fields of vhost-user and of virtio have the byte order of the host, which is the kernel's.
// Linux has User-mode Linux for little-endian processors only.
var le = binary.LittleEndian

// The messages of vhost-user that User-mode Linux sends.
const (
	reqGetFeatures         = 1
	reqSetFeatures         = 2
	reqSetOwner            = 3
	reqSetMemTable         = 5
	reqSetVringNum         = 8
	reqSetVringAddr        = 9
	reqSetVringBase        = 10
	reqSetVringKick        = 12
	reqSetVringCall        = 13
	reqGetProtocolFeatures = 15
	reqSetProtocolFeatures = 16
	reqSetVringEnable      = 18
	reqSetBackendFD        = 21

	headerSize    = 12
	maxPayload    = 512 // a table of 8 ranges has 264 bytes
	maxRegions    = 8
	regionSize    = 32
	version       = 1
	flagsVersion  = 3 // mask
	flagReply     = 1 << 2
	flagNeedReply = 1 << 3
	noDescriptor  = 1 << 8 // SET_VRING_KICK, SET_VRING_CALL: the message has none

	featureEventIndex = 1 << 29
	featureProtocol   = 1 << 30
	featureVersion1   = 1 << 32
	features          = featureEventIndex | featureProtocol | featureVersion1
	// The driver shares one interrupt between the device and its queues, which works only if
	// the device has a channel of its own: without it, EBUSY.
	protocolReplyAck = 1 << 3
	protocolBackend  = 1 << 5
	protocolFeatures = protocolReplyAck | protocolBackend
)

var requestNames = map[uint32]string{
	reqGetFeatures: "GET_FEATURES", reqSetFeatures: "SET_FEATURES", reqSetOwner: "SET_OWNER", reqSetMemTable: "SET_MEM_TABLE", reqSetVringNum: "SET_VRING_NUM",
	reqSetVringAddr: "SET_VRING_ADDR", reqSetVringBase: "SET_VRING_BASE", reqSetVringKick: "SET_VRING_KICK", reqSetVringCall: "SET_VRING_CALL",
	reqGetProtocolFeatures: "GET_PROTOCOL_FEATURES", reqSetProtocolFeatures: "SET_PROTOCOL_FEATURES", reqSetVringEnable: "SET_VRING_ENABLE",
	reqSetBackendFD: "SET_BACKEND_REQ_FD",
}

// header is the head of a message.
type header struct {
	request uint32
	flags   uint32
	size    uint32 // of the payload
}

// parseHeader decodes the head of a request. An error means that the stream cannot be read on.
func parseHeader(b *[headerSize]byte) (h header, err error) {
	h = header{request: le.Uint32(b[0:]), flags: le.Uint32(b[4:]), size: le.Uint32(b[8:])}
	switch {
	case h.flags&^flagNeedReply != version:
		return h, failure.New("vhost-user", syscall.EPROTO, "message %d with flags %#x: must be a request of version %d", h.request, h.flags, version)
	case h.size > maxPayload:
		return h, failure.New("vhost-user", syscall.EPROTO, "message %d of %d bytes: must be 0 to %d", h.request, h.size, maxPayload)
	}
	return h, nil
}

// reply encodes an answer, which is a number.
func (h *header) reply(v uint64) []byte {
	b := le.AppendUint32(nil, h.request)
	b = le.AppendUint32(b, version|flagReply)
	b = le.AppendUint32(b, 8)
	return le.AppendUint64(b, v)
}

func (h *header) name() string {
	if s, ok := requestNames[h.request]; ok {
		return s
	}
	return "unknown request"
}

// short refuses a payload with fewer bytes than the request has.
func short(b []byte, n int) error {
	if len(b) < n {
		return failure.New("vhost-user", syscall.EINVAL, "a payload of %d bytes: must have at least %d", len(b), n)
	}
	return nil
}

// The messages in the queues.
const (
	opConfigRead  = 1
	opConfigWrite = 2
	opBARRead     = 3
	opBARWrite    = 4
	opMSI         = 7

	accessSize = 16 // of a message without its data
	maxAccess  = 4096
)

// access is an access of the kernel to the device.
type access struct {
	op   byte
	bar  byte
	size uint32
	addr uint64
	data []byte // of a write: size bytes
}

// parseAccess decodes a message of queue 0. room is the number of bytes for the answer.
func parseAccess(b []byte, room uint64) (a access, err error) {
	const op = "PCI message"
	if len(b) < accessSize {
		return a, failure.New(op, syscall.EINVAL, "%d bytes: must be at least %d", len(b), accessSize)
	}
	a = access{op: b[0], bar: b[1], size: le.Uint32(b[4:]), addr: le.Uint64(b[8:])}
	switch b = b[accessSize:]; {
	case a.op < opConfigRead || a.op > opBARWrite:
		return a, failure.New(op, syscall.EINVAL, "operation %d: must be %d to %d", a.op, opConfigRead, opBARWrite)
	case a.op >= opBARRead && a.bar != 0:
		return a, failure.New(op, syscall.EINVAL, "BAR %d: the device has BAR 0", a.bar)
	case a.size == 0 || a.size > maxAccess:
		return a, failure.New(op, syscall.EINVAL, "%d bytes: must be 1 to %d", a.size, maxAccess)
	case a.reads() && uint64(a.size) > room:
		return a, failure.New(op, syscall.EINVAL, "a read of %d bytes with room for %d", a.size, room)
	case !a.reads() && int(a.size) > len(b):
		return a, failure.New(op, syscall.EINVAL, "a write of %d bytes has %d", a.size, len(b))
	case !a.reads():
		a.data = b[:a.size]
	}
	return a, nil
}

func (a *access) reads() bool { return a.op == opConfigRead || a.op == opBARRead }
