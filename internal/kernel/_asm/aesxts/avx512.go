package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The AVX-512 kernel.
//
// Where it runs, a 512-bit VAESENC goes to port 0 alone, one a cycle, and nothing
// else needs to go there: so the kernel is as fast as the rounds are if everything
// else fits port 5, the other port of 512-bit instructions, and no chain of
// dependent instructions is waited for. Hence:
//
//   - Shifts of qwords, which are port 0's, are not used: tweaks are multiplied by
//     byte shifts and carry-less multiplication, port 5's.
//   - A stripe of 32 blocks, eight registers, is in flight at once, and the next one
//     does not depend on it.
//   - The tweak numbers of four units are encrypted in one register, while the four
//     units before them are worked on; the last blocks of four stolen-from units are
//     handled in one register too. The out-of-order engine hides both behind the
//     stripes of the neighbours.
//
// # Multiplying tweaks
//
// A tweak is a polynomial T = hi*x^64 + lo modulo x^128 + x^7 + x^2 + x + 1, so that
// x^128 = 0x87. For s < 64, with hi*x^s = o*x^64 + b (o is what overflows),
//
//	T * x^s = lo*x^s + b*x^64 + o*0x87
//
// where lo*x^s and hi*x^s are one carry-less multiplication each, by constants that
// differ from lane to lane (spread). For s = 32, the whole stripe's step, byte shifts
// do: the four bytes that leave at the top are multiplied by 0x87 (step).

// Registers.
var (
	zState = [8]VecPhysical{Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7}
	zTweak = [8]VecPhysical{Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15}
	zKey   = [15]VecPhysical{Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23, Z24, Z25, Z26, Z27, Z28, Z29, Z30}
	zPoly  = Z31

	rSched   = RAX // *schedule
	rTweak   = RBX // the current unit's encrypted tweak number
	rCount   = RCX // units left in the group
	rIn      = RDX // position in the current unit
	rOut     = R8
	rSrc     = RSI // the current unit
	rDst     = RDI
	rScratch = R9  // 64-byte aligned
	rLeft    = R10 // units after this group
	rStripes = R11 // stripes in a unit
	rTail    = R12 // whole blocks after the last stripe
	rSteal   = R13 // bytes after the last whole block
	rTmp     = R14
	rTmp2    = R15
	kSteal   = K1 // a mask of rSteal bytes
	kTail    = K2 // a mask of the last, partial register of the tail, in qwords
)

// Scratch memory: offsets from rScratch.
const (
	scNumbers    = 0   // four tweak numbers
	scCur        = 64  // four encrypted tweak numbers, this group's
	scNext       = 128 // the next group's
	scTail       = 192 // eight registers of tweaks for the tail
	scFix        = 768 // four blocks to be encrypted last
	scFixTweak   = 832 // and their tweaks
	scLast       = 896 // the tail's last register
	scFixOut     = 960 // where the four blocks go: pointers
	scSrcStride  = 992 // from here on single qwords
	scDstStride  = 1000
	scTailBlocks = 1008 // rTail, while the tail counts it down
	scSize       = 1024
)

func avx512() {
	powers := GLOBL("powers", RODATA|NOPTR)
	for lane := range 32 {
		DATA(16*lane, U64(1)<<lane)
		DATA(16*lane+8, U64(0))
	}
	poly := GLOBL("poly", RODATA|NOPTR)
	for lane := range 4 {
		DATA(16*lane, U64(0x87))
		DATA(16*lane+8, U64(0))
	}
	for _, rounds := range []int{10, 14} {
		for _, decrypt := range []bool{false, true} {
			k := kernel512{rounds: rounds, decrypt: decrypt, powers: powers, poly: poly}
			k.generate()
		}
	}
}

type kernel512 struct {
	rounds       int
	decrypt      bool
	powers, poly Mem
}

func (k *kernel512) name() string {
	dir := "encrypt"
	if k.decrypt {
		dir = "decrypt"
	}
	return fmt.Sprintf("%s%dAVX512", dir, map[int]int{10: 128, 14: 256}[k.rounds])
}

