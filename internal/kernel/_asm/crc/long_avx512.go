package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Long blocks by whole cache lines
//
// Long blocks are read by lines as those of 512 bytes are (see lines_avx512.go), one
// after the other, because there are not enough of them to have four of one phase. So
// constants are not shared, and a load for each would cost more than the arithmetic.
// Instead a block is folded from its front to its back by the same constants all the
// time, which stay in registers: eight lines are multiplied by x^4096, and the next
// eight are added. What is left after the last is multiplied by the constants of the
// distance from the block's end.
//
// A byte of 8 bits has a remainder of 16, so folding by affine maps takes two lines:
// the remainder of a byte is the sum of a byte at the same place of the line eight
// lines on and one four lines before or behind that, and the maps to these two are what
// the table has. They exist because x^2048 is what it is; two neighbouring lines would
// not do. Lines 0 4, 1 5 and 2 6 are folded that way. Lines 3 and 7 are multiplied, to
// use the multiplications' port too; three to one is where the load is even.
//
// The parts of the block in its first and last lines are made whole by zeros.

// foldLines is the lines that are folded at once.
const foldLines = 8

// pairDistance is how many lines are between those of a pair.
const pairDistance = 4

// multiplied reports whether a line of eight is folded by multiplication.
func multiplied(line int) bool { return line%pairDistance == pairDistance-1 }

// t10LongLines is T10-DIF for blocks of a multiple of 512 bytes, at least 1024.
func t10LongLines() *algorithm {
	const (
		far       = 0 // four maps, eight lines on
		near      = 4 // one line on
		power     = 8 // eight lines on
		nearPower = 9 // four lines on
		turn      = 10
	)
	a := t10()
	a.name = "t10Long"
	a.setup = func(k *kernel) {
		tags(k)
		consts := load64(k.run, runConsts)
		for i := range 8 {
			z := ZMM()
			VPBROADCASTQ(mem(consts, t10Fold+8*i), z)
			k.own = append(k.own, z)
		}
		for i := range 2 {
			z := ZMM()
			VBROADCASTI64X2(mem(consts, t10FoldPower+16*i), z)
			k.own = append(k.own, z)
		}
		z := ZMM()
		VMOVDQU64(reversal(), z)
		k.own = append(k.own, z)
	}
	turned := func(k *kernel, line Mem) VecVirtual {
		z := ZMM()
		VMOVDQA64(line, z)
		VPSHUFB(k.own[turn], z, z)
		return z
	}
	// multiply multiplies a line and adds another.
	multiply := func(k *kernel, z VecVirtual, by int, add Op) {
		low := ZMM()
		VPCLMULQDQ(U8(0x00), k.own[by], z, low)
		VPCLMULQDQ(U8(0x11), k.own[by], z, z)
		VPTERNLOGQ(U8(xor3), add, low, z)
	}
	// apply applies the maps from maps on to the two lines of a pair and adds others.
	apply := func(k *kernel, x, y VecVirtual, maps int, addX, addY Op) {
		first, second := ZMM(), ZMM()
		VGF2P8AFFINEQB(U8(0), k.own[maps], x, first)
		VGF2P8AFFINEQB(U8(0), k.own[maps+1], x, second)
		VGF2P8AFFINEQB(U8(0), k.own[maps+2], y, x)
		VGF2P8AFFINEQB(U8(0), k.own[maps+3], y, y)
		VPTERNLOGQ(U8(xor3), addX, first, x)
		VPTERNLOGQ(U8(xor3), addY, second, y)
	}
	a.foldBlock = func(k *kernel, sums []VecVirtual) {
		at, end, table, phase := load64(k.run, runSrc), load64(k.run, runSize), load64(k.run, runTable), GP64()
		next := load64(k.run, runSrcStride)
		ADDQ(at, next)
		MOVQ(next, mem(k.run, runSrc))
		MOVQ(at, phase)
		ANDQ(U8(63), phase)
		SUBQ(phase, at)
		// The constants of the line behind the last whole one.
		ADDQ(end, table)
		SUBQ(phase, table)
		ADDQ(at, end)
		SHRQ(U8(3), phase)
		bits, head, tail := GP64(), K(), K()
		MOVL(U32(0xFF), bits.As32())
		BZHIQ(phase, bits, bits)
		KMOVW(bits.As32(), tail)
		KNOTW(tail, head)

		var state [foldLines]VecVirtual
		for i := range state {
			switch {
			case i == 0:
				state[i] = ZMM()
				VMOVDQU64_Z(mem(at, 0), head, state[i])
			case multiplied(i):
				state[i] = turned(k, mem(at, 64*i))
			default:
				state[i] = ZMM()
				VMOVDQA64(mem(at, 64*i), state[i])
			}
		}
		loop := label("fold")
		Label(loop)
		ADDQ(U32(64*foldLines), at)
		for i := range pairDistance {
			j := i + pairDistance
			if multiplied(i) {
				multiply(k, state[i], power, turned(k, mem(at, 64*i)))
				multiply(k, state[j], power, turned(k, mem(at, 64*j)))
				continue
			}
			apply(k, state[i], state[j], far, mem(at, 64*i), mem(at, 64*j))
		}
		behind := GP64()
		LEAQ(mem(at, 64*foldLines), behind)
		CMPQ(behind, end)
		JNE(LabelRef(loop))

		last := ZMM()
		VMOVDQU64_Z(mem(end, 0), tail, last)
		// Bring eight lines down to three.
		apply(k, state[0], state[4], near, state[1], state[5])
		apply(k, state[0], state[4], near, state[2], state[6])
		state[2], state[6] = state[0], state[4]
		multiply(k, state[3], nearPower, state[7])
		VPSHUFB(k.own[turn], state[3], state[7])
		for half, off := range []int{0, highTable} {
			var t []VecVirtual
			for _, line := range []int{2, 6, 7, 8} {
				z := ZMM()
				VMOVDQU64(mem(table, off+64*(line-foldLines)), z)
				VGF2P8AFFINEQB(U8(0), z, append(state[:], last)[line], z)
				t = append(t, z)
			}
			VPTERNLOGQ(U8(xor3), t[0], t[1], t[2])
			VPXORQ(t[2], t[3], sums[half])
		}
	}
	return a
}
