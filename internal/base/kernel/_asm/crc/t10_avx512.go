package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// highTable is the offset from the matrices for the low byte of the sum to those for the
// high byte: the size of t10Table.low in Go.
const highTable = (520 + 8) * 8

// powerTable is the offset to the factors for multiplication.
const powerTable = 2 * highTable

// Offsets in the Go type t10Consts.
const (
	t10LowLow    = 0
	t10LowHigh   = 64
	t10HighLow   = 128
	t10HighHigh  = 192
	t10LastLow   = 256
	t10LastHigh  = 272
	t10Fold      = 288
	t10FoldPower = 352
)

// t10 generates CRC-16/T10-DIF by affine maps. A CRC is linear over GF(2), and this one
// has only 16 bits: two 8 by 8 bit matrices map a byte to its remainder at its distance
// from the block's end, in words of 8 bytes. GF2P8AFFINEQB applies a matrix to the 8
// bytes of a lane, so a vector takes two of them and no change of byte or bit order.
// Multiplication would take a shuffle and two products on one port. The position of a
// byte in its word is corrected at the end, for eight blocks at once.
func t10() *algorithm {
	return &algorithm{
		name:    "t10",
		sums:    2,
		setup:   tags,
		short:   true,
		factors: 2,
		unit:    8,
		fold: func(k *kernel, g *group, disp, n int, load func(v, i int) VecVirtual) {
			var matrices [2][]VecVirtual // [low, high][vector]
			for half, table := range []int{0, g.high} {
				for v := range n {
					m := ZMM()
					VMOVDQU64(mem(g.table, table+disp+64*v), m)
					matrices[half] = append(matrices[half], m)
				}
			}
			for i := range g.n {
				var d []VecVirtual
				for v := range n {
					d = append(d, load(v, i))
				}
				for half, m := range matrices {
					sum := g.sums[i][half]
					x := ZMM()
					VGF2P8AFFINEQB(U8(0), m[0], d[0], x)
					if n == 2 {
						y := ZMM()
						VGF2P8AFFINEQB(U8(0), m[1], d[1], y)
						VPTERNLOGQ(U8(xor3), x, y, sum)
					} else {
						VPXORQ(x, sum, sum)
					}
					beat()
				}
			}
		},
		// Add up the lanes. The multiplier's port is idle here, so shuffles cost
		// nothing.
		quad: func(sum func(b, v int) VecVirtual) VecVirtual {
			var half [2]VecVirtual
			for v := range half {
				half[v] = lanes(unpack(sum(0, v), sum(1, v), xor), unpack(sum(2, v), sum(3, v), xor), xor)
			}
			return lanes(half[0], half[1], xor) // lows of 0 1 2 3, highs of 0 1 2 3
		},
		wire: withTags,
		fields: func(k *kernel, four [2]Mem, ordered bool) VecVirtual {
			// A 64-bit lane holds the low or the high bytes of one block's
			// remainders for the eight positions. Transpose them, so that a
			// lane holds one position of eight blocks.
			z, lows, highs, turn := ZMM(), ZMM(), ZMM(), ZMM()
			VMOVDQA64(four[0], z)
			rest()
			VMOVDQA64(four[1], highs)
			rest()
			VSHUFI64X2(U8(0x44), highs, z, lows)
			rest()
			VSHUFI64X2(U8(0xEE), highs, z, highs)
			rest()
			VMOVDQU64(transposition(), turn)
			rest()
			VPERMB(lows, turn, lows)
			rest()
			VPERMB(highs, turn, highs)
			rest()
			consts := load64(k.run, runConsts)
			low, high, t, u := ZMM(), ZMM(), ZMM(), ZMM()
			// Apply the matrix of each position.
			VGF2P8AFFINEQB(U8(0), mem(consts, t10LowLow), lows, low)
			rest()
			VGF2P8AFFINEQB(U8(0), mem(consts, t10HighLow), highs, t)
			rest()
			VPXORQ(t, low, low)
			rest()
			VGF2P8AFFINEQB(U8(0), mem(consts, t10LowHigh), lows, high)
			rest()
			VGF2P8AFFINEQB(U8(0), mem(consts, t10HighHigh), highs, u)
			rest()
			VPXORQ(u, high, high)
			rest()
			// Add up the positions. Every 128 bits then hold the low and the
			// high bytes of all eight guards.
			s := unpack(low, high, xor)
			VSHUFI64X2(U8(0x4E), s, s, t)
			rest()
			VPXORQ(t, s, s)
			rest()
			VSHUFI64X2(U8(0xB1), s, s, t)
			rest()
			VPXORQ(t, s, s)
			rest()
			VPSHUFB(t10Spread(ordered), s, s)
			rest()
			return s
		},
	}
}