func (k *kernel512) generate() {
	TEXT(k.name(), 0, "func(s, r *byte)")
	frame := AllocLocal(scSize + 64)
	LEAQ(frame, rScratch)
	ADDQ(Imm(63), rScratch)
	ANDQ(I8(-64), rScratch)
	k.prologue()

	Label("group")
	Comment("The next group's tweak numbers are encrypted now, this group's are ready.")
	VMOVDQA64(mem(rScratch, scNext), Z0)
	VMOVDQA64(Z0, mem(rScratch, scCur))
	MOVQ(I32(4), rCount)
	CMPQ(rLeft, rCount)
	CMOVQLT(rLeft, rCount)
	SUBQ(rCount, rLeft)
	JZ(LabelRef("ready"))
	k.nextNumbers()
	k.tweaks()
	Label("ready")
	LEAQ(mem(rScratch, scCur), rTweak)
	LEAQ(mem(rScratch, scFixOut), rTmp2)

	Label("unit")
	MOVQ(rSrc, rIn)
	MOVQ(rDst, rOut)
	VBROADCASTI32X4(mem(rTweak, 0), Z0)
	k.spread()
	MOVQ(rStripes, rTmp)
	TESTQ(rTmp, rTmp)
	JZ(LabelRef("short"))

	if k.decrypt {
		// A unit without a tail whose last block was stolen from.
		JMP(LabelRef("entry"))
	}
	Label("stripe")
	if k.decrypt {
		k.steps(8)
		Label("entry")
		CMPQ(rTmp, Imm(1))
		JNE(LabelRef("plain"))
		TESTQ(rSteal, rSteal)
		JZ(LabelRef("plain"))
		TESTQ(rTail, rTail)
		JNZ(LabelRef("plain"))
		Comment("The last block and the stolen rest swap their tweaks.")
		VEXTRACTI32X4(Imm(3), zTweak[7], mem(rScratch, scTail))
		VMOVDQA64(zTweak[0], Z0)
		k.stepOf(Z0, Z1)
		VINSERTI32X4(Imm(3), X0, zTweak[7], zTweak[7])
		Label("plain")
	}
	k.stripe()
	ADDQ(U32(512), rIn)
	ADDQ(U32(512), rOut)
	DECQ(rTmp)
	if k.decrypt {
		JNZ(LabelRef("stripe"))
	} else {
		JZ(LabelRef("striped"))
		k.steps(8)
		JMP(LabelRef("stripe"))
		Label("striped")
	}

	TESTQ(rTail, rTail)
	JNZ(LabelRef("stepTail"))
	TESTQ(rSteal, rSteal)
	JZ(LabelRef("done"))
	if !k.decrypt {
		k.stepOf(zTweak[0], Z0)
		VMOVDQA64(zTweak[0], mem(rScratch, scTail))
	}
	VMOVDQU(mem(rOut, -16), X0)
	JMP(LabelRef("steal"))

	Comment("The tail's tweaks: as many registers as it needs, one block more than it has.")
	Label("stepTail")
	for i := range 8 {
		k.stepOf(zTweak[i], Z0)
		VMOVDQA64(zTweak[i], mem(rScratch, scTail+64*i))
		if i < 7 {
			CMPQ(rTail, Imm(uint64(4*i+3)))
			JLE(LabelRef("tail"))
		}
	}
	JMP(LabelRef("tail"))
	Label("short")
	for i := range 8 {
		VMOVDQA64(zTweak[i], mem(rScratch, scTail+64*i))
	}
	Label("tail")
	k.tail()

	Label("done")
	ADDQ(mem(rScratch, scSrcStride), rSrc)
	ADDQ(mem(rScratch, scDstStride), rDst)
	ADDQ(Imm(16), rTweak)
	DECQ(rCount)
	JNZ(LabelRef("unit"))
	TESTQ(rSteal, rSteal)
	JZ(LabelRef("groupDone"))
	k.fix()
	Label("groupDone")
	TESTQ(rLeft, rLeft)
	JNZ(LabelRef("group"))
	k.epilogue()
}

// prologue loads the keys and the run, and encrypts the first tweak numbers.
func (k *kernel512) prologue() {
	Load(Param("s"), rSched)
	Load(Param("r"), rTmp)
	keys := offEnc1
	if k.decrypt {
		keys = offDec1
	}
	for i := 0; i <= k.rounds; i++ {
		VBROADCASTI32X4(mem(rSched, keys+16*i), zKey[i])
	}
	VMOVDQU64(k.poly, zPoly)

	MOVQ(mem(rTmp, runSrc), rSrc)
	MOVQ(mem(rTmp, runDst), rDst)
	MOVQ(mem(rTmp, runSrcStride), rIn)
	MOVQ(rIn, mem(rScratch, scSrcStride))
	MOVQ(mem(rTmp, runDstStride), rIn)
	MOVQ(rIn, mem(rScratch, scDstStride))
	MOVQ(mem(rTmp, runN), rLeft)

	Comment("unit = 512*stripes + 16*tail + steal")
	MOVQ(mem(rTmp, runUnit), rStripes)
	MOVQ(rStripes, rTail)
	MOVQ(rStripes, rSteal)
	SHRQ(Imm(9), rStripes)
	SHRQ(Imm(4), rTail)
	ANDQ(Imm(31), rTail)
	ANDQ(Imm(15), rSteal)
	MOVQ(I32(-1), rIn)
	BZHIQ(rSteal, rIn, rOut)
	KMOVQ(rOut, kSteal)
	Comment("Of the tail's last register: twice (tail mod 4) qwords.")
	MOVQ(rTail, rOut)
	ANDQ(Imm(3), rOut)
	ADDQ(rOut, rOut)
	BZHIQ(rOut, rIn, rOut)
	KMOVQ(rOut, kTail)

	MOVQ(mem(rTmp, runLo), rIn)
	MOVQ(mem(rTmp, runHi), rOut)
	for i := range 4 {
		MOVQ(rIn, mem(rScratch, scNumbers+16*i))
		MOVQ(rOut, mem(rScratch, scNumbers+16*i+8))
		if i < 3 {
			ADDQ(Imm(1), rIn)
			ADCQ(Imm(0), rOut)
		}
	}
	k.tweaks()
}

