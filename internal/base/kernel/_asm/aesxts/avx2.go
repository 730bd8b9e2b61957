package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The AES-NI kernel, for the AVX2 tier.
//
// Eight blocks are in flight, a stripe, which is enough for the latency of every AES-NI
// there is. Their tweaks stand in memory, in one of two arrays: between the rounds the
// next eight are computed into the other, of the same unit (steps) or of the next one
// (spread). The tweak numbers of eight units are encrypted together. What is left of a
// unit after its last stripe, and the theft, goes block by block; the out-of-order
// engine overlaps it with the next unit.

var (
	xState = [8]VecPhysical{X0, X1, X2, X3, X4, X5, X6, X7}
	xFirst = X14 // the first round key
	xPoly  = X15
)

// Scratch memory: offsets from rScratch.
const (
	niTweaks    = 0   // encrypted tweak numbers
	niArrays    = 128 // two arrays of eight tweaks
	niSrcStride = 384
	niDstStride = 392
	niLo        = 400
	niHi        = 408
	niNextArray = 416
	niLastTweak = 432 // the tweak of the block that is encrypted last, after a theft
	niRest      = 448 // the unit's last 16 bytes, if it is stolen from
	niUnit      = 464
	niSize      = 480
)

// niArray is the distance of the two arrays.
const niArray = 128

type kernelNI struct {
	rounds  int
	decrypt bool
	keys    int // offset in schedule
	shifts  Mem // VPSHUFB's controls for whole-byte shifts: at s, left by 16-s; at 32-s, right by 16-s
	carries Mem
}

func avx2() {
	expand()
	blocks()
	shifts := GLOBL("shifts", RODATA|NOPTR)
	for i := range 48 {
		if i/16 == 1 {
			DATA(i, U8(i-16))
		} else {
			DATA(i, U8(0x80)) // a zero
		}
	}
	carries := GLOBL("carries", RODATA|NOPTR)
	DATA(0, U64(0x87))
	DATA(8, U64(1))
	for _, rounds := range []int{10, 14} {
		for _, decrypt := range []bool{false, true} {
			k := kernelNI{rounds: rounds, decrypt: decrypt, keys: offEnc1, shifts: shifts, carries: carries}
			if decrypt {
				k.keys = offDec1
			}
			k.generate()
		}
	}
}

func (k *kernelNI) key(r int) Mem { return mem(rSched, k.keys+16*r) }

