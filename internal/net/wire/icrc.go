package wire

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
	"sync/atomic"

	"github.com/softmkey/softmkey/internal/base/kernel/icrc"
)

// The invariant CRC (annex A17.3.3) is the CRC-32 of Ethernet over the parts of a packet
// that no switch or router changes. The input is 8 bytes of ones in place of InfiniBand's
// link header, the IP header, the UDP header and the packet. Fields that change on the
// way count as ones: IPv4's type of service, time to live and header checksum; IPv6's
// traffic class, flow label and hop limit; the UDP checksum; and the byte of the BTH with
// FECN and BECN. The CRC is sent least significant byte first, as in Ethernet.
//
// CRC values in this file are those of hash/crc32, which are inverted at both ends. The
// difference (XOR) of two CRCs is not affected by the inversion.

const (
	ipv4Len = 20
	ipv6Len = 40
	udpLen  = 8
	udpPort = 17 // UDP's number as an IP protocol
)

// Flow is one direction between two sockets: the addresses and ports that the invariant
// CRC covers. The zero value is not valid.
type Flow struct {
	crc  uint32 // CRC of everything before the BTH, with lengths and identification of 0
	ipv4 bool
}

// NewFlow returns the flow from src to dst. Both addresses must be of the same family.
func NewFlow(src, dst netip.AddrPort) Flow {
	p := make([]byte, 0, 8+ipv6Len+udpLen)
	p = append(p, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	ipv4 := src.Addr().Is4()
	if ipv4 {
		p = append(p, 0x45, 0xff, 0, 0, 0, 0, 0x40, 0) // version, type of service, length, identification, don't fragment
		p = append(p, 0xff, udpPort, 0xff, 0xff)
	} else {
		p = append(p, 0x6f, 0xff, 0xff, 0xff, 0, 0, udpPort, 0xff)
	}
	p = append(p, src.Addr().AsSlice()...)
	p = append(p, dst.Addr().AsSlice()...)
	p = binary.BigEndian.AppendUint16(p, src.Port())
	p = binary.BigEndian.AppendUint16(p, dst.Port())
	p = append(p, 0, 0, 0xff, 0xff) // length, checksum
	return Flow{crc: crc32.ChecksumIEEE(p), ipv4: ipv4}
}

// Front is the CRC of everything before the BTH, for packets of one flow, length and
// identification.
type Front Flow

// FrontV1 returns the Front for packets of RoCE v1 with n bytes, from BTH to CRC. Their GRH has the layout of
// an IPv6 header, and no UDP header follows.
func FrontV1(src, dst [16]byte, n int) Front {
	p := make([]byte, 0, 8+ipv6Len)
	p = append(p, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	p = append(p, 0x6f, 0xff, 0xff, 0xff, byte(n>>8), byte(n), nextBTH, 0xff)
	p = append(p, src[:]...)
	return Front{crc: crc32.ChecksumIEEE(append(p, dst[:]...))}
}

// Front returns the Front for packets of n bytes, from BTH to CRC, and for identification
// 0.
//
// Because the CRC is linear, the effect of a field on it depends only on the field's
// value and on the number of bytes after the field, not on their contents.
func (f Flow) Front(n int) Front {
	if f.ipv4 {
		f.crc ^= ipv4LenEffect.of(uint16(ipv4Len + udpLen + n))
	} else {
		f.crc ^= ipv6LenEffect.of(uint16(udpLen + n))
	}
	f.crc ^= udpLenEffect.of(uint16(udpLen + n))
	return Front(f)
}

// WithID returns the Front for an IPv4 identification; f must be for identification 0.
// IPv6 has no identification, so WithID then returns f.
func (f Front) WithID(id uint16) Front {
	if f.ipv4 {
		f.crc ^= idEffect.of(id)
	}
	return f
}

// An effect is a table of the change that each value of a two-byte field makes to the
// CRC.
type effect [2][256]uint32

// The header fields that vary per packet.
var (
	ipv4LenEffect = newEffect(ipv4Len - 4 + udpLen)
	idEffect      = newEffect(idBehind)
	ipv6LenEffect = newEffect(ipv6Len - 6 + udpLen)
	udpLenEffect  = newEffect(udpLen - 6)
)

// idBehind is the number of bytes between IPv4's identification and the BTH.
const idBehind = ipv4Len - 6 + udpLen

// newEffect returns the effect of a field with n bytes between it and the BTH.
func newEffect(n uint32) *effect {
	t := new(effect)
	for i := range t {
		x := powX(8 * (n + 2 - uint32(i)))
		for v := range t[i] {
			t[i][v] = mul(uint32(v), x)
		}
	}
	return t
}

func (t *effect) of(v uint16) uint32 { return t[0][v>>8] ^ t[1][v&0xff] }

// ICRC returns the invariant CRC of packet p, whose last four bytes are reserved for it.
// It temporarily changes the byte of the BTH that counts as ones.
func (f Front) ICRC(p []byte) uint32 {
	ecn := p[4]
	p[4] = 0xff
	crc := icrc.Update(f.crc, p[:len(p)-ICRCLen])
	p[4] = ecn
	return crc
}

// copy copies payload to dst and returns the CRC of headers and payload. still is payload
// or dst, whichever does not change during the call. copy temporarily changes headers as
// ICRC does.
func (f Front) copy(headers, dst, payload, still []byte) uint32 {
	ecn := headers[4]
	headers[4] = 0xff
	crc := icrc.Copy(f.crc, headers, dst, payload, still)
	headers[4] = ecn
	return crc
}

// PutICRC computes the invariant CRC of packet p and writes it to the last four bytes of
// p.
func (f Front) PutICRC(p []byte) {
	binary.LittleEndian.PutUint32(p[len(p)-ICRCLen:], f.ICRC(p))
}

// Fill copies payload to p after n bytes of headers, clears the padding, and writes the
// CRC as PutICRC does, in one pass over the payload instead of two. Payload may change
// during the call, as an application's memory can: the CRC covers the bytes in p.
func (f Front) Fill(p []byte, n int, payload []byte) {
	body, pad := p[n:n+len(payload)], p[n+len(payload):len(p)-ICRCLen]
	crc := f.copy(p[:n], body, payload, body)
	clear(pad)
	binary.LittleEndian.PutUint32(p[len(p)-ICRCLen:], icrc.Update(crc, pad))
}

// CheckCopying is Check, and copies the payload p[n:n+len(dst)] to dst in the same pass.
// It copies the payload even if the packet is damaged.
func (f Front) CheckCopying(p []byte, n int, dst []byte) (id uint16, ok bool) {
	body := p[n : n+len(dst)]
	crc := f.copy(p[:n], dst, body, body)
	return f.check(p, icrc.Update(crc, p[n+len(dst):len(p)-ICRCLen]))
}

// Check reports whether packet p, of MinPacket to MaxPacket bytes, has the right
// invariant CRC. It also returns the packet's IPv4 identification, which a UDP socket
// does not show. f must be the Front for identification 0. Check temporarily changes p as
// ICRC does.
//
// The difference between the packet's CRC and the CRC for identification 0 is the effect
// of the identification: its two bytes times x to the power of 8 times the number of
// bytes from the identification to the CRC. Dividing the difference by that power gives a
// polynomial. If it fits two bytes, they are the identification; if not, the packet is
// damaged. A damaged packet passes with probability 2^-16 (2^-32 with IPv6), provided
// that it passes UDP's checksum too.
func (f Front) Check(p []byte) (id uint16, ok bool) { return f.check(p, f.ICRC(p)) }

// check compares the CRC in packet p with the computed one.
func (f Front) check(p []byte, crc uint32) (id uint16, ok bool) {
	diff := crc ^ binary.LittleEndian.Uint32(p[len(p)-ICRCLen:])
	if diff == 0 {
		return 0, true
	}
	if !f.ipv4 || len(p)&3 != 0 || len(p) > MaxPacket {
		return 0, false
	}
	q := divide(diff, len(p))
	return uint16(q<<8 | q>>8&0xff), q>>16 == 0
}

// A divider divides by the power of x for one packet length, four bits at a time, with
// 512 bytes of tables.
type divider [8][16]uint32

// dividers holds a divider for each multiple of four up to MaxPacket, 1.2 megabytes in
// total. Each is created on first use.
var dividers [MaxPacket/4 + 1]atomic.Pointer[divider]

// divide returns diff divided by x to the power of 8 times the number of bytes from the
// identification to the CRC, in a packet of n bytes.
func divide(diff uint32, n int) uint32 {
	d := dividers[n/4].Load()
	if d == nil {
		d = newDivider(n)
		dividers[n/4].Store(d)
	}
	return d[0][diff&15] ^ d[1][diff>>4&15] ^ d[2][diff>>8&15] ^ d[3][diff>>12&15] ^
		d[4][diff>>16&15] ^ d[5][diff>>20&15] ^ d[6][diff>>24&15] ^ d[7][diff>>28]
}

func newDivider(n int) *divider {
	inv := powXInv(8 * uint32(2+idBehind+n-ICRCLen))
	d := new(divider)
	for i := range d {
		for v := range d[i] {
			d[i][v] = mul(uint32(v)<<(4*i), inv)
		}
	}
	return d
}
