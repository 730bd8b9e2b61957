package crc

import "unsafe"

// How the kernels compute the CRC of a whole block without a chain of dependent steps
//
// A block is a polynomial over GF(2) whose first bit is the highest power of x. Divided
// into 64-bit words A_d, where d is the number of words after A_d (its distance), it is
//
//	M = sum of A_d * x^(64 d)
//
// and its CRC of width w is M * x^w mod P. A CRC of fewer than 64 bits is computed as one
// of 64 bits: with P64 = P * x^(64-w), M * x^64 mod P64 is the CRC times x^(64-w). One
// routine therefore serves every width. It computes
//
//	S = sum of A_d * (x^(64 d + 64) mod P64)
//
// with one multiplication per word, a sum of 128-bit products, and one reduction at the
// end. The products are independent of each other at any length: the constants come from
// a table by distance, and the blocks of a run share the loads of constants.
//
// All CRCs are computed as reflected ones: the first bit of a word is its bit 0, and bit
// k of a 64-bit number represents x^(63-k). The carry-less product of two such numbers,
// read as 128 reflected bits, is too high by a factor of x, so the table contains x^(64 d
// + 63). A CRC with the most significant bit first is brought into this form by reversing
// the bits of every byte of the data and of the result.
//
// The reduction: let y^k be bit k of S, and let P^ be P64 as a reflected number of 65
// bits. Its bit 0 is the coefficient of x^64, which is 1, so P^ has an inverse modulo
// y^64. With q = S * P^^-1 mod y^64, S + q P^ is a multiple of y^64, and its upper half
// is S mod P64. P^ has 65 bits. The product with its top bit, if set, is q shifted by 64;
// it is added separately.

// tableWords is the number of 64-bit words in the longest block that the tables cover.
// Longer blocks are divided into pieces, see long.go. The longest block of a memory key,
// 4160 bytes, just fits.
const tableWords = 4160 / 8

// tablePad extends the table, because a kernel reads constants in whole vectors.
const tablePad = 8

// crcConsts holds the constants of the reduction. The assembly uses the offsets.
type crcConsts struct {
	inverse uint64 // of P^ modulo y^64
	poly    uint64 // P^ modulo y^64
	top     uint64 // all ones if P^ has bit 64
}

// crcTable holds the constants of one polynomial.
type crcTable struct {
	// foldByDistance[tableWords-1-d] is x^(64 d + 63) mod P64. The constants of a
	// block of n words begin at index tableWords-n.
	foldByDistance [tableWords + tablePad]uint64
	consts         crcConsts
}

// newCRCTable computes the constants of P64, the CRC's polynomial multiplied by x^(64-w).
// Bit k of poly is the coefficient of x^(63-k), so a CRC of w < 64 bits occupies the low w
// bits.
func newCRCTable(poly uint64) *crcTable {
	t := newAligned[crcTable]()
	power := uint64(1) // x^63
	for d := range tableWords {
		t.foldByDistance[tableWords-1-d] = power
		for range 64 {
			power = power>>1 ^ poly&-(power&1)
		}
	}
	p := poly<<1 | 1
	product := p
	inverse := uint64(1)
	for k := 1; k < 64; k++ {
		if product>>k&1 != 0 {
			product ^= p << k
			inverse |= 1 << k
		}
	}
	t.consts = crcConsts{inverse: inverse, poly: p, top: -(poly >> 63)}
	return t
}

// Most significant bit first
//
// Without an instruction that reverses bits, a CRC with the most significant bit first is
// computed without reflection, because swapping bytes takes only one shuffle. Bit k of a
// 64-bit number then represents x^k, products need no correction, and the table contains
// x^(64 d + 64). The reduction is Barrett's: for S = H x^64 + L, the quotient by P64 is
// the upper half of H * floor(x^128 / P64), and the remainder is L plus the lower half of
// the quotient times P64. Both factors have 65 bits, of which the top one is 1.

// swapConsts holds the constants of the reduction. The assembly uses the offsets.
type swapConsts struct {
	quotient uint64 // floor(x^128 / P64) without its top bit
	poly     uint64 // P64 without its top bit
}

