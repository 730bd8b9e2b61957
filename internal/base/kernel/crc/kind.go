package crc

import (
	"math/bits"
	"sync"

	"github.com/softmkey/softmkey/internal/base/cpu"
)

// Kind is an algorithm and the byte order of its field.
type Kind uint8

const (
	T10    Kind = iota // CRC-16/T10-DIF guard, with application and reference tag, big-endian
	CSUM               // IP checksum guard, with application and reference tag, big-endian
	CRC32              // polynomial 0x04C11DB7, most significant bit first, big-endian
	CRC32C             // Castagnoli, reflected, little-endian
	CRC64              // XP10 and NVMe, reflected, little-endian

	kinds
)

// rows has everything that differs between the kinds.
var rows = [kinds]row{
	T10: {name: "t10", width: 16, poly: 0x8BB7, field: 8, tagged: true,
		kernels: kernels{cpu.AVX2: bySwaps, cpu.VAES: bySwaps, cpu.AVX512: byMaps, cpu.NEON: byReversal}},
	CSUM: {name: "csum", width: 16, inverted: true, field: 8, tagged: true,
		kernels: kernels{cpu.AVX2: bySums, cpu.VAES: bySums, cpu.AVX512: bySums, cpu.NEON: bySums}},
	CRC32: {name: "crc32", width: 32, poly: 0x04C11DB7, inverted: true, field: 4,
		kernels: kernels{cpu.AVX2: bySwaps, cpu.VAES: bySwaps, cpu.AVX512: byReversal, cpu.NEON: byCRC32}},
	CRC32C: {name: "crc32c", width: 32, poly: 0x1EDC6F41, reflected: true, inverted: true, field: 4,
		kernels: kernels{cpu.AVX2: byProducts, cpu.VAES: byProducts, cpu.AVX512: byProducts, cpu.NEON: byCRC32C}},
	CRC64: {name: "crc64", width: 64, poly: 0xAD93D23594C93659, reflected: true, inverted: true, field: 8,
		kernels: kernels{cpu.AVX2: byProducts, cpu.VAES: byProducts, cpu.AVX512: byProducts, cpu.NEON: byProducts}},
}

// row describes a kind. Registers are as in the generic code.
type row struct {
	name      string
	width     int    // bits of the register
	poly      uint64 // polynomial without x^width; bit k is the coefficient of x^k. 0: a sum
	reflected bool   // bit 0 of a byte is its first one, and the field is little-endian
	inverted  bool   // the register is inverted at the end
	tagged    bool   // the field holds an application and a reference tag after the guard
	field     int    // bytes of the field
	kernels   kernels
}

// kernels has the method of each tier with assembly.
type kernels [cpu.NEON + 1]method

// method is a way to compute a kind. It selects the kernels, and the constants that they take.
type method uint8

const (
	bySums     method = iota // the IP checksum, without constants
	byProducts               // constants.products: the least significant bit first
	byReversal               // constants.products: the most significant bit first, bits reversed
	bySwaps                  // constants.swaps: the most significant bit first, bytes swapped
	byMaps                   // constants.maps: affine maps
	byCRC32                  // as byReversal, beside the instruction for CRC32
	byCRC32C                 // as byProducts, beside the instruction for CRC32C
)

// constants are those of a kind. Each table is computed when it is first used.
type constants struct {
	slices    func() *table8
	products  func() *crcTable
	swaps     func() *swapTable
	maps      func() *t10Table
	pastPiece func() *nibbles
	ones      func() *[tableWords + 1]uint64
}

var constantsOf [kinds]constants

func init() {
	for i := range constantsOf {
		k := &rows[i]
		constantsOf[i] = constants{
			slices:    sync.OnceValue(func() *table8 { return newSlices(k) }),
			products:  sync.OnceValue(func() *crcTable { return newCRCTable(k.mirrored()) }),
			swaps:     sync.OnceValue(func() *swapTable { return newSwapTable(k.top(k.poly)) }),
			maps:      sync.OnceValue(func() *t10Table { return newT10Table(k) }),
			pastPiece: sync.OnceValue(func() *nibbles { return newPastPiece(Kind(i)) }),
			ones:      sync.OnceValue(func() *[tableWords + 1]uint64 { return newOnes(Kind(i)) }),
		}
	}
}

// String returns a short name.
func (k Kind) String() string { return rows[k].name }

// FieldSize returns the size of the kind's field in bytes, 4 or 8.
func (k Kind) FieldSize() int { return rows[k].field }

// mirrored returns the polynomial with its bits in reverse order, in the lowest bits.
func (r *row) mirrored() uint64 { return bits.Reverse64(r.top(r.poly)) }

// top returns v with its lowest width bits at the top of the 64.
func (r *row) top(v uint64) uint64 { return v << (64 - r.width) }

// ones returns a register of ones.
func (r *row) ones() uint64 {
	if r.reflected || r.poly == 0 {
		return ^uint64(0) >> (64 - r.width)
	}
	return r.top(^uint64(0))
}

// final returns the bits of a register that are inverted at the end.
func (r *row) final() uint64 {
	switch {
	case !r.inverted:
		return 0
	case r.reflected:
		return r.ones()
	}
	return r.top(^uint64(0))
}

// wire converts the register at the end of a block to the bytes of the field.
func (r *row) wire(reg, tag uint64) uint64 {
	if r.poly == 0 {
		reg = r.top(foldCSUM(reg))
	}
	reg ^= r.final()
	if r.tagged {
		reg |= tag
	}
	if !r.reflected {
		reg = bits.ReverseBytes64(reg)
	}
	return reg
}

// unwire is the inverse of wire without tags: it returns the register.
func (r *row) unwire(field uint64) uint64 {
	if !r.reflected {
		field = bits.ReverseBytes64(field)
	}
	field ^= r.final()
	if r.poly == 0 {
		field >>= 64 - r.width
	}
	return field
}
