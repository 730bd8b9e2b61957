package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "github.com/softmkey/softmkey/internal/base/kernel/_asm/xtsgen"
)

// This file is the part of the AVX-512 kernel that computes tweaks. avx512.go derives the
// formulas.

// nextNumbers adds 4 to each tweak number.
func (k *kernel512) nextNumbers() {
	VMOVDQA64(Ptr(Scratch, ScNumbers), ChainKey)
	Comment("x^2 is 4.")
	VBROADCASTI32X4(k.Power(0).Offset(32), Chain)
	k.addNumbers()
}

// addNumbers sets the tweak numbers to the sums of ChainKey and Chain, and leaves them in
// Chain. The value of Chain must be small.
func (k *kernel512) addNumbers() {
	const less = 1
	VPADDQ(ChainKey, Chain, Chain)
	Comment("If the low half became smaller, it overflowed: carry 1, which is x^0, to the high half.")
	VPCMPUQ(Imm(less), ChainKey, Chain, kCarry)
	KADDB(kCarry, kCarry, kCarry)
	VPADDQ_BCST(k.Power(0), Chain, kCarry, Chain)
	VMOVDQA64(Chain, Ptr(Scratch, ScNumbers))
}

// tailTweaks stores the tweak registers that the tail needs.
func (k *kernel512) tailTweaks() {
	for i := range Tweak {
		VMOVDQA64(Tweak[i], Ptr(Scratch, scTail+64*i))
		if i < 7 {
			CMPQ(rTail, Imm(uint64(4*i+3)))
			JLE(LabelRef("tailStored"))
		}
	}
	Label("tailStored")
	MOVQ(rTail, Ptr(Scratch, scTailBlocks))
	MOVQ(rTail, Tmp1)
	SHLQ(Imm(4), Tmp1)
	TESTQ(rSteal, rSteal)
	JZ(LabelRef("tailTweaked"))
	if k.Decrypt {
		Comment("Decryption uses the tweaks of the last block and of the remainder in reverse order.")
		VMOVDQA(At(scTail-16, Tmp1), X0)
		VMOVDQA(At(scTail, Tmp1), X1)
		VMOVDQA(X1, At(scTail-16, Tmp1))
		VMOVDQA(X0, At(ScFixTweak, Slot))
	} else {
		VMOVDQA(At(scTail, Tmp1), X0)
		VMOVDQA(X0, At(ScFixTweak, Slot))
	}
	Label("tailTweaked")
}
