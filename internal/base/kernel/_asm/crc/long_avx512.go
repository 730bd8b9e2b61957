package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Long blocks by whole cache lines
//
// Long blocks are read by cache lines as blocks of 512 bytes are (see lines_avx512.go),
// but one after the other, because a run has too few of them to find four of the same
// phase. So blocks cannot share constants, and loading one for each vector would cost more
// than the arithmetic. Instead a block is folded from front to back with constants that stay
// in registers: the sum of eight lines is moved forward by eight lines, and the next
// eight lines are added. The last eight lines are reduced to three in the same way. Only
// these are multiplied by the constants for the distance from the block's end. The parts
// of the block's first and last lines are extended by zeros.
//
// An affine map produces 8 bits and a remainder has 16, so folding uses pairs of lines:
// the remainder of a byte is the sum of a byte at the same position some lines later and
// another one four lines after that. The table holds the maps to these two bytes. They
// exist for lines four apart, because of the value of x^2048 mod P; for adjacent lines
// they do not. Lines 0 4, 1 5 and 2 6 are therefore pairs. Lines 3 and 7 are folded by
// multiplication, because the multiplier's port would be idle otherwise: with two of
// eight lines the load on both ports is even.

const (
	// foldLines is the number of lines that are folded together.
	foldLines = 8

	// pairDistance is the distance between the lines of a pair.
	pairDistance = foldLines / 2
)

// multiplied reports whether line number line of the eight is folded by multiplication.
func multiplied(line int) bool { return line%pairDistance == pairDistance-1 }

// t10LongLines generates T10-DIF for blocks of a multiple of 512 bytes, at least 1024.
func t10LongLines() *algorithm {
	// Indexes in kernel.constants of the constants for folding.
	const (
		far       = 0  // four maps over eight lines
		near      = 4  // four maps over one line
		power     = 8  // factor for multiplication, over eight lines
		nearPower = 9  // factor over four lines
		reverse   = 10 // byte shuffle from the order of the data to that for multiplication, and back
	)
	a := t10()
	a.name = "t10Long"
	a.setup = func(k *kernel) {
		tags(k)
		consts := load64(k.run, runConsts)
		for i := range 8 {
			z := ZMM()
			VPBROADCASTQ(mem(consts, t10Fold+8*i), z)
			k.constants = append(k.constants, z)
		}
		for i := range 2 {
			z := ZMM()
			VBROADCASTI64X2(mem(consts, t10FoldPower+16*i), z)
			k.constants = append(k.constants, z)
		}
		z := ZMM()
		VMOVDQU64(reversal(), z)
		k.constants = append(k.constants, z)
	}
	loadReversed := func(k *kernel, line Mem) VecVirtual {
		z := ZMM()
		VMOVDQA64(line, z)
		VPSHUFB(k.constants[reverse], z, z)
		return z
	}
	// multiply multiplies line z by the constant with index factor, and adds another line.
	multiply := func(k *kernel, factor int, z VecVirtual, add Op) {
		low := ZMM()
		VPCLMULQDQ(U8(0x00), k.constants[factor], z, low)
		VPCLMULQDQ(U8(0x11), k.constants[factor], z, z)
		VPTERNLOGQ(U8(xor3), add, low, z)
	}
	// fold applies the four maps from index maps on to x and y, the lines of a pair, and adds another pair.
	fold := func(k *kernel, maps int, x, y VecVirtual, addX, addY Op) {
		first, second := ZMM(), ZMM()
		VGF2P8AFFINEQB(U8(0), k.constants[maps], x, first)
		VGF2P8AFFINEQB(U8(0), k.constants[maps+1], x, second)
		VGF2P8AFFINEQB(U8(0), k.constants[maps+2], y, x)
		VGF2P8AFFINEQB(U8(0), k.constants[maps+3], y, y)
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
		// The line with the block's tail, and its constants.
		ADDQ(end, table)
		SUBQ(phase, table)
		ADDQ(at, end)
		SHRQ(U8(3), phase)
		lanes, head, tail := GP64(), K(), K()
		MOVL(U32(0xFF), lanes.As32())
		BZHIQ(phase, lanes, lanes)
		KMOVW(lanes.As32(), tail)
		KNOTW(tail, head)

		var sum [foldLines]VecVirtual
		for i := range sum {
			switch {
			case i == 0:
				sum[i] = ZMM()
				VMOVDQU64_Z(mem(at, 0), head, sum[i])
			case multiplied(i):
				sum[i] = loadReversed(k, mem(at, 64*i))
			default:
				sum[i] = ZMM()
				VMOVDQA64(mem(at, 64*i), sum[i])
			}
		}
		loop := label("fold")
		Label(loop)
		ADDQ(U32(64*foldLines), at)
		for _, i := range []int{0, 3, 1, 7, 2} {
			if multiplied(i) {
				multiply(k, power, sum[i], loadReversed(k, mem(at, 64*i)))
				continue
			}
			j := i + pairDistance
			fold(k, far, sum[i], sum[j], mem(at, 64*i), mem(at, 64*j))
		}
		behind := GP64()
		LEAQ(mem(at, 64*foldLines), behind)
		CMPQ(behind, end)
		JNE(LabelRef(loop))

		fold(k, near, sum[0], sum[4], sum[1], sum[5])
		fold(k, near, sum[0], sum[4], sum[2], sum[6])
		multiply(k, nearPower, sum[3], sum[7])
		VPSHUFB(k.constants[reverse], sum[3], sum[3])
		last := ZMM()
		VMOVDQU64_Z(mem(end, 0), tail, last)
		remaining := []struct {
			sum    VecVirtual
			before int // number of lines before the last
		}{{sum[0], 6}, {sum[4], 2}, {sum[3], 1}, {last, 0}}
		for half, off := range []int{0, planeTable} {
			var products [4]VecVirtual
			for i, l := range remaining {
				z := ZMM()
				VMOVDQU64(mem(table, off-64*l.before), z)
				VGF2P8AFFINEQB(U8(0), z, l.sum, z)
				products[i] = z
			}
			VPTERNLOGQ(U8(xor3), products[0], products[1], products[2])
			VPXORQ(products[2], products[3], sums[half])
		}
	}
	return a
}
