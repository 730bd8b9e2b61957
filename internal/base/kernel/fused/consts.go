package fused

import "unsafe"

// modulus is the polynomial of CRC-16/T10-DIF.
const modulus = 0x18BB7

// vector is a register of four lanes, each with its low half first.
type vector [4][2]uint64

// consts holds the constants of the kernels. The generator explains their use.
type consts struct {
	place   [8]vector // powers of x for the low and high half of each lane of a block
	last    vector    // powers of x for the last lane
	reduce  vector    // x^64 mod P, floor(x^64 / P)
	modulus vector    // P
	reverse vector    // shuffle: the bytes of a lane, in reverse
	guard   vector    // shuffle: a number's low 16 bits to a field's first two bytes
	field   vector    // shuffle: a number's low 64 bits to a field
	powers  [2]vector // x^0 to x^7, for tweaks
	poly    vector    // x^128 in the field of tweaks
}

// table is aligned to cache lines, because a load across two lines takes two accesses.
var table = newConsts()

func newConsts() *consts {
	const line = 64
	mem := make([]byte, unsafe.Sizeof(consts{})+line-1)
	p := unsafe.Pointer(unsafe.SliceData(mem))
	c := (*consts)(unsafe.Add(p, -uintptr(p)&(line-1)))

	for j := range 32 {
		behind := 128 * (31 - j) // bits
		c.place[j/4][j%4] = [2]uint64{times(1, behind+16), times(1, behind+64+16)}
	}
	const zeros = 0x8080808080808080 // shuffle control bytes that give zeros
	c.last = same(times(1, 16), times(1, 64+16))
	c.reduce = same(times(1, 64), quotient())
	c.modulus = same(modulus, 0)
	c.reverse = same(0x08090a0b0c0d0e0f, 0x0001020304050607)
	c.guard = same(zeros&^0xFFFF|0x0001, zeros)
	c.field = same(0x0001020304050607, zeros)
	for j := range 8 {
		c.powers[j/4][j%4][0] = 1 << j
	}
	c.poly = same(0x87, 0)
	return c
}

func same(lo, hi uint64) (v vector) {
	for i := range v {
		v[i] = [2]uint64{lo, hi}
	}
	return v
}

// times returns r * x^n modulo P, for r of 16 bits.
func times(r uint64, n int) uint64 {
	for range n {
		if r <<= 1; r>>16 != 0 {
			r ^= modulus
		}
	}
	return r
}

// quotient returns floor(x^64 / P), by long division.
func quotient() (q uint64) {
	rest := uint64(1) << 16 // part of x^64 above the current position
	for range 64 - 16 + 1 {
		q <<= 1
		if rest>>16 != 0 {
			q |= 1
			rest ^= modulus
		}
		rest <<= 1
	}
	return q
}

// seedGuard is the contribution to a block's guard of a register that starts at 0xFFFF.
var seedGuard = times(0xFFFF, 8*BlockSize)
