package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"

	. "github.com/softmkey/softmkey/internal/base/kernel/_asm/xtsgen"
)

// The guard: CRC-16/T10-DIF of a block of 512 bytes by carry-less multiplication, which
// uses port 5. The AES rounds leave no time on port 0.
//
// A block is 32 lanes of 16 bytes. Read as polynomials, first byte and most significant
// bit first, the CRC of the block is the sum over all lanes j = 0 to 31 of
//
//	(H*x^64 + L) * x^(128*(31-j)) * x^16    modulo P
//
// where H and L are the first and second 8 bytes of the lane. Powers of x modulo P have
// 16 bits, so the contribution of a lane is two products of less than 80 bits that need
// no further folding: the lanes are independent and are added up. The sum S, of 128 bits,
// is stored. The sums of four blocks are reduced together, one in each lane:
//
//	R = S.lo + S.hi * (x^64 mod P)          64 bits
//	q = (R * floor(x^64 / P)) / x^64        Barrett; exact, because R has less than 65 bits
//	S mod P = R + q*P                       its low 16 bits
//
// The constants are the Go type consts. They are in Go memory, which can be aligned;
// assembly data can not, and a load across cache lines takes two accesses.
const (
	cPlace   = 0    // 8 vectors: the powers for L and H of lane j
	cLast    = 512  // the powers of the last lane, in all four lanes
	cReduce  = 576  // x^64 mod P, floor(x^64 / P)
	cModulus = 640  // P, 0
	cReverse = 704  // shuffle: reverses the bytes of a lane
	cGuard   = 768  // shuffle: low 16 bits of a number to the first two bytes of a field, else zeros
	cField   = 832  // shuffle: low 64 bits of a number to a field, else zeros
	cPowers  = 896  // x^0 to x^7 in two vectors, for XTS
	cPoly    = 1024 // 0x87, for XTS
)

// constant returns one of the above.
func constant(off int) Mem { return Ptr(rConsts, off) }

// sum adds up the lanes of the block at rGuard and stores the sum in slot's entry of the
// ring. If the field is decrypted with the block, sum omits the last lane, which is not
// decrypted yet.
func (k *kernel) sum() (s []func()) {
	for i := range 8 {
		s = append(s,
			func() {
				if k.sealed && k.Decrypt && i == 7 {
					VMOVDQU64_Z(Ptr(rGuard, 64*i), kThree, zData)
				} else {
					VMOVDQU64(Ptr(rGuard, 64*i), zData)
				}
			},
			func() { VPSHUFB(constant(cReverse), zData, zData) },
			func() { VMOVDQA64(constant(cPlace+64*i), zPlace) },
			func() {
				to := zProduct
				if i == 0 {
					to = zSum
				}
				VPCLMULQDQ(Imm(0x00), zPlace, zData, to)
			},
			func() { VPCLMULQDQ(Imm(0x11), zPlace, zData, zData) },
			func() {
				if i == 0 {
					VPXORQ(zData, zSum, zSum)
				} else {
					VPTERNLOGQ(Imm(Xor3), zData, zProduct, zSum)
				}
			},
		)
	}
	return append(s,
		func() { VEXTRACTI64X4(Imm(1), zSum, zData.AsY()) },
		func() { VPXORQ(zData, zSum, zSum) },
		func() { VEXTRACTI32X4(Imm(1), zSum, zData.AsX()) },
		func() { VPXORQ(zData, zSum, zSum) },
		func() { VMOVDQA32(zSum.AsX(), At(scSums, rGuardSlot)) },
	)
}

// guards reduces the four sums in z to guards, where they are in a field.
func (k *kernel) guards(z, tmp vec) []func() {
	return []func(){
		func() { VPCLMULQDQ(Imm(0x01), constant(cReduce), z, tmp) },
		func() { VPXORQ(tmp, z, z) },
		func() { VPCLMULQDQ(Imm(0x10), constant(cReduce), z, tmp) },
		func() { VPCLMULQDQ(Imm(0x01), constant(cModulus), tmp, tmp) },
		func() { VPXORQ(tmp, z, z) },
		func() { VPSHUFB(constant(cGuard), z, z) },
	}
}

// tags sets z to the tags of a group, where they are in a field. side is scIn or scOut.
func (k *kernel) tags(side int, z vec) []func() {
	return []func(){
		func() { VMOVDQA64(Ptr(Scratch, side), z) },
		func() { VPSHUFB(constant(cField), z, z) },
	}
}

// nextTags advances the tags to the next group.
func (k *kernel) nextTags(side int, tmp vec) []func() {
	return []func(){
		func() { VMOVDQA64(Ptr(Scratch, side), tmp) },
		func() { VPADDD(Ptr(Scratch, side+64), tmp, tmp) },
		func() { VMOVDQA64(tmp, Ptr(Scratch, side)) },
	}
}
