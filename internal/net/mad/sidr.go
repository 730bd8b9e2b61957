package mad

import (
	"fmt"

	"github.com/softmkey/softmkey/internal/base/bitfield"
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

func (m *SIDRREQ) fields(b []byte, f bitfield.Fields) {
	num(f, 0*8, 32, &m.RequestID)
	num(f, 4*8, 16, &m.PKey)
	num(f, 8*8, 64, &m.ServiceID)
	private(f, b[16:], &m.Private)
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

func (m *SIDRREP) fields(b []byte, f bitfield.Fields) {
	n := uint8(len(m.Info))
	num(f, 0*8, 32, &m.RequestID)
	num(f, 4*8, 8, &m.Status)
	num(f, 5*8, 8, &n)
	num(f, 8*8, 24, &m.QPN)
	num(f, 12*8, 64, &m.ServiceID)
	num(f, 20*8, 32, &m.QKey)
	private(f, b[24:24+min(int(n), ARILen)], &m.Info)
	private(f, b[96:], &m.Private)
}
