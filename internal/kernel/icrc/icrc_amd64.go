//go:build !purego

package icrc

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"

	"github.com/softmkey/softmkey/internal/cpu"
)

//go:generate sh -c "cd ../_asm/icrc && go run . -pkg icrc -out ../../icrc/fold_amd64.s"

//go:noescape
func foldAVX512(residue *[16]byte, p *byte, n uint64, register uint32, k *[16]uint64)

// constants are those of foldAVX512: for each distance one for the first and one for
// the second 8 bytes of a lane.
//
// Bits are reflected: the first bit of memory is the highest power of x. A product of
// two reflected 64-bit numbers comes out one bit too low, which the constants make
// good by a shift, and 32 bits of the distance are left to the width of the
// remainder (Gopal et al., Fast CRC Computation for Generic Polynomials Using
// PCLMULQDQ, Intel 2009).
var constants = func() (k [16]uint64) {
	for i, distance := range []int{256, 192, 128, 64, 48, 32, 16} {
		k[2*i], k[2*i+1] = power(8*distance+32), power(8*distance-32)
	}
	return k
}()

// power returns x^n modulo the polynomial, reflected and shifted by one.
func power(n int) uint64 {
	const poly = 0x04C11DB7
	r := uint32(1)
	for range n {
		carry := r >> 31
		r = r<<1 ^ carry*poly
	}
	return uint64(bits.Reverse32(r)) << 1
}

// short is the length below which hash/crc32 is done before the folding pays; the
// kernel needs 256 bytes.
const short = 512

func update(t cpu.Tier, crc uint32, p []byte) uint32 {
	if t != cpu.AVX512 || len(p) < short {
		return generic(crc, p)
	}
	raceRead(p)
	var residue [16]byte
	n := len(p) &^ 15
	foldAVX512(&residue, &p[0], uint64(n), ^crc, &constants)
	// The residue stands for what was folded, behind a register of zero.
	register := slice8(slice8(0, residue[:8]), residue[8:])
	p = p[n:]
	if len(p) >= 8 {
		register, p = slice8(register, p[:8]), p[8:]
	}
	for _, b := range p {
		register = tables[0][byte(register)^b] ^ register>>8
	}
	return ^register
}

// slice8 moves the register over 8 bytes by tables (Kounavis and Berry, A Systematic
// Approach to Building High Performance, Software-Based, CRC Generators, 2005).
// hash/crc32 would do, but what it is given moves to the heap.
func slice8(register uint32, p []byte) uint32 {
	register ^= binary.LittleEndian.Uint32(p)
	return tables[7][byte(register)] ^ tables[6][byte(register>>8)] ^
		tables[5][byte(register>>16)] ^ tables[4][register>>24] ^
		tables[3][p[4]] ^ tables[2][p[5]] ^ tables[1][p[6]] ^ tables[0][p[7]]
}

// tables[i] moves a byte over itself and i bytes of zero.
var tables = func() (t [8]crc32.Table) {
	t[0] = *crc32.IEEETable
	for i := 1; i < len(t); i++ {
		for v := range t[i] {
			t[i][v] = t[0][byte(t[i-1][v])] ^ t[i-1][v]>>8
		}
	}
	return t
}()