func (k *kernel512) nextNumbers() {
	for i := range 4 {
		ADDQ(Imm(4), mem(rScratch, scNumbers+16*i))
		ADCQ(Imm(0), mem(rScratch, scNumbers+16*i+8))
	}
}

// tweaks encrypts the four numbers of scNumbers into scNext.
func (k *kernel512) tweaks() {
	VBROADCASTI32X4(mem(rSched, offEnc2), Z1)
	VPXORQ(mem(rScratch, scNumbers), Z1, Z0)
	for i := 1; i < k.rounds; i++ {
		VBROADCASTI32X4(mem(rSched, offEnc2+16*i), Z1)
		VAESENC(Z1, Z0, Z0)
	}
	VBROADCASTI32X4(mem(rSched, offEnc2+16*k.rounds), Z1)
	VAESENCLAST(Z1, Z0, Z0)
	VMOVDQA64(Z0, mem(rScratch, scNext))
}

// spread sets the eight tweak registers to T, T*x, ... T*x^31 for the T in each
// lane of Z0.
func (k *kernel512) spread() {
	for i, t := range zTweak {
		a, b := Z1, Z2
		if i%2 == 1 {
			a, b = Z3, Z4
		}
		VMOVDQU64(k.powers.Offset(64*i), a)
		VPCLMULQDQ(Imm(0x01), a, Z0, b)    // hi * x^s
		VPCLMULQDQ(Imm(0x00), a, Z0, t)    // lo * x^s
		VPCLMULQDQ(Imm(0x01), zPoly, b, a) // o * 0x87
		VPSLLDQ(Imm(8), b, b)              // b * x^64
		VPTERNLOGQ(Imm(xor3), a, b, t)
	}
}

// steps multiplies the first n tweak registers by x^32.
func (k *kernel512) steps(n int) {
	for i := range n {
		k.stepOf(zTweak[i], zState[i])
	}
}

func (k *kernel512) stepOf(t, tmp VecPhysical) {
	VPSRLDQ(Imm(12), t, tmp)
	VPCLMULQDQ(Imm(0x00), zPoly, tmp, tmp)
	VPSLLDQ(Imm(4), t, t)
	VPXORQ(tmp, t, t)
}

func (k *kernel512) round(key Op, s VecPhysical) {
	if k.decrypt {
		VAESDEC(key, s, s)
	} else {
		VAESENC(key, s, s)
	}
}

func (k *kernel512) roundLast(key Op, s VecPhysical) {
	if k.decrypt {
		VAESDECLAST(key, s, s)
	} else {
		VAESENCLAST(key, s, s)
	}
}

// stripe handles 512 bytes.
func (k *kernel512) stripe() {
	for i, s := range zState {
		VMOVDQU64(mem(rIn, 64*i), s)
		VPTERNLOGQ(Imm(xor3), zKey[0], zTweak[i], s)
	}
	for r := 1; r < k.rounds; r++ {
		for _, s := range zState {
			k.round(zKey[r], s)
		}
	}
	for i, s := range zState {
		k.roundLast(zKey[k.rounds], s)
		VPXORQ(zTweak[i], s, s)
		VMOVDQU64(s, mem(rOut, 64*i))
	}
}

// one handles the register Z0 with the tweaks in Z1.
func (k *kernel512) one() {
	VPTERNLOGQ(Imm(xor3), zKey[0], Z1, Z0)
	for r := 1; r < k.rounds; r++ {
		k.round(zKey[r], Z0)
	}
	k.roundLast(zKey[k.rounds], Z0)
	VPXORQ(Z1, Z0, Z0)
}

