package wire

// This file computes with polynomials over GF(2) modulo the CRC's polynomial, in the
// CRC's bit order: bit 31 is the coefficient of x^0, bit 0 that of x^31. A CRC state is a
// polynomial of this kind. Appending a zero byte multiplies it by x^8.

// poly is the Ethernet CRC's polynomial without x^32.
const poly = 0xedb88320

// one is the polynomial 1.
const one = 1 << 31

// mulX returns a times x.
func mulX(a uint32) uint32 { return a>>1 ^ poly&-(a&1) }

// mul returns a times b.
func mul(a, b uint32) (p uint32) {
	for ; b != 0; b <<= 1 {
		p ^= a & uint32(int32(b)>>31)
		a = mulX(a)
	}
	return p
}

// powX returns x to the power of e.
func powX(e uint32) uint32 {
	p, sq := uint32(one), mulX(one)
	for ; e != 0; e >>= 1 {
		if e&1 != 0 {
			p = mul(p, sq)
		}
		sq = mul(sq, sq)
	}
	return p
}

// powXInv returns x to the power of -e. Since the CRC's polynomial is primitive, x has
// the order 2^32-1.
func powXInv(e uint32) uint32 { return powX(^uint32(0) - e) }