func (k *kernelNI) generate() {
	TEXT(kernelName(k.rounds, k.decrypt, "AESNI"), 0, "func(s, r *byte)")
	rTweak, rArray := rSlot, rPending
	frame := AllocLocal(niSize + 16)
	LEAQ(frame, rScratch)
	ADDQ(Imm(15), rScratch)
	ANDQ(I8(-16), rScratch)

	Load(Param("s"), rSched)
	Load(Param("r"), rTmp)
	for _, f := range []struct{ from, to int }{
		{runSrcStride, niSrcStride}, {runDstStride, niDstStride}, {runLo, niLo}, {runHi, niHi}, {runUnit, niUnit},
	} {
		MOVQ(mem(rTmp, f.from), rTmp2)
		MOVQ(rTmp2, mem(rScratch, f.to))
	}
	MOVQ(mem(rTmp, runSrc), rSrc)
	MOVQ(mem(rTmp, runDst), rDst)
	MOVQ(mem(rTmp, runN), rCount)
	Comment("unit = 128*stripes + 16*tail + steal; of the stripes one is left if there is no tail.")
	MOVQ(mem(rTmp, runUnit), rStripes)
	MOVQ(rStripes, rTail)
	MOVQ(rStripes, rSteal)
	SHRQ(Imm(7), rStripes)
	SHRQ(Imm(4), rTail)
	ANDQ(Imm(7), rTail)
	ANDQ(Imm(15), rSteal)
	CMPQ(rTail, Imm(1))
	SBBQ(Imm(0), rStripes)
	VMOVDQU(k.key(0), xFirst)
	MOVQ(I32(0x87), rTmp)
	VMOVQ(rTmp, xPoly)

	k.tweaks()
	MOVQ(rScratch, rTweak)
	LEAQ(mem(rScratch, niArrays), rArray)
	run(k.spread(rTweak, rArray))

	Label("unit")
	MOVQ(rSrc, rIn)
	MOVQ(rDst, rOut)
	MOVQ(rStripes, rTmp)
	TESTQ(rTmp, rTmp)
	JZ(LabelRef("advance"))
	Label("stripe")
	k.otherArray(rArray)
	k.stripe(rArray, k.steps(rArray))
	DECQ(rTmp)
	JNZ(LabelRef("stripe"))

	Comment("The next unit's tweak, in the next eight perhaps. After the last unit it is of no use.")
	Label("advance")
	ADDQ(Imm(16), rTweak)
	LEAQ(mem(rScratch, niArrays), rTmp)
	CMPQ(rTweak, rTmp)
	JNE(LabelRef("advanced"))
	MOVQ(rScratch, rTweak)
	CMPQ(rCount, Imm(1))
	JE(LabelRef("advanced"))
	k.tweaks()
	Label("advanced")
	k.otherArray(rArray)
	MOVQ(rTmp2, mem(rScratch, niNextArray))
	TESTQ(rSteal, rSteal)
	JZ(LabelRef("kept"))
	Comment("In place, reading it after the last store would have to wait for that.")
	MOVQ(mem(rScratch, niUnit), rTmp)
	VMOVDQU(Mem{Base: rSrc, Index: rTmp, Scale: 1, Disp: -16}, X8)
	VMOVDQA(X8, mem(rScratch, niRest))
	Label("kept")
	TESTQ(rTail, rTail)
	JNZ(LabelRef("tail"))

	Comment("Without a tail there is a stripe left.")
	TESTQ(rSteal, rSteal)
	JZ(LabelRef("last"))
	VMOVDQA(mem(rArray, 7*16), X8)
	if k.decrypt {
		Comment("The last block and the stolen rest swap their tweaks.")
		VMOVDQA(X8, mem(rScratch, niLastTweak))
		run(k.double(X8, X9))
		VMOVDQA(X8, mem(rArray, 7*16))
	} else {
		run(k.double(X8, X9))
		VMOVDQA(X8, mem(rScratch, niLastTweak))
	}
	Label("last")
	k.stripe(rArray, k.spread(rTweak, rTmp2))
	JMP(LabelRef("tailDone"))

	Label("tail")
	run(k.spread(rTweak, rTmp2))
	MOVQ(rTail, rTmp)
	TESTQ(rSteal, rSteal)
	JZ(LabelRef("block"))
	SHLQ(Imm(4), rTmp)
	VMOVDQA(Mem{Base: rArray, Index: rTmp, Scale: 1}, X8)
	if k.decrypt {
		VMOVDQA(Mem{Base: rArray, Index: rTmp, Scale: 1, Disp: -16}, X9)
		VMOVDQA(X8, Mem{Base: rArray, Index: rTmp, Scale: 1, Disp: -16})
		VMOVDQA(X9, mem(rScratch, niLastTweak))
	} else {
		VMOVDQA(X8, mem(rScratch, niLastTweak))
	}
	MOVQ(rTail, rTmp)
	Label("block")
	VMOVDQU(mem(rIn, 0), X0)
	k.one(mem(rArray, 0))
	VMOVDQU(X0, mem(rOut, 0))
	ADDQ(Imm(16), rIn)
	ADDQ(Imm(16), rOut)
	ADDQ(Imm(16), rArray)
	DECQ(rTmp)
	JNZ(LabelRef("block"))

	Label("tailDone")
	MOVQ(mem(rScratch, niNextArray), rArray)
	TESTQ(rSteal, rSteal)
	JZ(LabelRef("next"))
	k.steal()
	Label("next")
	ADDQ(mem(rScratch, niSrcStride), rSrc)
	ADDQ(mem(rScratch, niDstStride), rDst)
	DECQ(rCount)
	JNZ(LabelRef("unit"))

	VPXOR(X0, X0, X0)
	for off := 0; off < niSrcStride; off += 16 {
		VMOVDQA(X0, mem(rScratch, off))
	}
	VMOVDQA(X0, mem(rScratch, niLastTweak))
	VMOVDQA(X0, mem(rScratch, niRest))
	VZEROALL()
	RET()
}

// tweaks encrypts the next eight tweak numbers.
func (k *kernelNI) tweaks() {
	MOVQ(mem(rScratch, niLo), rTmp)
	MOVQ(mem(rScratch, niHi), rTmp2)
	VMOVDQU(mem(rSched, offEnc2), X8)
	for _, s := range xState {
		VMOVQ(rTmp, s)
		VPINSRQ(Imm(1), rTmp2, s, s)
		ADDQ(Imm(1), rTmp)
		ADCQ(Imm(0), rTmp2)
		VPXOR(X8, s, s)
	}
	MOVQ(rTmp, mem(rScratch, niLo))
	MOVQ(rTmp2, mem(rScratch, niHi))
	for r := 1; r < k.rounds; r++ {
		VMOVDQU(mem(rSched, offEnc2+16*r), X8)
		for _, s := range xState {
			VAESENC(X8, s, s)
		}
	}
	VMOVDQU(mem(rSched, offEnc2+16*k.rounds), X8)
	for i, s := range xState {
		VAESENCLAST(X8, s, s)
		VMOVDQA(s, mem(rScratch, niTweaks+16*i))
	}
}