// tail handles rTail blocks, whose tweaks are in scTail, and leaves the block that
// is stolen from, and what the theft needs, to fix.
func (k *kernel512) tail() {
	if k.decrypt {
		TESTQ(rSteal, rSteal)
		JZ(LabelRef("tailTweaks"))
		Comment("The last block and the stolen rest swap their tweaks.")
		MOVQ(rTail, rTmp)
		SHLQ(Imm(4), rTmp)
		VMOVDQA(Mem{Base: rScratch, Index: rTmp, Scale: 1, Disp: scTail - 16}, X0)
		VMOVDQA(Mem{Base: rScratch, Index: rTmp, Scale: 1, Disp: scTail}, X1)
		VMOVDQA(X1, Mem{Base: rScratch, Index: rTmp, Scale: 1, Disp: scTail - 16})
		VMOVDQA(X0, Mem{Base: rScratch, Index: rTmp, Scale: 1, Disp: scTail})
		Label("tailTweaks")
	}
	XORQ(rTmp, rTmp)
	MOVQ(rTail, mem(rScratch, scTailBlocks))
	SUBQ(Imm(4), rTail)
	JLT(LabelRef("tailRest"))
	Label("tailFour")
	VMOVDQU64(mem(rIn, 0), Z0)
	VMOVDQA64(Mem{Base: rScratch, Index: rTmp, Scale: 1, Disp: scTail}, Z1)
	k.one()
	VMOVDQU64(Z0, mem(rOut, 0))
	ADDQ(Imm(64), rTmp)
	ADDQ(Imm(64), rIn)
	ADDQ(Imm(64), rOut)
	SUBQ(Imm(4), rTail)
	JGE(LabelRef("tailFour"))
	Label("tailRest")
	ADDQ(Imm(4), rTail)
	JZ(LabelRef("tailWhole"))
	VMOVDQU64_Z(mem(rIn, 0), kTail, Z0)
	VMOVDQA64(Mem{Base: rScratch, Index: rTmp, Scale: 1, Disp: scTail}, Z1)
	k.one()
	VMOVDQU64(Z0, kTail, mem(rOut, 0))
	VMOVDQA64(Z0, mem(rScratch, scLast))
	SHLQ(Imm(4), rTail)
	ADDQ(rTail, rIn)
	ADDQ(rTail, rOut)
	VMOVDQA(Mem{Base: rScratch, Index: rTail, Scale: 1, Disp: scLast - 16}, X0)
	MOVQ(mem(rScratch, scTailBlocks), rTail)
	TESTQ(rSteal, rSteal)
	JZ(LabelRef("done"))
	JMP(LabelRef("steal"))
	Label("tailWhole")
	MOVQ(mem(rScratch, scTailBlocks), rTail)
	TESTQ(rSteal, rSteal)
	JZ(LabelRef("done"))
	VMOVDQU(mem(rOut, -16), X0)

	Comment("X0 is the last whole block. Its head is the unit's end; the input's rest takes the head's place.")
	Label("steal")
	VMOVDQA(X0, X1)
	VMOVDQU8(mem(rIn, 0), kSteal, X1)
	VMOVDQU8(X0, kSteal, mem(rOut, 0))
	LEAQ(mem(rOut, -16), rOut)
	MOVQ(rOut, mem(rTmp2, 0))
	ADDQ(Imm(8), rTmp2)
	MOVQ(rTail, rTmp)
	SHLQ(Imm(4), rTmp)
	VMOVDQA(Mem{Base: rScratch, Index: rTmp, Scale: 1, Disp: scTail}, X2)
	VMOVDQA(X1, mem(rTweak, scFix-scCur))
	VMOVDQA(X2, mem(rTweak, scFixTweak-scCur))
}

// fix encrypts the group's stolen-from blocks.
func (k *kernel512) fix() {
	VMOVDQA64(mem(rScratch, scFix), Z0)
	VMOVDQA64(mem(rScratch, scFixTweak), Z1)
	k.one()
	LEAQ(mem(rScratch, scFixOut), rTmp)
	for i := range 4 {
		if i > 0 {
			CMPQ(rTmp, rTmp2)
			JE(LabelRef("groupDone"))
			VEXTRACTI32X4(Imm(uint64(i)), Z0, X1)
			MOVQ(mem(rTmp, 0), rIn)
			VMOVDQU(X1, mem(rIn, 0))
		} else {
			MOVQ(mem(rTmp, 0), rIn)
			VMOVDQU(X0, mem(rIn, 0))
		}
		ADDQ(Imm(8), rTmp)
	}
}

// epilogue leaves no key, tweak or block behind.
func (k *kernel512) epilogue() {
	VPXORQ(Z0, Z0, Z0)
	for off := 0; off < scSize; off += 64 {
		VMOVDQA64(Z0, mem(rScratch, off))
	}
	for i := range 16 {
		z := VecPhysical(zPoly)
		if i < 15 {
			z = zKey[i]
		}
		VPXORQ(z, z, z)
	}
	VZEROALL()
	RET()
}
