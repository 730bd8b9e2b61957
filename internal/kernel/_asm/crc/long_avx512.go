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
		firstFirst = iota // from the first of a pair to the first
		firstSecond
		secondFirst
		secondSecond
		power
		turn
	)
	a := t10()
	a.name = "t10Long"
	a.setup = func(k *kernel) {
		tags(k)
		consts := load64(k.run, runConsts)
		for i := range 4 {
			z := ZMM()
			VPBROADCASTQ(mem(consts, t10Fold+8*i), z)
			k.own = append(k.own, z)
		}
		z := ZMM()
		VBROADCASTI64X2(mem(consts, t10FoldPower), z)
		k.own = append(k.own, z)
		z = ZMM()
		VMOVDQU64(reversal(), z)
		k.own = append(k.own, z)
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
			state[i] = ZMM()
			if i == 0 {
				VMOVDQU64_Z(mem(at, 0), head, state[i])
			} else {
				VMOVDQA64(mem(at, 64*i), state[i])
			}
			if multiplied(i) {
				VPSHUFB(k.own[turn], state[i], state[i])
			}
		}
		loop := label("fold")
		Label(loop)
		ADDQ(U32(64*foldLines), at)
		for i := range pairDistance {
			j := i + pairDistance
			if multiplied(i) {
				for _, l := range []int{i, j} {
					d, low := ZMM(), ZMM()
					VMOVDQA64(mem(at, 64*l), d)
					VPSHUFB(k.own[turn], d, d)
					VPCLMULQDQ(U8(0x00), k.own[power], state[l], low)
					VPCLMULQDQ(U8(0x11), k.own[power], state[l], state[l])
					VPTERNLOGQ(U8(xor3), d, low, state[l])
				}
				continue
			}
			first, second := ZMM(), ZMM()
			VGF2P8AFFINEQB(U8(0), k.own[firstFirst], state[i], first)
			VGF2P8AFFINEQB(U8(0), k.own[firstSecond], state[i], second)
			VGF2P8AFFINEQB(U8(0), k.own[secondFirst], state[j], state[i])
			VGF2P8AFFINEQB(U8(0), k.own[secondSecond], state[j], state[j])
			VPTERNLOGQ(U8(xor3), mem(at, 64*i), first, state[i])
			VPTERNLOGQ(U8(xor3), mem(at, 64*j), second, state[j])
		}
		behind := GP64()
		LEAQ(mem(at, 64*foldLines), behind)
		CMPQ(behind, end)
		JNE(LabelRef(loop))

		last := ZMM()
		VMOVDQU64_Z(mem(end, 0), tail, last)
		for half, off := range []int{0, highTable} {
			var terms []VecVirtual
			for i, s := range append(state[:], last) {
				if multiplied(i) && half == 0 {
					VPSHUFB(k.own[turn], s, s)
				}
				m := ZMM()
				VMOVDQU64(mem(table, off+64*(i-foldLines)), m)
				VGF2P8AFFINEQB(U8(0), m, s, m)
				if terms = append(terms, m); len(terms) == 3 {
					VPTERNLOGQ(U8(xor3), terms[2], terms[1], terms[0])
					terms = terms[:1]
				}
			}
			VMOVDQA64(terms[0], sums[half])
		}
	}
	return a
}
