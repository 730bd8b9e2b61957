//go:build !purego

package icrc

import (
	"encoding/binary"
	"math/bits"

	"github.com/softmkey/softmkey/internal/base/cpu"
	"github.com/softmkey/softmkey/internal/base/kernel/race"
)

//go:generate sh -c "cd ../_asm/icrc && go run . -pkg icrc -out ../../icrc/fold_amd64.s"

//go:noescape
func foldAVX512(p *byte, n uint64, register uint32, k *[20]uint64) uint32

//go:noescape
func copyAVX512(dst, p *byte, n uint64, register uint32, k *[20]uint64, front *[16]byte) uint32

//go:noescape
func foldVAES(p *byte, n uint64, register uint32, k *[16]uint64) uint32

//go:noescape
func copyVAES(dst, p *byte, n uint64, register uint32, k *[16]uint64, front *[16]byte) uint32

// The constants of the kernels. For each distance in bytes there is one for the first and
// one for the second 8 bytes of a lane. They are followed by zeros, for a lane that stays
// in place, and by the constants that reduce the last lane.
//
// Bits are reflected: the first bit in memory is the highest power of x. The product of
// two reflected 64-bit numbers is shifted by one bit, for which the constants compensate.
// The exponents differ by 32 from the distance because of the width of the remainder
// (Gopal et al., Fast CRC Computation for Generic Polynomials Using PCLMULQDQ, Intel
// 2009).
var (
	constants     = [20]uint64(fold(256, 192, 128, 64, 48, 32, 16))
	constantsVAES = [16]uint64(fold(128, 96, 64, 32, 16))
)

func fold(distances ...int) (k []uint64) {
	for _, distance := range distances {
		k = append(k, power(8*distance+32), power(8*distance-32))
	}
	k = append(k, 0, 0)
	k = append(k, power(8*8+32), power(8*4+32))
	return append(k, quotient(), bits.Reverse64(1<<32|poly)>>31)
}

// poly is the polynomial without x^32.
const poly = 0x04C11DB7

// power returns x^n modulo the polynomial, reflected and shifted by one.
func power(n int) uint64 { return uint64(bits.Reverse32(remainder(n))) << 1 }

// remainder returns x^n modulo the polynomial. Bit i is the factor of x^i.
func remainder(n int) uint32 {
	r := uint32(1)
	for range n {
		carry := r >> 31
		r = r<<1 ^ carry*poly
	}
	return r
}

// quotient returns x^64 divided by the polynomial, reflected; it has 33 bits.
func quotient() uint64 {
	q, r := uint64(0), uint64(1)<<32
	for i := 32; i >= 0; i-- {
		q <<= 1
		if r>>32&1 != 0 {
			q |= 1
			r ^= 1<<32 | poly
		}
		r <<= 1
	}
	return bits.Reverse64(q) >> 31
}

// short is the length below which hash/crc32 is faster. The kernels require 256 bytes.
const short = 272

func update(t cpu.Tier, crc uint32, p []byte) uint32 {
	if t < cpu.VAES || len(p) < short {
		return generic(crc, p)
	}
	race.Read(p, len(p), len(p), 1)
	n := len(p) &^ 15
	var register uint32
	switch {
	case t != cpu.AVX512:
		register = foldVAES(&p[0], uint64(n), ^crc, &constantsVAES)
	default:
		register = foldAVX512(&p[0], uint64(n), ^crc, &constants)
	}
	return ^rest(register, p[n:])
}

func copyUpdate(t cpu.Tier, crc uint32, head, dst, p, still []byte) uint32 {
	if t < cpu.VAES || len(p) < short {
		copy(dst, p)
		return generic(generic(crc, head), still)
	}
	// The last 4 to 16 bytes of head are folded together with the payload. The
	// register is added to their first 4 bytes.
	var front [16]byte
	if n := len(head) - 16; n > 0 {
		crc = generic(crc, head[:n])
		head = head[n:]
	}
	register := ^crc
	if len(head) >= 4 {
		at := front[16-copy(front[16-len(head):], head):]
		binary.LittleEndian.PutUint32(at, binary.LittleEndian.Uint32(at)^register)
		register = 0
	} else {
		register = ^generic(crc, head)
	}
	race.Read(p, len(p), len(p), 1)
	race.Write(dst[:len(p)], len(p), len(p), 1)
	n := len(p) &^ 15
	switch {
	case t != cpu.AVX512:
		register = copyVAES(&dst[0], &p[0], uint64(n), register, &constantsVAES, &front)
	default:
		register = copyAVX512(&dst[0], &p[0], uint64(n), register, &constants, &front)
	}
	copy(dst[n:], p[n:])
	return ^rest(register, still[n:])
}
