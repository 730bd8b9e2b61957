package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The part of the AVX-512 kernel that makes tweaks. avx512.go derives them.

// nextNumbers adds 4 to each tweak number.
func (k *kernel512) nextNumbers() {
	VMOVDQA64(mem(rScratch, scNumbers), zChainKey)
	Comment("x^2 is 4.")
	VBROADCASTI32X4(power(0).Offset(32), zChain)
	k.addNumbers()
}

// addNumbers sets the tweak numbers to the sums of zChainKey and zChain, of which the
// latter is small, and leaves them in zChain.
func (k *kernel512) addNumbers() {
	const less = 1
	VPADDQ(zChainKey, zChain, zChain)
	Comment("A low half that became smaller carries 1, which is x^0, to its neighbour, the high half.")
	VPCMPUQ(Imm(less), zChainKey, zChain, kCarry)
	KADDB(kCarry, kCarry, kCarry)
	VPADDQ_BCST(power(0), zChain, kCarry, zChain)
	VMOVDQA64(zChain, mem(rScratch, scNumbers))
}

// tweakChain encrypts the four numbers of scNumbers for the next group.
func (k *kernel512) tweakChain() []func() {
	return append([]func(){func() { VMOVDQA64(mem(rScratch, scNumbers), zChain) }},
		k.tweakChainOf(func() { MOVQ(rSlot, rTmp2); XORQ(Imm(ringGroup), rTmp2) }, scTweaks)...)
}

// tweakChainOf encrypts zChain with key2 into the ring, at rTmp2 if slot sets it.
func (k *kernel512) tweakChainOf(slot func(), ring int) (s []func()) {
	for i := 0; i <= k.rounds; i++ {
		s = append(s,
			func() { VBROADCASTI32X4(mem(rSched, offEnc2+16*i), zChainKey) },
			func() {
				switch i {
				case 0:
					VPXORQ(zChainKey, zChain, zChain)
				case k.rounds:
					VAESENCLAST(zChainKey, zChain, zChain)
				default:
					VAESENC(zChainKey, zChain, zChain)
				}
			})
	}
	return append(s, func() {
		if slot == nil {
			VMOVDQA64(zChain, mem(rScratch, ring))
		} else {
			slot()
			VMOVDQA64(zChain, at(ring, rTmp2))
		}
	})
}

// spread sets the eight tweak registers to T', T'*x, ... T'*x^31 for the T in memory.
func (k *kernel512) spread(tweak Mem) (n []func()) {
	t, b, c := zTweak[2], zTweak[3], zTmp
	n = append(n, func() { VBROADCASTI32X4(tweak, t) })
	for j := range 2 {
		d, power := zTweak[j], power(j)
		n = append(n,
			func() { VPCLMULQDQ(Imm(0x01), power, t, b) },  // hi * x^s
			func() { VPCLMULQDQ(Imm(0x00), power, t, d) },  // lo * x^s
			func() { VPCLMULQDQ(Imm(0x01), poly(), b, c) }, // o * 0x87
			func() { VPSLLDQ(Imm(8), b, b) },               // b * x^64
			func() { VPTERNLOGQ(Imm(xor3), mem(rSched, k.wide+wideLast), c, d) },
			func() { VPXORQ(b, d, d) },
		)
	}
	for j := range 2 {
		n = append(n, k.multiply(zTweak[j], zTweak[2+j], zTmp, 1)...)
	}
	for i := 4; i < 8; i++ {
		n = append(n, k.multiply(zTweak[i%2], zTweak[i], zTmp, i/2)...)
	}
	return n
}

// steps multiplies all tweak registers by x^32.
func (k *kernel512) steps() (n []func()) {
	for _, t := range zTweak {
		n = append(n, k.multiply(t, t, zTmp, 4)...)
	}
	return n
}

// multiply sets d to t*x^8m, of T' to T'. d may be t.
func (k *kernel512) multiply(t, d, tmp VecPhysical, m int) []func() {
	return []func(){
		func() { VPSRLDQ(Imm(uint64(16-m)), t, tmp) },
		func() { VPCLMULQDQ(Imm(0x00), poly(), tmp, tmp) },
		func() { VPSLLDQ(Imm(uint64(m)), t, d) },
		func() { VPTERNLOGQ(Imm(xor3), k.step(m), tmp, d) },
	}
}

// stealTweaks prepares the theft from a unit without a tail: the tweak of the block
// that is encrypted last goes to the ring.
func (k *kernel512) stealTweaks() {
	run(k.multiply(zTweak[0], zTmp, zChainKey, 4))
	VMOVDQA64(zTmp, zState[0])
	if !k.decrypt {
		VMOVDQA(X0, at(scFixTweak, rSlot))
		return
	}
	Comment("The last block and the stolen rest swap their tweaks.")
	VEXTRACTI32X4(Imm(3), zTweak[7], at(scFixTweak, rSlot))
	VINSERTI32X4(Imm(3), X0, zTweak[7], zTweak[7])
}

// tailTweaks stores the tweak registers for the tail, as many as it needs.
func (k *kernel512) tailTweaks() {
	for i := range zTweak {
		VMOVDQA64(zTweak[i], mem(rScratch, scTail+64*i))
		if i < 7 {
			CMPQ(rTail, Imm(uint64(4*i+3)))
			JLE(LabelRef("tailStored"))
		}
	}
	Label("tailStored")
	MOVQ(rTail, mem(rScratch, scTailBlocks))
	MOVQ(rTail, rTmp)
	SHLQ(Imm(4), rTmp)
	TESTQ(rSteal, rSteal)
	JZ(LabelRef("tailTweaked"))
	if k.decrypt {
		Comment("The last block and the stolen rest swap their tweaks.")
		VMOVDQA(at(scTail-16, rTmp), X0)
		VMOVDQA(at(scTail, rTmp), X1)
		VMOVDQA(X1, at(scTail-16, rTmp))
		VMOVDQA(X0, at(scFixTweak, rSlot))
	} else {
		VMOVDQA(at(scTail, rTmp), X0)
		VMOVDQA(X0, at(scFixTweak, rSlot))
	}
	Label("tailTweaked")
}