// swapTable holds the constants of one polynomial, in the order of crcTable.
type swapTable struct {
	foldByDistance [tableWords + tablePad]uint64
	consts         swapConsts
}

// newSwapTable computes the constants of P64 = x^64 + poly.
func newSwapTable(poly uint64) *swapTable {
	t := newAligned[swapTable]()
	power := poly // x^64
	for d := range tableWords {
		t.foldByDistance[tableWords-1-d] = power
		for range 64 {
			power = power<<1 ^ poly&-(power>>63)
		}
	}
	remainder := poly // of x^128 divided by x^64, without the quotient's top bit
	var quotient uint64
	for range 64 {
		quotient = quotient<<1 | remainder>>63
		remainder = remainder<<1 ^ poly&-(remainder>>63)
	}
	t.consts = swapConsts{quotient: quotient, poly: poly}
	return t
}

// Affine maps

// matrices holds, for each distance in 64-bit words, the 8 by 8 bit matrix that maps a byte
// to one byte of its remainder, in the order of crcTable.
type matrices [tableWords + tablePad]uint64

// t10Table holds the maps of T10-DIF. The assembly uses the offsets.
//
// planes maps a byte at distance d to its share of byte * x^(64 d) mod P. The CRC is the sum
// over the byte positions j of (sum of remainders at position j) * x^(8 (7-j) + width) mod P.
// positions corrects these sums for the position of a byte in its 64-bit word, in which
// position 0 is the first byte: the maps to each byte of the result, for the low bytes of the
// sums and for the high ones.
type t10Table struct {
	planes    [2]matrices
	positions [4][8]uint64
}

func newT10Table(k *row) *t10Table {
	t := newAligned[t10Table]()
	power := uint64(1)
	for d := range tableWords {
		for i := range t.planes {
			t.planes[i][tableWords-1-d] = k.plane(power, i)
		}
		power = k.times(power, 64)
	}
	for i := range t.positions {
		for j := range t.positions[i] {
			t.positions[i][j] = k.plane(k.times(1, i/2*8+8*(7-j)+k.width), i%2)
		}
	}
	return t
}

// times returns v x^n modulo the polynomial.
func (r *row) times(v uint64, n int) uint64 {
	for range n {
		v = v<<1&(1<<r.width-1) ^ r.poly&-(v>>(r.width-1))
	}
	return v
}

// plane returns the matrix that maps a byte to byte i of its product with a factor. The
// lowest power is in byte 0. GF2P8AFFINEQB expects the row of bit k of the result in byte 7-k.
func (r *row) plane(factor uint64, i int) (m uint64) {
	for bit := range 8 {
		image := r.times(factor, bit)
		for k := range 8 {
			m |= image >> (8*i + k) & 1 << (8*(7-k) + bit)
		}
	}
	return m
}

// newOnes returns the contribution of a seed of ones to the field of a block, by the length
// of the block in 64-bit words: the field of a block of zeros whose register starts with ones.
func newOnes(kind Kind) *[tableWords + 1]uint64 {
	t := new([tableWords + 1]uint64)
	var zeros [8]byte
	reg := rows[kind].ones()
	for n := range t {
		t[n] = rows[kind].wire(reg, 0)
		reg = sumGeneric(kind, reg, zeros[:])
	}
	return t
}

// seedFix returns the value that the kernel of kind adds to the field of every block of
// size bytes, or for an IP checksum to the sum.
func seedFix(kind Kind, size int, ones bool) uint64 {
	k := &rows[kind]
	switch {
	case k.poly == 0 && ones:
		return k.ones()
	case k.poly == 0:
		return 0
	case ones:
		return constantsOf[kind].ones()[size/8]
	}
	return k.wire(0, 0)
}

// newAligned returns a new T at the start of a cache line, so that no vector of the constants
// of a block of 512 or 4096 bytes lies in two lines.
func newAligned[T any]() *T {
	const line = 64
	var t T
	// T contains no pointers, so its memory need not have type T.
	b := make([]uint64, (unsafe.Sizeof(t)+line)/8)
	p := unsafe.Pointer(unsafe.SliceData(b))
	return (*T)(unsafe.Add(p, -uintptr(p)%line))
}
