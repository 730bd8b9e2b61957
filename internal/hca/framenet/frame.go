package framenet

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/softmkey/softmkey/internal/net/wire"
)

var be = binary.BigEndian

const (
	headerEthernet = 14
	headerVLAN     = 4
	headerIPv4     = 20
	headerIPv6     = 40
	headerUDP      = 8
	headerGRH      = 40
	maxHeaders     = headerEthernet + headerVLAN + headerIPv6 + headerUDP

	typeIPv4 = 0x0800
	typeIPv6 = 0x86dd
	typeVLAN = 0x8100
	typeRoCE = 0x8915 // RoCE v1
	nextBTH  = 0x1b   // next header in a GRH: the base transport header
	protoUDP = 17

	dontFragment = 0x4000
	usualHops    = 64
)

// header holds the fields of a packet's Ethernet, IP and UDP headers.
type header struct {
	from, to MAC
	vlan     int // 0: no tag
	priority uint8
	src, dst netip.Addr
	srcPort  uint16
	tos      byte
	hopLimit uint8
	id       uint16 // IPv4
	v1       bool   // RoCE v1: a GRH in place of the headers of IP and UDP
}

// parse finds the payload of a UDP packet to the port of RoCEv2, or that of a packet of RoCE v1. It reports false for every
// other frame, and for one whose IP header is damaged. It does not check the UDP checksum,
// because RoCEv2 packets have a CRC, and adapters send the checksum 0.
func parse(b []byte) (h header, payload []byte, ok bool) {
	if len(b) < headerEthernet {
		return h, nil, false
	}
	copy(h.to[:], b)
	copy(h.from[:], b[6:])
	typ, b := be.Uint16(b[12:]), b[headerEthernet:]
	if typ == typeVLAN {
		if len(b) < headerVLAN {
			return h, nil, false
		}
		tag := be.Uint16(b)
		h.vlan, h.priority = int(tag&0xfff), uint8(tag>>13)
		typ, b = be.Uint16(b[2:]), b[headerVLAN:]
	}
	switch typ {
	case typeIPv4:
		b, ok = h.parse4(b)
	case typeIPv6:
		b, ok = h.parse6(b, protoUDP)
		ok = ok && !h.src.Is4In6() && !h.dst.Is4In6()
	case typeRoCE:
		return h.parseV1(b)
	}
	if !ok || len(b) < headerUDP || h.src.IsMulticast() || h.src.IsUnspecified() {
		return h, nil, false
	}
	size := int(be.Uint16(b[4:]))
	if be.Uint16(b[2:]) != udpPort || size < headerUDP || size > len(b) {
		return h, nil, false
	}
	h.srcPort = be.Uint16(b)
	return h, b[headerUDP:size], true
}

// parseV1 finds the payload of a packet of RoCE v1.
func (h header) parseV1(b []byte) (_ header, _ []byte, ok bool) {
	payload, ok := h.parse6(b, nextBTH)
	if !ok || len(payload) < wire.ICRCLen+wire.BTHLen {
		return h, nil, false
	}
	h.v1, h.srcPort, h.src, h.dst = true, udpPort, h.src.Unmap(), h.dst.Unmap()
	return h, payload, h.src.Is4() == h.dst.Is4() && !h.src.IsMulticast() && !h.src.IsUnspecified()
}

// fronts returns the beginnings of two invariant CRCs, over the headers before the BTH: of the packet of RoCE v1 with n
// bytes, and of the same packet in RoCEv2, which is the form that a port sends and receives.
func (h *header) fronts(n int) (v1, v2 wire.Front) {
	flow := wire.NewFlow(netip.AddrPortFrom(h.src, h.srcPort), netip.AddrPortFrom(h.dst, udpPort))
	return wire.FrontV1(h.src.As16(), h.dst.As16(), n), flow.Front(n)
}

// toV1 gives a packet that leaves the invariant CRC of RoCE v1.
func toV1(h *header, packet []byte) {
	v1, _ := h.fronts(len(packet))
	v1.PutICRC(packet)
}

// fromV1 returns a copy of a packet that has arrived, with the invariant CRC of RoCEv2. A damaged packet stays as
// it is, and the port counts it.
func fromV1(h *header, packet []byte) []byte {
	packet = bytes.Clone(packet)
	v1, v2 := h.fronts(len(packet))
	if v1.ICRC(packet) == binary.LittleEndian.Uint32(packet[len(packet)-wire.ICRCLen:]) {
		v2.PutICRC(packet)
	}
	return packet
}

