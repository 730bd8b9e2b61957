package ether

import "encoding/binary"

var be = binary.BigEndian

// Frames.
const (
	// MaxFrame is the largest frame, VLAN tags included.
	MaxFrame = 9978 + 14 + 8

	headerEthernet = 14
	typeIPv4       = 0x0800
	typeIPv6       = 0x86dd
	typeCVLAN      = 0x8100
	typeSVLAN      = 0x88a8
	protoTCP       = 6
	protoUDP       = 17
)

// layers are the headers of a frame, as far as they are there in full.
type layers struct {
	l3     int    // offset of the IP header; 0: no IP
	l4     int    // offset of the TCP or UDP header; 0: none, or a fragment
	end    int    // of the IP packet; padding follows
	typ    uint16 // EtherType behind VLAN tags
	proto  uint8
	frag   bool
	cvlan  bool
	svlan  bool
	vlan   uint16 // tag control information of the outermost tag
	v6     bool
	l4Size int // of the TCP or UDP header
}

// parse finds the headers of a frame, which has an Ethernet header at least.
func parse(b []byte) (l layers) {
	at := 12
	for tags := 0; tags < 2 && at+4 <= len(b); tags++ {
		t := be.Uint16(b[at:])
		if t != typeCVLAN && t != typeSVLAN {
			break
		}
		if tags == 0 {
			l.vlan = be.Uint16(b[at+2:])
			l.cvlan, l.svlan = t == typeCVLAN, t == typeSVLAN
		}
		at += 4
	}
	if at+2 > len(b) {
		return l
	}
	l.typ = be.Uint16(b[at:])
	at += 2
	switch l.typ {
	case typeIPv4:
		l.parse4(b, at)
	case typeIPv6:
		l.parse6(b, at)
	}
	if l.l4 == 0 {
		return l
	}
	switch l.proto {
	case protoTCP:
		if l.l4Size = 20; l.l4+20 <= l.end {
			l.l4Size = int(b[l.l4+12]>>4) * 4
		}
		if l.l4Size < 20 {
			l.l4 = 0
		}
	case protoUDP:
		l.l4Size = 8
	default:
		l.l4 = 0
	}
	if l.l4+l.l4Size > l.end {
		l.l4 = 0
	}
	return l
}

func (l *layers) parse4(b []byte, at int) {
	if at+20 > len(b) || b[at]>>4 != 4 {
		return
	}
	size, total := int(b[at]&0xf)*4, int(be.Uint16(b[at+2:]))
	if size < 20 || total < size || at+total > len(b) {
		return
	}
	l.l3, l.end, l.proto = at, at+total, b[at+9]
	l.frag = be.Uint16(b[at+6:])&0x3fff != 0
	if !l.frag {
		l.l4 = at + size
	}
}

func (l *layers) parse6(b []byte, at int) {
	if at+40 > len(b) || b[at]>>4 != 6 {
		return
	}
	total := 40 + int(be.Uint16(b[at+4:]))
	if at+total > len(b) {
		return
	}
	l.v6, l.l3, l.end, l.proto = true, at, at+total, b[at+6]
	l.frag = l.proto == 44
	if !l.frag {
		l.l4 = at + 40
	}
}

// sum adds the 16-bit words of b to a ones' complement sum that is not folded. b begins at
// an even offset of the summed data.
func sum(s uint32, b []byte) uint32 {
	t := uint64(s)
	for ; len(b) >= 4; b = b[4:] {
		t += uint64(be.Uint32(b))
	}
	if len(b) >= 2 {
		t += uint64(be.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		t += uint64(b[0]) << 8
	}
	for t>>32 != 0 {
		t = t>>32 + t&0xffffffff
	}
	return uint32(t)
}

// fold makes a sum one of 16 bits.
func fold(s uint32) uint16 {
	for s>>16 != 0 {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// packetSum returns the ones' complement sum of the IP packet, or of all behind the
// Ethernet header if there is none.
func packetSum(b []byte, l *layers) uint16 {
	if l.l3 == 0 {
		return fold(sum(0, b[min(headerEthernet, len(b)):]))
	}
	return fold(sum(0, b[l.l3:l.end]))
}

// fillChecksums writes the checksums that are asked for. A frame without the headers stays
// as it is.
func fillChecksums(b []byte, l *layers, l3, l4 bool) {
	if l3 && l.l3 != 0 && !l.v6 {
		end := l.l3 + int(b[l.l3]&0xf)*4
		be.PutUint16(b[l.l3+10:], 0)
		be.PutUint16(b[l.l3+10:], ^fold(sum(0, b[l.l3:end])))
	}
	if !l4 || l.l4 == 0 {
		return
	}
	at := l.l4 + 16
	if l.proto == protoUDP {
		at = l.l4 + 6
	}
	be.PutUint16(b[at:], 0)
	s := sum(uint32(l.proto)+uint32(l.end-l.l4), addresses(b, l))
	v := ^fold(sum(s, b[l.l4:l.end]))
	if v == 0 && l.proto == protoUDP {
		v = 0xffff // 0 means no checksum
	}
	be.PutUint16(b[at:], v)
}

// addresses returns the source and the destination address of an IP packet.
func addresses(b []byte, l *layers) []byte {
	if l.v6 {
		return b[l.l3+8 : l.l3+40]
	}
	return b[l.l3+12 : l.l3+20]
}
