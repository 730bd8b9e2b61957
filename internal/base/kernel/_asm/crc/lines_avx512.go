package main

import (
	"math/bits"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Blocks of 512 bytes by whole cache lines
//
// If fields lie between the blocks, seven of eight blocks do not begin on a cache line,
// and each of their vectors crosses two lines. A load across two lines takes two
// accesses, and more while the lines are still on their way from the second-level cache:
// reading in this way is half as fast as reading lines. The kernels in this file
// therefore read whole lines only. A block at phase p begins p words of 8 bytes after the
// start of a line:
//
//	line 0            lines 1 to 7       line 8
//	-- p --|  head    |  512 - 64 bytes  |  tail |-- 8-p --
//
// Head and tail together form one vector: its lanes from p on come from line 0, the
// others from line 8. The factor of a lane depends on its distance from the block's end
// and comes from a table by phase, so no data moves between lanes. The last line is the
// one with the block's last byte. For p = 0 that is line 7, and no lanes are taken from
// it.
//
// With fields of 4 bytes, blocks begin at any multiple of 4 bytes. At an odd multiple,
// the last 4 bytes of the block share a lane with the first 4. They are excluded from the
// vector and used as the initial sum, which is right for distance 0. The phase is
// therefore counted in the algorithm's unit of 8 or 4 bytes.
//
// The kernels also read the bytes around the block in its first and last line, but do not use
// them.
//
// Four blocks that are folded side by side must have the same phase, to share the constants. The
// stride of the blocks is a multiple of the unit, so eight strides (sixteen with units of 4 bytes)
// are a whole number of lines, and blocks at that distance have the same phase. Blocks are
// therefore processed in rounds of 32, or 64 with units of 4 bytes. The order in a round of 32 is
//
//	0 8 16 24   1 9 17 25   2 10 18 26   ...   7 15 23 31
//
// and the fields of a round are brought into order at its end.

// lineBlock is the size of the blocks that these kernels process.
const lineBlock = 512

// phases returns the number of phases, which is also the distance between blocks of the
// same phase.
func (a *algorithm) phases() int { return 64 / a.unit }

// roundBlocks returns the number of blocks in a round.
func (a *algorithm) roundBlocks() int { return 4 * a.phases() }

// Offsets in the Go types linePhase and halfPhase. The constants follow.
const (
	lineHead  = 0  // ones in the lanes of line 0
	halfTail  = 64 // ones in the lanes of line 8; with units of 8 bytes these are all other lanes
	halfShift = 128
)

// lineRecord returns the offset of a phase's constants in its record, and the size of the
// record.
func (a *algorithm) lineRecord() (constants, size int) {
	constants = 64
	if a.unit == 4 {
		constants = 192
	}
	return constants, constants + a.factors*lineBlock
}

// foldLines folds the next four blocks of one phase, and advances the run's src by one block. The code
// that other generates, if it is not nil, is interleaved.
func (k *kernel) foldLines(sums [][]VecVirtual, other func()) {
	a := k.alg
	at, phase, tail := load64(k.run, runSrc), GP64(), GP64()
	table, stride := load64(k.run, runLines), load64(k.run, runSrcStride)
	MOVQ(at, phase)
	ANDQ(U8(63), phase)
	LEAQ(mem(at, lineBlock-1), tail)
	ANDQ(I8(-64), tail)
	next := GP64()
	LEAQ(Mem{Base: at, Index: stride, Scale: 1}, next)
	MOVQ(next, mem(k.run, runSrc))
	SHLQ(U8(bits.TrailingZeros(uint(a.phases()))), stride)
	constants, size := a.lineRecord()
	IMUL3Q(U32(size/a.unit), phase, phase)
	ADDQ(phase, table)

	stride3 := GP64()
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, stride3)
	blocks := &rows{at: at, stride: stride, stride3: stride3}
	tails := &rows{at: tail, stride: stride, stride3: stride3}
	g := &foldSet{n: 4, sums: sums, table: table, plane: lineBlock}
	head, last := ZMM(), ZMM()
	VMOVDQA64(mem(table, lineHead), head)
	if a.unit == 4 {
		VMOVDQA64(mem(table, halfTail), last)
	}
	for i, block := range sums {
		for _, s := range block {
			if a.unit == 4 {
				VMOVD(blocks.mem(i, lineBlock-4), s.AsX())
				if a.reverseBits != nil {
					a.reverseBits(k, s)
				}
				VPSLLVQ(mem(table, halfShift), s, s)
			} else {
				VPXORQ(s, s, s)
			}
		}
	}
	ANDQ(I8(-64), at)
	weave(func() {
		for disp := 0; disp < lineBlock; disp += 128 {
			a.fold(k, g, constants+disp, 2, func(v, i int) VecVirtual {
				z := ZMM()
				at := disp + 64*v
				VMOVDQA64(blocks.mem(i, at), z)
				switch {
				case at == 0 && a.unit == 4:
					t := ZMM()
					VPANDQ(tails.mem(i, 0), last, t)
					VPTERNLOGQ(U8(0xEA), t, head, z) // z & head | t
				case at == 0:
					VPTERNLOGQ(U8(0xE2), tails.mem(i, 0), head, z) // z, or the tail in lanes where head has zeros
				}
				return z
			})
		}
	}, other)
}

