package wire

import (
	"cmp"
	"encoding/binary"
	"net/netip"
)

// GRHLen is the length of the global route header in a datagram's receive buffer.
const GRHLen = 40

// GRH is the network header at the start of a datagram's receive buffer. With IPv6 it is
// the IPv6 header; with IPv4 it is 20 zero bytes and the IPv4 header (annex A17.4.5.2). A
// UDP socket does not return the header, so fields that are not in GRH get the values
// that are usual for RoCEv2.
type GRH struct {
	Src, Dst netip.Addr
	TOS      byte   // IPv4 type of service or IPv6 traffic class
	ID       uint16 // IPv4 identification
	Length   int    // length of the UDP payload, from BTH to ICRC
	HopLimit uint8  // time to live or hop limit; 0: not known
	V1       bool   // the packet was one of RoCE v1: the header is InfiniBand's own
}

// nextBTH is the next header in the GRH of a RoCE v1 packet: InfiniBand's base transport header.
const nextBTH = 0x1b

// hopLimit is the value for the time to live if a UDP socket did not return it.
const hopLimit = 64

// PutGRH writes h to b[:GRHLen].
func PutGRH(b []byte, h *GRH) {
	b = b[:GRHLen]
	clear(b)
	hops := cmp.Or(h.HopLimit, hopLimit)
	if h.Src.Is4() && !h.V1 {
		p := b[ipv6Len-ipv4Len:]
		p[0], p[1] = 0x45, h.TOS
		binary.BigEndian.PutUint16(p[2:], uint16(ipv4Len+udpLen+h.Length))
		binary.BigEndian.PutUint16(p[4:], h.ID)
		p[6] = 0x40 // don't fragment
		p[8], p[9] = hops, udpPort
		src, dst := h.Src.As4(), h.Dst.As4()
		copy(p[12:], src[:])
		copy(p[16:], dst[:])
		binary.BigEndian.PutUint16(p[10:], ipv4Checksum(p))
		return
	}
	binary.BigEndian.PutUint32(b, 6<<28|uint32(h.TOS)<<20)
	binary.BigEndian.PutUint16(b[4:], uint16(udpLen+h.Length))
	b[6], b[7] = udpPort, hops
	if h.V1 {
		binary.BigEndian.PutUint16(b[4:], uint16(h.Length))
		b[6] = nextBTH
	}
	src, dst := h.Src.As16(), h.Dst.As16()
	copy(b[8:], src[:])
	copy(b[24:], dst[:])
}

// GRHDst returns the destination in a header that PutGRH wrote.
func GRHDst(b []byte) netip.Addr {
	if b[0]>>4 == 6 {
		return netip.AddrFrom16([16]byte(b[24:40])).Unmap()
	}
	return netip.AddrFrom4([4]byte(b[36:40]))
}

// ipv4Checksum returns the checksum of an IPv4 header whose checksum field is 0.
func ipv4Checksum(p []byte) uint16 {
	var sum uint32
	for i := 0; i < ipv4Len; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum>>16 + sum)
}
