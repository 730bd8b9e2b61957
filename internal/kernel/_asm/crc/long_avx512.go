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
// time, which stay in registers: what eight lines add up to is moved eight lines on,
// and these are added. What is left in the last eight is brought down to two in the same
// way, and only these are multiplied by the constants of the distance from the block's
// end. The parts of the block in its first and last lines are made whole by zeros.
//
// An affine map gives 8 bits, and a remainder has 16, so folding takes two lines: the
// remainder of a byte is the sum of a byte at the same place some lines on and another
// four lines behind that. The maps to these two are what the table has. They exist
// because x^2048 is what it is; with neighbouring lines they would not. So lines 0 4,
// 1 5, 2 6 and 3 7 are pairs.
//
// Folding some of the lines by multiplication would take fewer cycles, as the port for
// that is idle. It was tried and is slower: processors lower their clock for it.

const (
	// foldLines is the lines that are folded at once.
	foldLines = 8

	// pairDistance is how many lines are between those of a pair.
	pairDistance = foldLines / 2
)

// t10LongLines is T10-DIF for blocks of a multiple of 512 bytes, at least 1024.
func t10LongLines() *algorithm {
	// The maps of folding, in own: four by eight lines, four by one.
	const (
		far  = 0
		near = 4
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
	}
	// fold applies four maps to the lines of a pair and adds two others.
	fold := func(k *kernel, maps int, x, y VecVirtual, addX, addY Op) {
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
		// The line that has the block's tail, and its constants.
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
			sum[i] = ZMM()
			if i == 0 {
				VMOVDQU64_Z(mem(at, 0), head, sum[i])
			} else {
				VMOVDQA64(mem(at, 64*i), sum[i])
			}
		}
		loop := label("fold")
		Label(loop)
		ADDQ(U32(64*foldLines), at)
		for i := range pairDistance {
			j := i + pairDistance
			fold(k, far, sum[i], sum[j], mem(at, 64*i), mem(at, 64*j))
		}
		behind := GP64()
		LEAQ(mem(at, 64*foldLines), behind)
		CMPQ(behind, end)
		JNE(LabelRef(loop))

		x, y, last := sum[0], sum[pairDistance], ZMM()
		for i := 1; i < pairDistance; i++ {
			fold(k, near, x, y, sum[i], sum[i+pairDistance])
		}
		// x is line 3 of the last eight now, y line 7, and last is behind that.
		VMOVDQU64_Z(mem(end, 0), tail, last)
		for half, off := range []int{0, highTable} {
			var products [3]VecVirtual
			for i, line := range []struct {
				sum    VecVirtual
				behind int
			}{{x, 1 + pairDistance}, {y, 1}, {last, 0}} {
				z := ZMM()
				VMOVDQU64(mem(table, off-64*line.behind), z)
				VGF2P8AFFINEQB(U8(0), z, line.sum, z)
				products[i] = z
			}
			VPTERNLOGQ(U8(xor3), products[0], products[1], products[2])
			VMOVDQA64(products[2], sums[half])
		}
	}
	return a
}