// rounds processes all rounds, at least one.
func (k *kernel) rounds() {
	a := k.alg
	fold, quad := k.halves(k.foldLines)
	// The fields of two quads are computed while the next quad is folded. While the first quad of a run is
	// folded there are none before it: the result is not valid, and is overwritten.
	fields := func() {
		quad(1)
		z := a.fields(k, k.quadSums(), false)
		to := load64(k.run, runCount)
		yieldToMain()
		later(VMOVDQA64, z, Mem{Base: k.stack, Index: to, Scale: 1, Disp: k.frame.round})
	}

	nextPair, sameRound := label("pair"), label("more")
	results := a.phases() / 2 * 64
	MOVQ(U32(results-64), mem(k.run, runCount))
	Label(nextPair)
	fold(0, fields)
	count := load64(k.run, runCount)
	ADDQ(U8(64), count)
	CMPQ(count, U32(results))
	JNE(LabelRef(sameRound))
	// At the start of a round, finish the previous one, if any.
	MOVQ(U32(0), count)
	CMPQ(mem(k.run, runGroups), U8(0))
	JE(LabelRef(sameRound))
	k.endRound()
	XORQ(count, count)
	Label(sameRound)
	MOVQ(count, mem(k.run, runCount))
	MOVQ(U32(1), mem(k.run, runGroups))
	fold(1, func() { quad(0) })
	// Store or compare eight fields of the previous round after each pair of quads.
	// A round has as many pairs as vectors of eight fields. If all were stored at the end of the
	// round, the stores would wait in the scheduler for their values.
	none := label("none")
	values := load64(k.run, runValues)
	CMPQ(values, mem(k.run, runWant))
	JAE(LabelRef(none))
	eachField(k.run, nil, nil)
	Label(none)
	CMPQ(mem(k.run, runCount), U32(results-64))
	JNE(LabelRef(nextPair))
	// src has advanced by a quarter of the round's blocks; skip the others.
	stride, src := load64(k.run, runSrcStride), load64(k.run, runSrc)
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, stride)
	SHLQ(U8(bits.TrailingZeros(uint(a.phases()))), stride)
	ADDQ(stride, src)
	MOVQ(src, mem(k.run, runSrc))
	SUBQ(U8(a.roundBlocks()), mem(k.run, runN))
	CMPQ(mem(k.run, runN), U8(a.roundBlocks()))
	JGE(LabelRef(nextPair))
	fields()
	k.endRound()
	// Store or compare the fields that are left.
	drain := label("later")
	Label(drain)
	eachField(k.run, nil, nil)
	values = load64(k.run, runValues)
	CMPQ(values, mem(k.run, runWant))
	JB(LabelRef(drain))
}

// endRound brings the fields of a round into order.
func (k *kernel) endRound() {
	// Vector j has blocks 2j and 2j+1 of quarter r in its 128-bit lane r.
	shuffle := func(order uint8, x, y VecVirtual) VecVirtual {
		s := ZMM()
		VSHUFI64X2(U8(order), y, x, s)
		return s
	}
	a := k.alg
	want := load64(k.run, runWant)
	for first := 0; first < a.phases()/2; first += 4 {
		var z [4]VecVirtual
		for j := range z {
			z[j] = ZMM()
			VMOVDQA64(mem(k.stack, k.frame.round+64*(first+j)), z[j])
		}
		even01, even23 := shuffle(0x88, z[0], z[1]), shuffle(0x88, z[2], z[3])
		odd01, odd23 := shuffle(0xDD, z[0], z[1]), shuffle(0xDD, z[2], z[3])
		for r, s := range []VecVirtual{
			shuffle(0x88, even01, even23), shuffle(0x88, odd01, odd23),
			shuffle(0xDD, even01, even23), shuffle(0xDD, odd01, odd23),
		} {
			VMOVDQU64(a.constantPart(k, s), mem(want, 8*(r*a.phases()+2*first)))
		}
	}
	ADDQ(U32(8*a.roundBlocks()), want)
	MOVQ(want, mem(k.run, runWant))
}