func (h *header) parse4(b []byte) ([]byte, bool) {
	if len(b) < headerIPv4 || b[0] != 0x45 || b[9] != protoUDP || be.Uint16(b[6:])&^dontFragment != 0 || checksum(b[:headerIPv4]) != 0 {
		return nil, false
	}
	total := int(be.Uint16(b[2:]))
	if total < headerIPv4 || total > len(b) {
		return nil, false
	}
	h.tos, h.id, h.hopLimit = b[1], be.Uint16(b[4:]), b[8]
	h.src, h.dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	return b[headerIPv4:total], true
}

// parse6 decodes the IPv6 header or GRH at the start of b; both have one format. It returns the bytes after the header. ok
// is false if the header's field "next header" is not next.
func (h *header) parse6(b []byte, next byte) ([]byte, bool) {
	if len(b) < headerIPv6 || b[0]>>4 != 6 || b[6] != next {
		return nil, false
	}
	n := int(be.Uint16(b[4:]))
	if n > len(b)-headerIPv6 {
		return nil, false
	}
	h.tos, h.hopLimit = byte(be.Uint16(b)>>4), b[7]
	h.src, h.dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	return b[headerIPv6 : headerIPv6+n], true
}

// put writes the headers of a packet to a frame, before n bytes of payload, and returns their
// length. UDP's checksum is 0, as annex A17 wants it.
func (h *header) put(b []byte, n int) int {
	copy(b, h.to[:])
	copy(b[6:], h.from[:])
	at := 12
	if h.vlan != 0 {
		be.PutUint16(b[at:], typeVLAN)
		be.PutUint16(b[at+2:], uint16(h.priority)<<13|uint16(h.vlan))
		at += headerVLAN
	}
	hops := h.hopLimit
	if hops == 0 {
		hops = usualHops
	}
	if h.v1 {
		be.PutUint16(b[at:], typeRoCE)
		h.put6(b[at+2:], nextBTH, hops, n)
		return at + 2 + headerGRH
	}
	if h.src.Is4() {
		be.PutUint16(b[at:], typeIPv4)
		p := b[at+2:][:headerIPv4]
		p[0], p[1] = 0x45, h.tos
		be.PutUint16(p[2:], uint16(headerIPv4+headerUDP+n))
		be.PutUint16(p[4:], h.id)
		be.PutUint16(p[6:], dontFragment)
		p[8], p[9], p[10], p[11] = hops, protoUDP, 0, 0
		src, dst := h.src.As4(), h.dst.As4()
		copy(p[12:], src[:])
		copy(p[16:], dst[:])
		be.PutUint16(p[10:], checksum(p))
		at += 2 + headerIPv4
	} else {
		be.PutUint16(b[at:], typeIPv6)
		h.put6(b[at+2:], protoUDP, hops, headerUDP+n)
		at += 2 + headerIPv6
	}
	p := b[at:][:headerUDP]
	be.PutUint16(p, h.srcPort)
	be.PutUint16(p[2:], udpPort)
	be.PutUint16(p[4:], uint16(headerUDP+n))
	p[6], p[7] = 0, 0
	return at + headerUDP
}

// put6 writes a header of IPv6, or a GRH, before n bytes of the type next.
func (h *header) put6(b []byte, next, hops byte, n int) {
	be.PutUint32(b, 6<<28|uint32(h.tos)<<20)
	be.PutUint16(b[4:], uint16(n))
	b[6], b[7] = next, hops
	src, dst := h.src.As16(), h.dst.As16()
	copy(b[8:], src[:])
	copy(b[24:], dst[:])
}

// checksum returns the Internet checksum of a header. It is 0 for a header that contains the
// right checksum.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(be.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum>>16 + sum)
}

// groupMAC returns the MAC address of a multicast group.
func groupMAC(ip netip.Addr) MAC {
	if ip.Is4() {
		a := ip.As4()
		return MAC{0x01, 0x00, 0x5e, a[1] & 0x7f, a[2], a[3]}
	}
	a := ip.As16()
	return MAC{0x33, 0x33, a[12], a[13], a[14], a[15]}
}
