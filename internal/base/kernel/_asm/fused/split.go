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
	kShort := K3

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
		MOVQ(I32(-1), at)
		BZHIQ(length, at, at)
		KMOVQ(at, kShort)
		VMOVDQU8_Z(Ptr(from, 0), kShort, Z0)
		VMOVDQU8(Z0, kShort, Ptr(to, 0))
		JMP(LabelRef(piece + "Copied"))
	}
}