// otherArray sets rTmp2 to the array that is not array: the sum of both is constant.
func (k *kernelNI) otherArray(array Register) {
	LEAQ(Mem{Base: rScratch, Index: rScratch, Scale: 1, Disp: 2*niArrays + niArray}, rTmp2)
	SUBQ(array, rTmp2)
}

// spread sets array to T, T*x, ... T*x^7.
func (k *kernelNI) spread(tweak, array Register) []func() {
	s := []func(){
		func() { VMOVDQA(mem(tweak, 0), X8) },
		func() { VMOVDQA(X8, mem(array, 0)) },
	}
	for i := 1; i < 8; i++ {
		s = append(s, k.double(X8, X9)...)
		s = append(s, func() { VMOVDQA(X8, mem(array, 16*i)) })
	}
	return s
}

// double multiplies t by x: the top bit of each half, spread over the other half, is
// masked with what it stands for there, 0x87 or a carry.
func (k *kernelNI) double(t, tmp VecPhysical) []func() {
	return []func(){
		func() { VPSHUFD(Imm(0x13), t, tmp) },
		func() { VPSRAD(Imm(31), tmp, tmp) },
		func() { VPAND(k.carries, tmp, tmp) },
		func() { VPADDQ(t, t, t) },
		func() { VPXOR(tmp, t, t) },
	}
}

// steps sets the array at rTmp2 to the tweaks of array times x^8: a shift by a byte,
// and 0x87 times the byte that leaves.
func (k *kernelNI) steps(array Register) (s []func()) {
	for i := range xState {
		t, o := VecPhysical(X8), VecPhysical(X9)
		if i%2 == 1 {
			t, o = X10, X11
		}
		s = append(s,
			func() { VMOVDQA(mem(array, 16*i), t) },
			func() { VPSRLDQ(Imm(15), t, o) },
			func() { VPCLMULQDQ(Imm(0x00), xPoly, o, o) },
			func() { VPSLLDQ(Imm(1), t, t) },
			func() { VPXOR(o, t, t) },
			func() { VMOVDQA(t, mem(rTmp2, 16*i)) },
		)
	}
	return s
}

// stripe handles eight blocks with the tweaks of array, between their rounds next,
// which sets the other array, at rTmp2. That one is array then.
func (k *kernelNI) stripe(array Register, next []func()) {
	for i, s := range xState {
		VMOVDQU(mem(rIn, 16*i), s)
		VPXOR(mem(array, 16*i), s, s)
		VPXOR(xFirst, s, s)
	}
	slots := 8 * (k.rounds - 1)
	for i := range slots {
		if i%8 == 0 {
			VMOVDQU(k.key(1+i/8), X12)
		}
		aesRound(k.decrypt, X12, xState[i%8])
		share(next, i, slots)
	}
	VMOVDQU(k.key(k.rounds), X12)
	for i, s := range xState {
		aesLast(k.decrypt, X12, s)
		VPXOR(mem(array, 16*i), s, s)
		VMOVDQU(s, mem(rOut, 16*i))
	}
	MOVQ(rTmp2, array)
	SUBQ(I8(-128), rIn)
	SUBQ(I8(-128), rOut)
}

// one handles the block X0 with the tweak at t.
func (k *kernelNI) one(t Mem) {
	VPXOR(t, X0, X0)
	VPXOR(xFirst, X0, X0)
	for r := 1; r < k.rounds; r++ {
		aesRound(k.decrypt, k.key(r), X0)
	}
	aesLast(k.decrypt, k.key(k.rounds), X0)
	VPXOR(t, X0, X0)
}

// steal is what is done at the end of a stolen-from unit, when the last whole block
// stands before rOut: the block's head becomes the unit's end, the input's rest takes
// the head's place, and the block is encrypted again with niLastTweak. Sixteen bytes
// that end with the unit are written in one, as there are always that many; what is
// wrong before the rest is written over last.
func (k *kernelNI) steal() {
	VMOVDQU(mem(rOut, -16), X0)
	LEAQ(k.shifts, rTmp2)
	VMOVDQA(mem(rScratch, niRest), X1)
	VPSHUFB(Mem{Base: rTmp2, Index: rSteal, Scale: 1}, X0, X2)
	VMOVDQU(X2, Mem{Base: rOut, Index: rSteal, Scale: 1, Disp: -16})
	SUBQ(rSteal, rTmp2)
	VMOVDQU(mem(rTmp2, 32), X2)
	VPSHUFB(X2, X1, X1)
	VPBLENDVB(X2, X0, X1, X0)
	k.one(mem(rScratch, niLastTweak))
	VMOVDQU(X0, mem(rOut, -16))
}
