package wire

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
	"sync/atomic"

	"github.com/softmkey/softmkey/internal/base/kernel/icrc"
)

// The invariant CRC (annex A17.3.3) is Ethernet's CRC-32 over everything that
// no switch or router changes: 8 bytes of ones in place of InfiniBand's link
// header, then the IP header, the UDP header and the packet, with ones in place
// of what does change: IPv4's type of service, time to live and header
// checksum; IPv6's traffic class, flow label and hop limit; the UDP checksum;
// and the BTH's byte with FECN and BECN. It is sent in the order of Ethernet's
// CRC, least significant byte first.
//
// CRC values here are as hash/crc32 has them, inverted at both ends; a
// difference of two is not affected by that.

const (
	ipv4Len = 20
	ipv6Len = 40
	udpLen  = 8
	udpPort = 17 // UDP's number as an IP protocol
)

// Flow is one direction between two sockets, as far as the invariant CRC covers
// it: addresses and ports. The zero value is of no use.
type Flow struct {
	crc  uint32 // of all that stands before the BTH, with lengths and identification of 0
	ipv4 bool
}

// NewFlow returns the flow from src to dst, which are of one address family.
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

// Front is the CRC of all that stands before the BTH, for packets of one flow,
// length and identification.
type Front Flow

// Front returns the beginning of the CRC of packets of n bytes, BTH and CRC
// included, with the identification 0.
//
// The CRC is linear: a field changes it by an amount that depends on the
// field's value and on how many bytes follow, not on what those are.
func (f Flow) Front(n int) Front {
	if f.ipv4 {
		f.crc ^= ipv4LenEffect.of(uint16(ipv4Len + udpLen + n))
	} else {
		f.crc ^= ipv6LenEffect.of(uint16(udpLen + n))
	}
	f.crc ^= udpLenEffect.of(uint16(udpLen + n))
	return Front(f)
}

// WithID returns the Front for an IPv4 identification, from that for 0; for
// IPv6, which has none, it returns f.
func (f Front) WithID(id uint16) Front {
	if f.ipv4 {
		f.crc ^= idEffect.of(id)
	}
	return f
}

// An effect has what each value of a field of two bytes adds to the CRC.
type effect [2][256]uint32

// The header fields that a sender fills in per packet.
var (
	ipv4LenEffect = newEffect(ipv4Len - 4 + udpLen)
	idEffect      = newEffect(idBehind)
	ipv6LenEffect = newEffect(ipv6Len - 6 + udpLen)
	udpLenEffect  = newEffect(udpLen - 6)
)

// idBehind is the number of bytes between IPv4's identification and the BTH.
const idBehind = ipv4Len - 6 + udpLen

// newEffect returns the effect of a field that is followed by n bytes before
// the BTH.
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

// ICRC returns the invariant CRC of packet p, which ends with room for it. It
// changes p for a moment (the BTH's byte that counts as ones).
func (f Front) ICRC(p []byte) uint32 {
	ecn := p[4]
	p[4] = 0xff
	crc := icrc.Update(f.crc, p[:len(p)-ICRCLen])
	p[4] = ecn
	return crc
}

// copy returns the CRC up to the end of payload, which follows on the headers and is
// copied to dst; still is the one of the two that does not change meanwhile. It changes
// the headers as ICRC does.
func (f Front) copy(headers, dst, payload, still []byte) uint32 {
	ecn := headers[4]
	headers[4] = 0xff
	crc := icrc.Copy(f.crc, headers, dst, payload, still)
	headers[4] = ecn
	return crc
}

// PutICRC computes the invariant CRC of packet p and writes it to p's last four
// bytes.
func (f Front) PutICRC(p []byte) {
	binary.LittleEndian.PutUint32(p[len(p)-ICRCLen:], f.ICRC(p))
}

// Fill copies payload to p behind the headers, which take the first n bytes, clears
// the padding, and writes the CRC as PutICRC does: one pass over the payload
// instead of two. The payload may change meanwhile, as an application's memory does:
// the CRC is of what stands in p.
func (f Front) Fill(p []byte, n int, payload []byte) {
	body, pad := p[n:n+len(payload)], p[n+len(payload):len(p)-ICRCLen]
	crc := f.copy(p[:n], body, payload, body)
	clear(pad)
	binary.LittleEndian.PutUint32(p[len(p)-ICRCLen:], icrc.Update(crc, pad))
}

// CheckCopying does what Check does, and copies the payload, which is p[n:n+len(dst)],
// to dst on the way: also if the packet turns out to be damaged.
func (f Front) CheckCopying(p []byte, n int, dst []byte) (id uint16, ok bool) {
	body := p[n : n+len(dst)]
	crc := f.copy(p[:n], dst, body, body)
	return f.check(p, icrc.Update(crc, p[n+len(dst):len(p)-ICRCLen]))
}

// Check reports whether packet p, MinPacket to MaxPacket bytes long, has the
// right invariant CRC, and with which IPv4 identification, which a UDP socket
// does not tell. f is the Front of identification 0. The packet is changed as
// by ICRC.
//
// The difference between the CRC that p has and the one it should have, were
// the identification 0, is what the identification adds: its two bytes times x
// to the power of 8 times the number of bytes from the identification to the
// CRC. Divided by that power the difference must be a polynomial that fits two
// bytes, and those are the identification. Of all damaged packets, 2^-16 pass
// here (2^-32 with IPv6), and all of those must get past UDP's own checksum.
func (f Front) Check(p []byte) (id uint16, ok bool) { return f.check(p, f.ICRC(p)) }

// check compares the CRC that packet p has with the one that was computed.
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

// A divider divides by the power of x that belongs to one packet length, four
// bits at a time: 512 bytes.
type divider [8][16]uint32

// dividers are made when a length is first seen; there are as many lengths as
// there are multiples of four up to MaxPacket, half a megabyte in all.
var dividers [MaxPacket/4 + 1]atomic.Pointer[divider]

// divide returns diff divided by x to the power of 8 times the bytes from the
// identification to the CRC of a packet of n bytes.
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