// t10Long generates T10-DIF for blocks so long that an additional sum costs little.
// Affine maps use one port, multiplications another, which t10 uses only for a few
// shuffles. Here two of eight vectors are multiplied, with which the load on both ports
// is even. The sum of their products is then folded like 16 more bytes of data.
func t10Long() *algorithm {
	a := t10()
	affine := a.fold
	a.name = "t10Long"
	a.more = 1
	a.short = false
	a.setup = func(k *kernel) {
		tags(k)
		swap := ZMM()
		VMOVDQU64(byteSwap(), swap)
		k.own = append(k.own, swap)
	}
	a.fold = func(k *kernel, g *group, disp, n int, load func(v, i int) VecVirtual) {
		if disp != step-128 {
			affine(k, g, disp, n, load)
			return
		}
		for v := range n {
			constant := ZMM()
			VMOVDQU64(mem(g.table, powerTable+disp+64*v), constant)
			for i := range g.n {
				d, even, odd := load(v, i), ZMM(), ZMM()
				VPSHUFB(k.own[0], d, d)
				VPCLMULQDQ(U8(0x00), constant, d, even)
				VPCLMULQDQ(U8(0x11), constant, d, odd)
				VPTERNLOGQ(U8(xor3), even, odd, g.sums[i][2])
				beat()
			}
		}
	}
	a.finish = func(k *kernel, sums []VecVirtual) {
		// In the order of the data again, the upper 64 bits are at distance 1 and
		// the lower ones at 0.
		products := sums[2]
		VPSHUFB(reversal(), products, products)
		consts := load64(k.run, runConsts)
		for half, off := range []int{t10LastLow, t10LastHigh} {
			m := ZMM()
			VBROADCASTI64X2(mem(consts, off), m)
			VGF2P8AFFINEQB(U8(0), m, products, m)
			VPXORQ(m, sums[half], sums[half])
		}
	}
	return a
}

// tags initialises the registers of withTags.
func tags(k *kernel) {
	tag, step, count := ZMM(), ZMM(), ZMM()
	low := K()
	// Only the low 32 bits of each 64, the reference tag, are incremented.
	r := GP64()
	MOVL(U32(0x5555), r.As32())
	KMOVW(r.As32(), low)
	VPBROADCASTQ(mem(k.run, runTag), tag)
	VPBROADCASTD_Z(mem(k.run, runStep), low, step)
	VMOVDQU64(vectorOfQuads("counting", 0, 1, 2, 3, 4, 5, 6, 7), count)
	VPMULLD(step, count, count)
	VPADDD(count, tag, tag)
	VPSLLD(U8(3), step, step)
	k.tag, k.step = tag, step
}

// withTags combines tags and guards, and increments the tags by eight blocks.
func withTags(k *kernel, guards VecVirtual) VecVirtual {
	t := ZMM()
	VPSHUFB(byteSwap(), k.tag, t)
	rest()
	VPADDD(k.step, k.tag, k.tag)
	rest()
	VPTERNLOGQ(U8(xor3), t, k.fix, guards)
	rest()
	return guards
}

// transposition returns the byte permutation that exchanges the lane of a byte with its
// position in the lane.
func transposition() Mem {
	var b [64]byte
	for i := range b {
		b[i] = byte(i%8*8 + i/8)
	}
	return data("transposition", b[:])
}

// t10Spread returns the byte shuffle that distributes guards over lanes: lane i gets the
// high and then the low byte of block i, and zeros for its tags. If the blocks are not to
// be in order, those of the same position in each four are adjacent.
func t10Spread(ordered bool) Mem {
	var b [64]byte
	for i := range b {
		b[i] = 0x80
	}
	for lane := range 8 {
		block := lane
		if !ordered {
			block = lane%2*4 + lane/2
		}
		b[lane*8] = byte(8 + block)
		b[lane*8+1] = byte(block)
	}
	return data(fmt.Sprintf("t10Spread%t", ordered), b[:])
}

// byteSwap returns the byte shuffle that reverses the bytes of every 64 bits.
func byteSwap() Mem {
	var b [64]byte
	for i := range b {
		b[i] = byte(i&8 | 7 - i&7)
	}
	return data("byteSwap", b[:])
}

// reversal returns the byte shuffle that reverses the bytes of every 128 bits.
func reversal() Mem {
	var b [64]byte
	for i := range b {
		b[i] = byte(15 - i&15)
	}
	return data("reversal", b[:])
}

func vectorOfQuads(name string, q ...uint64) Mem {
	var b [64]byte
	for i, v := range q {
		b[i*8] = byte(v)
	}
	return data(name, b[:])
}

var datas = map[string]Mem{}

// data returns a global with the given bytes. Each global is created once.
func data(name string, b []byte) Mem {
	if m, ok := datas[name]; ok {
		return m
	}
	m := GLOBL(name, RODATA|NOPTR)
	for i := 0; i < len(b); i += 8 {
		var v uint64
		for j := 7; j >= 0; j-- {
			v = v<<8 | uint64(b[i+j])
		}
		DATA(i, U64(v))
	}
	datas[name] = m
	return m
}
