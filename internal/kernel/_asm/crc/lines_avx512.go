package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Blocks of 512 bytes by whole cache lines
//
// Where fields lie between the blocks, seven of eight blocks do not begin on a cache
// line, and each vector of theirs lies across two. Such a load costs two accesses, and
// more than two while the lines are still on their way from the second level: reading
// that way is half as fast as reading lines. So these kernels read lines only. A block
// at phase p begins p pieces of 8 bytes behind the start of a line:
//
//	line 0            lines 1 to 7       line 8
//	-- p --|  head    |  512 - 64 bytes  |  tail |-- 8-p --
//
// Head and tail together are one vector: the lanes from p on are of line 0, the others
// of line 8. What a lane is multiplied by depends on its distance from the block's end
// and is taken from a table by phase, so no data changes its lane. The last line with
// data is that of the block's last byte, which for p = 0 is line 7, and of which
// nothing is then taken.
//
// Bytes around the block are read, too, but none outside its lines. They are in the
// lanes that are not taken.
//
// The four blocks side by side must have one phase, to share the constants. They are
// eight blocks apart: whatever the stride, as a multiple of 8 bytes, eight of it are
// whole lines. So blocks are done in rounds of 32, in the order
//
//	0 8 16 24   1 9 17 25   2 10 18 26   ...   7 15 23 31
//
// and the fields of a round are brought into order at its end.

const (
	// lineBlock is the size of block that the kernels by lines are for.
	lineBlock = 512

	// roundBlocks is the blocks in a round.
	roundBlocks = 32
)

// lineRecord returns the bytes of the constants of one phase, and where the constants
// proper begin in it.
func (a *algorithm) lineRecord() (size, constants int) { return 64 + a.factors*lineBlock, 64 }

// foldLines folds the next four blocks of one phase and moves the run's src to the
// next block. Other code, if there is any, is woven in.
func (k *kernel) foldLines(sums [][]VecVirtual, other func()) {
	at, phase, table, stride := load64(k.run, runSrc), GP64(), load64(k.run, runLines), load64(k.run, runSrcStride)
	tail := GP64()
	MOVQ(at, phase)
	ANDQ(U8(63), phase)
	LEAQ(mem(at, lineBlock-1), tail)
	ANDQ(I8(-64), tail)
	ADDQ(at, stride)
	MOVQ(stride, mem(k.run, runSrc))
	SUBQ(at, stride)
	SHLQ(U8(3), stride)
	ANDQ(I8(-64), at)
	record, constants := k.alg.lineRecord()
	IMUL3Q(U32(record/8), phase, phase)
	ADDQ(phase, table)

	stride3 := GP64()
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, stride3)
	lines := &rows{at: at, stride: stride, stride3: stride3}
	tails := &rows{at: tail, stride: stride, stride3: stride3}
	g := &group{n: 4, sums: sums, table: table, high: lineBlock}
	take := ZMM()
	VMOVDQA64(mem(table, 0), take)
	for _, block := range sums {
		for _, s := range block {
			VMOVDQA64(k.zero, s)
		}
	}
	weave(func() {
		for disp := 0; disp < lineBlock; disp += 128 {
			k.alg.fold(k, g, constants+disp, 2, func(v, i int) VecVirtual {
				z := ZMM()
				at := disp + 64*v
				VMOVDQA64(lines.mem(i, at), z)
				if at == 0 {
					// Where take has ones, z, else the tail.
					VPTERNLOGQ(U8(0xE2), tails.mem(i, 0), take, z)
				}
				return z
			})
		}
	}, other)
}

// rounds does as many rounds as there are, at least one.
func (k *kernel) rounds() {
	a := k.alg
	sums := [2][][]VecVirtual{k.newSums(4), k.newSums(4)}
	quad := func(half int) {
		z := a.quad(func(b, v int) VecVirtual { return sums[half][b][v] })
		VMOVDQA64(z, mem(k.stack, k.frame.quads[half]))
	}
	// The fields of two groups of four are made while the next is folded. The first
	// time there are none, and what comes out is written over.
	fields := func() {
		quad(1)
		z := a.fields(k, k.quads(), false)
		to := load64(k.run, runCount)
		rest()
		VMOVDQA64(z, Mem{Base: k.stack, Index: to, Scale: 1, Disp: k.frame.round})
		rest()
	}

	next, more, last := label("pair"), label("more"), label("last")
	MOVQ(U32(3*64), mem(k.run, runCount))
	Label(next)
	k.foldLines(sums[0], fields)
	count := load64(k.run, runCount)
	ADDQ(U8(64), count)
	CMPQ(count, U32(4*64))
	JNE(LabelRef(more))
	XORQ(count, count)
	// A round begins. Finish the one before.
	CMPQ(mem(k.run, runGroups), U8(0))
	JE(LabelRef(more))
	MOVQ(count, mem(k.run, runCount))
	k.endRound()
	count2 := GP64()
	XORQ(count2, count2)
	MOVQ(count2, count)
	Label(more)
	MOVQ(count, mem(k.run, runCount))
	MOVQ(U32(1), mem(k.run, runGroups))
	k.foldLines(sums[1], func() { quad(0) })
	CMPQ(mem(k.run, runCount), U32(3*64))
	JNE(LabelRef(next))
	// Eight groups later src is eight blocks further, and three times that are done.
	stride, src := load64(k.run, runSrcStride), load64(k.run, runSrc)
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, stride)
	LEAQ(Mem{Base: src, Index: stride, Scale: 8}, src)
	MOVQ(src, mem(k.run, runSrc))
	SUBQ(U8(roundBlocks), mem(k.run, runN))
	CMPQ(mem(k.run, runN), U8(roundBlocks))
	JGE(LabelRef(next))
	Label(last)
	fields()
	k.endRound()
}

// endRound brings the fields of a round into order, and stores or compares them.
func (k *kernel) endRound() {
	// Vector j has, in its lanes r of 128 bits, the blocks 2j + 8r and 2j+1 + 8r.
	var z [4]VecVirtual
	for j := range z {
		z[j] = ZMM()
		VMOVDQA64(mem(k.stack, k.frame.round+64*j), z[j])
	}
	shuffle := func(order uint8, x, y VecVirtual) VecVirtual {
		s := ZMM()
		VSHUFI64X2(U8(order), y, x, s)
		return s
	}
	even01, even23 := shuffle(0x88, z[0], z[1]), shuffle(0x88, z[2], z[3])
	odd01, odd23 := shuffle(0xDD, z[0], z[1]), shuffle(0xDD, z[2], z[3])
	want := load64(k.run, runWant)
	for r, s := range []VecVirtual{
		shuffle(0x88, even01, even23), shuffle(0x88, odd01, odd23),
		shuffle(0xDD, even01, even23), shuffle(0xDD, odd01, odd23),
	} {
		VMOVDQU64(k.alg.wire(k, s), mem(want, 64*r))
	}
	ADDQ(U32(4*64), want)
	MOVQ(want, mem(k.run, runWant))
	later := label("later")
	Label(later)
	eachField(k.run, nil, nil)
	values := load64(k.run, runValues)
	CMPQ(values, mem(k.run, runWant))
	JB(LabelRef(later))
}
