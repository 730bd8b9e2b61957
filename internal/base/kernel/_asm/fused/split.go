package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "github.com/softmkey/softmkey/internal/base/kernel/_asm/xtsgen"
)

// split gathers a unit or block from its two pieces of memory, or scatters it to them. It
// runs between two other units, whose rounds hide it because no instruction waits for its
// result.
//
// The number of vectors copied is that of the longest possible piece, so there is no
// branch on the length that could be mispredicted. Vectors beyond the end of a piece copy
// its last vector again.
func (k *kernel) split() {
	from, to, length, last, at := rIn, rOut, rCount, Tmp1, Tmp2
	entry := Pending

	Label("split")
	MOVQ(rCount, Ptr(Scratch, scSpilled))
	MOVQ(Pending, Ptr(Scratch, scSpilled+8))
	MOVQ(Ptr(Scratch, scSplits), entry)
	for _, piece := range []string{"first", "second"} {
		MOVQ(Ptr(entry, splitPlace), to)
		MOVQ(Ptr(entry, splitLengths), length)
		if piece == "first" {
			MOVQ(Ptr(entry, splitPieces), from)
		} else {
			ADDQ(length, to)
			MOVQ(Ptr(entry, splitPieces+8), from)
			MOVQ(Ptr(entry, splitLengths+8), length)
		}
		CMPQ(Ptr(Scratch, scScatter), Imm(0))
		JEQ(LabelRef(piece + "Gather"))
		XCHGQ(from, to)
		Label(piece + "Gather")
		MOVQ(length, last)
		SUBQ(Imm(64), last)
		JLT(LabelRef(piece + "Short"))
		for i := 0; i <= blockSize; i += 64 {
			MOVQ(U32(i), at)
			CMPQ(last, at)
			CMOVQLT(last, at)
			VMOVDQU64(Mem{Base: from, Index: at, Scale: 1}, Z0)
			VMOVDQU64(Z0, Mem{Base: to, Index: at, Scale: 1})
		}
		Label(piece + "Copied")
	}
	ADDQ(Imm(splitSize), entry)
	MOVQ(entry, Ptr(Scratch, scSplits))
	MOVQ(Ptr(entry, splitAt), entry)
	MOVQ(entry, Ptr(Scratch, scSplitAt))
	MOVQ(Ptr(Scratch, scSpilled), rCount)
	MOVQ(Ptr(Scratch, scSpilled+8), Pending)
	JMP(LabelRef("unsplit"))

	for _, piece := range []string{"first", "second"} {
		Label(piece + "Short")
		// Two moves that overlap copy between once and twice their size. A masked store would
		// copy every length, but takes AMD's processors much longer.
		move := func(size int, name string, load, store func(at Mem, i int)) {
			if size > 1 {
				CMPQ(length, Imm(uint64(size)))
				JLT(LabelRef(piece + name))
			}
			for i, access := range []func(at Mem, i int){load, store} {
				base := []Register{from, to}[i]
				access(Ptr(base, 0), 0)
				access(Mem{Base: base, Index: length, Scale: 1, Disp: -size}, 1)
			}
			JMP(LabelRef(piece + "Copied"))
			if size > 1 {
				Label(piece + name)
			}
		}
		vector := func(of func(z vec) Op) (load, store func(at Mem, i int)) {
			z := []vec{Z0, Z1}
			return func(at Mem, i int) { VMOVDQU(at, of(z[i])) }, func(at Mem, i int) { VMOVDQU(of(z[i]), at) }
		}
		load, store := vector(func(z vec) Op { return z.AsY() })
		move(32, "Below32", load, store)
		load, store = vector(func(z vec) Op { return z.AsX() })
		move(16, "Below16", load, store)
		words := []GPPhysical{at, last}
		move(8, "Below8", func(m Mem, i int) { MOVQ(m, words[i]) }, func(m Mem, i int) { MOVQ(words[i], m) })
		move(4, "Below4", func(m Mem, i int) { MOVL(m, words[i].As32()) }, func(m Mem, i int) { MOVL(words[i].As32(), m) })
		move(2, "Below2", func(m Mem, i int) { MOVW(m, words[i].As16()) }, func(m Mem, i int) { MOVW(words[i].As16(), m) })
		move(1, "", func(m Mem, i int) { MOVB(m, words[i].As8()) }, func(m Mem, i int) { MOVB(words[i].As8(), m) })
	}
}
