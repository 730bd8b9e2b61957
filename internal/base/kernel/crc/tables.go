package crc

import (
	"math/bits"
	"slices"
	"sync"
	"unsafe"
)

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

	poly uint64 // argument of newCRCTable
}

var crcTables = [...]func() *crcTable{
	T10:    sync.OnceValue(func() *crcTable { return newCRCTable(uint64(bits.Reverse16(0x8BB7))) }),
	CRC32:  sync.OnceValue(func() *crcTable { return newCRCTable(uint64(bits.Reverse32(0x04C11DB7))) }),
	CRC32C: sync.OnceValue(func() *crcTable { return newCRCTable(uint64(bits.Reverse32(0x1EDC6F41))) }),
	CRC64:  sync.OnceValue(func() *crcTable { return newCRCTable(bits.Reverse64(0xAD93D23594C93659)) }),
}

// newCRCTable computes the constants of P64, the CRC's polynomial multiplied by x^(64-w).
// Bit k of poly is the coefficient of x^(63-k), so a CRC of w < 64 bits occupies the low w
// bits.
func newCRCTable(poly uint64) *crcTable {
	t := newAligned[crcTable]()
	t.poly = poly
	power := uint64(1) // x^63
	for d := range tableWords {
		t.foldByDistance[tableWords-1-d] = power
		power = timesX32(timesX32(power, poly), poly)
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

// timesX32 returns v x^32 mod P64, reflected.
func timesX32(v, poly uint64) uint64 {
	for range 32 {
		v = v>>1 ^ poly&-(v&1)
	}
	return v
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

var swapTables = [...]func() *swapTable{
	T10:   sync.OnceValue(func() *swapTable { return newSwapTable(0x8BB7 << 48) }),
	CRC32: sync.OnceValue(func() *swapTable { return newSwapTable(0x04C11DB7 << 32) }),
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

// Constants by phase, for reading whole cache lines.

// lineBlock is the size of the blocks that a kernel can read by whole cache lines: see
// lines_avx512.go of the generator. lineWords is its size in 64-bit words.
const (
	lineBlock = 512
	lineWords = lineBlock / 8
)

// linePhase holds the constants for blocks of one phase. The phase of a block is the
// number of 64-bit words between the start of its first cache line and the block. A block
// of 512 bytes with a phase other than 0 lies in nine lines. The kernel merges the block's
// parts in the first and in the last line into one vector.
//
// head has ones in the lanes of that vector that come from the first line. constants holds
// one factor or matrix for each lane of the block.
type linePhase[constants any] struct {
	head      [8]uint64
	constants constants
}

type (
	crcPhase = linePhase[[lineWords]uint64]
	t10Phase = linePhase[[2][lineWords]uint64]
)

// newLines computes the constants of the eight phases. For each lane of a block it calls set, which stores the lane's
// constants; distance is the number of 64-bit words between the lane and the end of the block.
func newLines[constants any](set func(c *constants, lane, distance int)) *[8]linePhase[constants] {
	t := newAligned[[8]linePhase[constants]]()
	for phase := range t {
		for lane := range lineWords {
			quad := lane - phase
			if quad < 0 {
				quad += lineWords // the lane is in the last line
			} else if lane < 8 {
				t[phase].head[lane] = ^uint64(0)
			}
			set(&t[phase].constants, lane, lineWords-1-quad)
		}
	}
	return t
}

var t10Lines = sync.OnceValue(func() *[8]t10Phase {
	t := t10Maps()
	return newLines(func(c *[2][lineWords]uint64, lane, d int) {
		for i := range c {
			c[i][lane] = t.planes[i][tableWords-1-d]
		}
	})
})

var crc64Lines = sync.OnceValue(func() *[8]crcPhase {
	t := crcTables[CRC64]()
	return newLines(func(c *[lineWords]uint64, lane, d int) { c[lane] = t.foldByDistance[tableWords-1-d] })
})

// halfPhase is linePhase for CRCs in fields of 4 bytes, where the phase counts 32-bit
// words. head selects the lanes of the first line, tail those of the last line. If the
// phase is odd, the last 4 bytes of the block share a lane with its first 4 bytes, so
// neither head nor tail selects them. The kernel loads them separately, and shift moves
// them to their position in a 64-bit word. If the phase is even, shift is 64, which
// discards them.
type halfPhase struct {
	head, tail [16]uint32
	shift      [8]uint64
	constants  [lineWords]uint64
}

var halfLines = [...]func() *[16]halfPhase{
	CRC32:  sync.OnceValue(func() *[16]halfPhase { return newHalfLines(CRC32) }),
	CRC32C: sync.OnceValue(func() *[16]halfPhase { return newHalfLines(CRC32C) }),
}

func newHalfLines(kind Kind) *[16]halfPhase {
	const words = 2 * lineWords
	t := newAligned[[16]halfPhase]()
	// power[n] is the constant of a 64-bit word with n 32-bit words after it.
	var power [words]uint64
	c := crcTables[kind]()
	for n := range power {
		power[n] = c.foldByDistance[tableWords-1-n/2]
		if n%2 == 1 {
			power[n] = timesX32(power[n], c.poly)
		}
	}
	for phase := range t {
		p := &t[phase]
		for lane := range lineWords {
			word := 2*lane - phase // at -1 the first word is in the upper half of the lane
			if word < -1 {
				word += words // the lane is in the last line
			}
			p.constants[lane] = power[words-2-word]
		}
		for word := range p.head {
			if word >= phase {
				p.head[word] = ^uint32(0)
			} else if phase%2 == 0 || word < phase-1 {
				p.tail[word] = ^uint32(0)
			}
		}
		p.shift[0] = 64
		if phase%2 == 1 {
			p.shift[0] = 32
		}
	}
	return t
}

// Affine maps

// matrices holds, for each distance in 64-bit words, the 8 by 8 bit matrix that maps a byte
// to one byte of its remainder, in the order of crcTable.
type matrices [tableWords + tablePad]uint64

// field is the arithmetic of polynomials modulo that of a CRC of at most 32 bits. Bit k of
// a number represents x^k.
type field struct {
	width     int
	poly      uint32 // without x^width
	reflected bool   // the first bit of a byte is its bit 0
}

var fields = [...]field{
	T10:    {width: 16, poly: 0x8BB7},
	CRC32:  {width: 32, poly: 0x04C11DB7},
	CRC32C: {width: 32, poly: 0x1EDC6F41, reflected: true},
}

// times returns v x^n.
func (f field) times(v uint32, n int) uint32 {
	for range n {
		v = v<<1&(1<<f.width-1) ^ f.poly&-(v>>(f.width-1))
	}
	return v
}

// images returns the images of the bits of a byte in its multiplication by a factor.
func (f field) images(factor uint32) (v [8]uint32) {
	for b := range v {
		v[b] = f.times(factor, b)
	}
	return v
}

// plane returns the matrix that maps a byte to byte i of the sum of the images of its bits.
// The lowest power is in byte 0. If the CRC is reflected, so are the bytes on both sides.
func (f field) plane(images [8]uint32, i int) uint64 {
	var rows [8]uint8
	for row := range rows {
		for b, v := range images {
			if f.reflected {
				b = 7 - b
			}
			rows[row] |= uint8(v>>(8*i+row)&1) << b
		}
	}
	if f.reflected {
		slices.Reverse(rows[:])
	}
	return matrix(rows)
}

// matrix returns the matrix with the given rows. GF2P8AFFINEQB expects the row of bit i of
// the result in byte 7-i.
func matrix(rows [8]uint8) (m uint64) {
	for i, row := range rows {
		m |= uint64(row) << (8 * (7 - i))
	}
	return m
}

// byDistance computes the table of each plane: it maps a byte at distance d to its share of
// byte * x^(64 d) mod P. The CRC is the sum over the byte positions j of (sum of remainders
// at position j) * x^(8 (7-j) + width) mod P.
func (f field) byDistance(planes []matrices) {
	power := uint32(1)
	for d := range tableWords {
		v := f.images(power)
		for i := range planes {
			planes[i][tableWords-1-d] = f.plane(v, i)
		}
		power = f.times(power, 64)
	}
}

// byPosition computes the maps that correct sums of remainders for the position of a byte
// in its 64-bit word; position 0 is the first byte. There are two words, of which the second
// has the weight x^second. maps contains a map for each byte of the result for the first
// word, then those for the second one.
func (f field) byPosition(maps [][8]uint64, second int) {
	planes := f.width / 8
	for j := range 8 {
		for word, weight := range []int{0, second} {
			v := f.images(f.times(1, weight+8*(7-j)+f.width))
			for to := range planes {
				maps[planes*word+to][j] = f.plane(v, to)
			}
		}
	}
}

// mapsTable holds the maps of a CRC of 32 bits. The assembly uses the offsets.
type mapsTable struct {
	planes    [4]matrices
	positions [8][8]uint64
}

var mapsTables = [...]func() *mapsTable{
	CRC32:  sync.OnceValue(func() *mapsTable { return newMapsTable(CRC32) }),
	CRC32C: sync.OnceValue(func() *mapsTable { return newMapsTable(CRC32C) }),
}

func newMapsTable(kind Kind) *mapsTable {
	t, f := newAligned[mapsTable](), fields[kind]
	f.byDistance(t.planes[:])
	f.byPosition(t.positions[:], 64)
	return t
}

// t10Consts holds further constants of T10-DIF. The assembly uses the offsets.
type t10Consts struct {
	positions [4][8]uint64

	lastLow, lastHigh [2]uint64 // the matrices for distances 1 and 0

	// For folding by cache lines: the maps over eight lines and over one line, and
	// x^4096 and x^2048 mod P, with 64 more bits in the second half.
	fold      [2][4]uint64
	foldPower [2][2]uint64
}

// newFold returns the maps from a byte in the first or the second line of a pair to its
// contributions to the two lines of another pair, a number of lines later. The second
// line of a pair is four lines after the first.
func newFold(f field, lines int) (maps [4]uint64) {
	const line, pair = 512, 4 * 512 // bits
	// Gauss-Jordan elimination. Each reduced remainder is kept together with the
	// combination of bytes that gives it, those of the first line in the upper half.
	// The top bits of the remainders are distinct.
	type share struct{ remainder, bytes uint32 }
	var basis []share
	reduce := func(s share) share {
		for _, b := range basis {
			if s.remainder>>(bits.Len32(b.remainder)-1)&1 != 0 {
				s.remainder ^= b.remainder
				s.bytes ^= b.bytes
			}
		}
		return s
	}
	for b := range 16 {
		// Bit b of the second line's byte represents x^b. In the first line's
		// byte it represents x^(b-8) times x^2048.
		r := f.times(1, b)
		if b >= 8 {
			r = f.times(1, b-8+pair)
		}
		basis = append(basis, reduce(share{r, 1 << b}))
		if basis[b].remainder == 0 {
			panic("crc: the lines of a pair depend on each other")
		}
	}
	for i, distance := range []int{lines*line + pair, lines * line} {
		var shares [8]uint32
		for b := range shares {
			shares[b] = reduce(share{f.times(1, distance+b), 0}).bytes
		}
		maps[2*i], maps[2*i+1] = f.plane(shares, 1), f.plane(shares, 0)
	}
	return maps
}

// t10Table holds the maps of T10-DIF.
//
// power is x^(64 d) mod P in the order of crcTable: the factor of a 64-bit word at
// distance d, as a polynomial with the lowest power in bit 0. Long blocks use both methods.
type t10Table struct {
	planes [2]matrices
	power  [tableWords + tablePad]uint64
	consts t10Consts
}

var t10Maps = sync.OnceValue(func() *t10Table {
	t, f := newAligned[t10Table](), fields[T10]
	f.byDistance(t.planes[:])
	f.byPosition(t.consts.positions[:], 8)
	power := uint32(1)
	for d := range tableWords {
		t.power[tableWords-1-d] = uint64(power)
		power = f.times(power, 64)
	}
	t.consts.lastLow = [2]uint64(t.planes[0][tableWords-2:])
	t.consts.lastHigh = [2]uint64(t.planes[1][tableWords-2:])
	for i, lines := range []int{8, 1} {
		t.consts.fold[i] = newFold(f, lines)
	}
	for i, n := range []int{4096, 2048} {
		t.consts.foldPower[i] = [2]uint64{uint64(f.times(1, n)), uint64(f.times(1, n+64))}
	}
	return t
})

// onesByLength holds the contribution of a seed of ones to the field of a block. Each kind
// of CRC has a table, indexed with the length of the block in 64-bit words. An entry is the
// field of a block of zeros whose CRC register starts with ones.
var onesByLength = [...]func() *[tableWords + 1]uint64{
	T10:    sync.OnceValue(func() *[tableWords + 1]uint64 { return newOnes(T10) }),
	CRC32:  sync.OnceValue(func() *[tableWords + 1]uint64 { return newOnes(CRC32) }),
	CRC32C: sync.OnceValue(func() *[tableWords + 1]uint64 { return newOnes(CRC32C) }),
	CRC64:  sync.OnceValue(func() *[tableWords + 1]uint64 { return newOnes(CRC64) }),
}

func newOnes(kind Kind) *[tableWords + 1]uint64 {
	t := new([tableWords + 1]uint64)
	p := Plan{kind: kind}
	var zeros [8]byte
	reg := kindSeeds[kind]
	for n := range t {
		t[n] = p.wire(reg, 0)
		reg = sumGeneric(kind, reg, zeros[:])
	}
	return t
}

// seedFix returns the value that the kernel of kind adds to the field of every block of
// size bytes, or for an IP checksum to the sum.
func seedFix(kind Kind, size int, ones bool) uint64 {
	if kind == CSUM {
		if ones {
			return kindSeeds[CSUM]
		}
		return 0
	}
	if ones {
		return onesByLength[kind]()[size/8]
	}
	return (&Plan{kind: kind}).wire(0, 0)
}

// newAligned returns a new T at the start of a cache line. The kernels that read cache
// lines use aligned loads for its vectors, which fault at other addresses. The other
// kernels need no load across two lines for blocks of 512 or 4096 bytes.
func newAligned[T any]() *T {
	const line = 64
	var t T
	// T contains no pointers, so its memory need not have type T.
	b := make([]uint64, (unsafe.Sizeof(t)+line)/8)
	p := unsafe.Pointer(unsafe.SliceData(b))
	return (*T)(unsafe.Add(p, -uintptr(p)%line))
}
