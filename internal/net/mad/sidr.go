package mad

import (
	"encoding/binary"
	"fmt"
)

// The sizes of the private data of service ID resolution, in bytes.
const (
	SIDRREQPrivate = 216
	SIDRREPPrivate = 136
)

// SIDRREQ asks which QP serves datagrams for a service (section 12.11.1).
type SIDRREQ struct {
	RequestID uint32
	PKey      uint16
	ServiceID uint64
	Private   []byte
}

// Attr returns AttrSIDRREQ.
func (*SIDRREQ) Attr() Attr { return AttrSIDRREQ }

func (m *SIDRREQ) put(b []byte) {
	binary.BigEndian.PutUint32(b[0:], m.RequestID)
	binary.BigEndian.PutUint16(b[4:], m.PKey)
	binary.BigEndian.PutUint64(b[8:], m.ServiceID)
	putPrivate(b[16:], m.Private)
}

func parseSIDRREQ(b []byte) Message {
	return &SIDRREQ{
		RequestID: binary.BigEndian.Uint32(b[0:]), PKey: binary.BigEndian.Uint16(b[4:]),
		ServiceID: binary.BigEndian.Uint64(b[8:]), Private: b[16:],
	}
}

// SIDRStatus is the result of a service ID resolution.
type SIDRStatus uint8

// The statuses of section 12.11.2.
const (
	SIDRValid       SIDRStatus = 0
	SIDRUnsupported SIDRStatus = 1 // no QP serves the service ID
	SIDRRejected    SIDRStatus = 2 // by the service provider
	SIDRNoQP        SIDRStatus = 3
	SIDRRedirect    SIDRStatus = 4
	SIDRVersion     SIDRStatus = 5 // unsupported version
)

// String returns the status in words.
func (s SIDRStatus) String() string {
	names := [...]string{"valid", "service id not supported", "rejected by the service provider", "no QP available", "redirected", "unsupported version"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// SIDRREP answers a SIDRREQ (section 12.11.2).
type SIDRREP struct {
	RequestID uint32
	Status    SIDRStatus
	QPN       uint32 // 24 bits
	ServiceID uint64
	QKey      uint32
	Info      []byte // additional information, at most ARILen bytes
	Private   []byte
}

// Attr returns AttrSIDRREP.
func (*SIDRREP) Attr() Attr { return AttrSIDRREP }

func (m *SIDRREP) put(b []byte) {
	binary.BigEndian.PutUint32(b[0:], m.RequestID)
	b[4], b[5] = byte(m.Status), byte(len(m.Info))
	put24(b[8:], m.QPN)
	binary.BigEndian.PutUint64(b[12:], m.ServiceID)
	binary.BigEndian.PutUint32(b[20:], m.QKey)
	putPrivate(b[24:96], m.Info)
	putPrivate(b[96:], m.Private)
}

func parseSIDRREP(b []byte) Message {
	return &SIDRREP{
		RequestID: binary.BigEndian.Uint32(b[0:]), Status: SIDRStatus(b[4]), QPN: get24(b[8:]),
		ServiceID: binary.BigEndian.Uint64(b[12:]), QKey: binary.BigEndian.Uint32(b[20:]),
		Info: b[24 : 24+min(int(b[5]), ARILen)], Private: b[96:],
	}
}
