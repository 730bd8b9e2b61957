package mad

import (
	"encoding/binary"
	"net/netip"
)

// PortSpace is a space of port numbers of the RDMA IP CM service (annex A11):
// bytes 4 and 5 of its service IDs.
type PortSpace uint16

// The port spaces of enum rdma_ucm_port_space for IP addresses.
const (
	PortSpaceIPoIB PortSpace = 0x0002
	PortSpaceTCP   PortSpace = 0x0106
	PortSpaceUDP   PortSpace = 0x0111
	PortSpaceIB    PortSpace = 0x013f
)

// ServiceID returns the service ID of a port.
func ServiceID(ps PortSpace, port uint16) uint64 { return uint64(ps)<<16 | uint64(port) }

// SplitServiceID returns the port space and the port of a service ID of the
// RDMA IP CM service, and whether the ID is one.
func SplitServiceID(id uint64) (PortSpace, uint16, bool) {
	return PortSpace(id >> 16), uint16(id), id>>24 == 1
}

// IPHeaderLen is the size of an IPHeader, in bytes.
const IPHeaderLen = 36

// IPHeader is the start of the private data of a REQ or SIDRREQ for a service of the RDMA
// IP CM service (section A11.2). Both addresses must have the same version.
type IPHeader struct {
	Port     uint16 // the sender's port
	Src, Dst netip.Addr
}

// AppendIPHeader appends the header to b.
func AppendIPHeader(b []byte, h IPHeader) []byte {
	n := len(b)
	b = append(b, make([]byte, IPHeaderLen)...)
	p := b[n:]
	binary.BigEndian.PutUint16(p[2:], h.Port)
	src, dst := h.Src.Unmap(), h.Dst.Unmap()
	if src.Is4() && dst.Is4() {
		p[1] = 4 << 4
		putIPv4(p[4:], src)
		putIPv4(p[20:], dst)
		return b
	}
	p[1] = 6 << 4
	s, d := src.As16(), dst.As16()
	copy(p[4:], s[:])
	copy(p[20:], d[:])
	return b
}

// putIPv4 writes an IPv4 address into the last four bytes of a field of 16.
func putIPv4(field []byte, a netip.Addr) {
	v := a.As4()
	copy(field[12:], v[:])
}

// ParseIPHeader decodes the header and returns it with the private data after it. It
// returns false for data that is too short or of another version.
func ParseIPHeader(b []byte) (IPHeader, []byte, bool) {
	if len(b) < IPHeaderLen || b[0]>>4 != 0 {
		return IPHeader{}, nil, false
	}
	h := IPHeader{Port: binary.BigEndian.Uint16(b[2:])}
	switch b[1] >> 4 {
	case 4:
		h.Src, h.Dst = netip.AddrFrom4([4]byte(b[16:20])), netip.AddrFrom4([4]byte(b[32:36]))
	case 6:
		h.Src, h.Dst = netip.AddrFrom16([16]byte(b[4:20])), netip.AddrFrom16([16]byte(b[20:36]))
	default:
		return IPHeader{}, nil, false
	}
	return h, b[IPHeaderLen:], true
}
