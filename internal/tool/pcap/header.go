package pcap

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

const (
	ipv4Len  = 20
	ipv6Len  = 40
	udpLen   = 8
	protoUDP = 17
	ttl      = 64
)

// appendPacket appends an IP packet with the given payload to b. The addresses
// are of one family; id is for IPv4, and hops is 0 if the hop limit is the system's.
func appendPacket(b []byte, src, dst netip.AddrPort, tos, hops byte, id uint16, payload []byte) []byte {
	if hops == 0 {
		hops = ttl
	}
	length := udpLen + len(payload)
	// The UDP checksum covers a pseudo header: addresses, protocol and length.
	var sum uint64
	if src.Addr().Is4() {
		s, d := src.Addr().As4(), dst.Addr().As4()
		at := len(b)
		b = append(b, 0x45, tos)
		b = binary.BigEndian.AppendUint16(b, uint16(ipv4Len+length))
		b = binary.BigEndian.AppendUint16(b, id)
		b = append(b, 0x40, 0, hops, protoUDP, 0, 0)
		b = append(b, s[:]...)
		b = append(b, d[:]...)
		binary.BigEndian.PutUint16(b[at+10:], ^fold(add(0, b[at:])))
		sum = add(add(0, s[:]), d[:])
	} else {
		s, d := src.Addr().As16(), dst.Addr().As16()
		b = append(b, 0x60|tos>>4, tos<<4, 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(length))
		b = append(b, protoUDP, hops)
		b = append(b, s[:]...)
		b = append(b, d[:]...)
		sum = add(add(0, s[:]), d[:])
	}
	at := len(b)
	b = binary.BigEndian.AppendUint16(b, src.Port())
	b = binary.BigEndian.AppendUint16(b, dst.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(length))
	b = append(b, 0, 0)
	b = append(b, payload...)
	// The protocol and the length are a word each in the pseudo header.
	sum = addWord(addWord(sum, protoUDP), uint64(length))
	check := ^fold(add(sum, b[at:]))
	if check == 0 {
		check = 0xffff // 0 would mean that there is none (RFC 768)
	}
	binary.BigEndian.PutUint16(b[at+6:], check)
	return b
}

// add adds the big-endian words of b to a ones' complement sum. Sums of 64 bits
// fold to the same 16 bits as sums of 16 (RFC 1071, section 2), so eight bytes go
// at once.
func add(sum uint64, b []byte) uint64 {
	for ; len(b) >= 8; b = b[8:] {
		sum = addWord(sum, binary.BigEndian.Uint64(b))
	}
	if len(b) > 0 {
		var last [8]byte
		copy(last[:], b)
		sum = addWord(sum, binary.BigEndian.Uint64(last[:]))
	}
	return sum
}

func addWord(sum, w uint64) uint64 {
	s, carry := bits.Add64(sum, w, 0)
	return s + carry
}

func fold(sum uint64) uint16 {
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}
