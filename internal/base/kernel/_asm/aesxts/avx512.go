package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The AVX-512 kernel.
//
// Where it runs, a 512-bit VAESENC goes to port 0 alone, one a cycle, and nothing
// else has to go there: so the kernel is as fast as the rounds alone are if the rest
// fits port 5, the other port of 512-bit instructions, and port 0 never waits.
//
//   - A stripe of 32 blocks, eight registers, is in flight at once.
//   - While a stripe is in its rounds, the next one's tweaks are computed between
//     them, in the same unit (step) or for the next unit (spread). Nothing is left
//     between two stripes but the loads and the first exclusive or.
//   - Shifts of qwords, which are port 0's, are not used: tweaks are multiplied by
//     byte shifts and carry-less multiplications, port 5's.
//   - The tweak numbers of four units are encrypted in one register, as a ninth chain
//     of rounds in some stripe of the four units before them; so are the last blocks
//     of four stolen-from units, in some stripe of the four units after them.
//
// # Tweaks with the last round key
//
// The last round ends with an exclusive or of the last round key L, and XTS's own
// with the tweak T comes next: so tweaks are kept as T' = T ^ L, which the last round
// takes as its key. The first exclusive or is then with T' ^ c, c = K0 ^ L.
//
// # Multiplying tweaks
//
// A tweak is a polynomial T = hi*x^64 + lo modulo x^128 + x^7 + x^2 + x + 1, so that
// x^128 = 0x87. For s < 64, with hi*x^s = o*x^64 + b (o is what overflows),
//
//	T * x^s = lo*x^s + b*x^64 + o*0x87
//
// where lo*x^s and hi*x^s are one carry-less multiplication each, by constants that
// differ from lane to lane. For s = 8m, byte shifts do: the m bytes that leave at the
// top are multiplied by 0x87. For T' that is
//
//	T'*x^8m ^ C = (T'<<8m) ^ (T'>>(128-8m))*0x87 ^ C,  C = L*x^8m ^ L

// # A stripe waits for the one before it
//
// The first exclusive or of a stripe could be done a whole stripe ahead, and its rounds
// would then compete with those of the stripe before it, older ones, which the processor
// does not always prefer. With AES-128, of whose stripes a scheduler holds more than one,
// port 0 was idle for some 5 of 88 cycles. So c goes through an instruction that takes a
// state of the stripe before it, too, and gives c whatever that is (gate).

// Registers.
var (
	zState = [8]VecPhysical{Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7}
	zTweak = [8]VecPhysical{Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15}
	// zKey are the round keys 1 to 9 or 13; the first and the last are in c and T'.
	zKey = [14]VecPhysical{1: Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23, Z24, Z25, Z26, Z27, Z28}
	// zGate is c, with AES-128; zSaved are the first T' of a stripe, as far as there are
	// registers.
	zGate  = Z25
	zSaved = [3]VecPhysical{Z26, Z27, Z28}
	zTmp   = Z29
	zAll   = []VecPhysical{Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15,
		Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23, Z24, Z25, Z26, Z27, Z28, Z29, Z30, Z31}
	zChainKey = Z30
	zChain    = Z31

	rSched   = RAX // *schedule
	rSlot    = RBX // the current unit's slot in the rings
	rCount   = RCX // units left, the current one included
	rIn      = RDX // position in the current unit
	rOut     = R8
	rSrc     = RSI // the current unit
	rDst     = RDI
	rScratch = R9  // 64-byte aligned
	rPending = R10 // units whose last block waits for fix
	rStripes = R11 // stripes in a unit
	rTail    = R12 // whole blocks after the last stripe
	rSteal   = R13 // bytes after the last whole block
	rTmp     = R14
	rTmp2    = R15
	kSteal   = K1 // a mask of rSteal bytes
	kTail    = K2 // a mask of the tail's last, partial register, in qwords
	kCarry   = K3 // lanes that carry, in qwords
)

// Scratch memory: offsets from rScratch. A ring has eight slots of 16 bytes, for
// units modulo 8: two groups of four.
const (
	scNumbers    = 0    // the next four tweak numbers to be encrypted
	scTweaks     = 64   // ring: encrypted tweak numbers
	scFix        = 192  // ring: blocks that are to be encrypted last
	scFixTweak   = 320  // ring: their T'
	scFixOut     = 448  // ring: where they go
	scStripe     = 576  // the current stripe's T'
	scTail       = 1088 // the tail's T'
	scLast       = 1600 // the tail's last register
	scPowers     = 1664 // two vectors: x^0 to x^7
	scPoly       = 1792 // 0x87
	scSrcStride  = 1856 // from here on single qwords
	scDstStride  = 1864
	scTailBlocks = 1872 // rTail, while the tail counts it down
	scSize       = 1920
)

const (
	ringMask  = 127
	ringGroup = 64
)

// Offsets in one direction's wide constants.
const (
	wideFirst = 0   // c
	wideLast  = 64  // L
	wideStep  = 128 // L*x^8m ^ L for m = 1 to 4
	wideSize  = 384
)

func avx512() {
	powers := GLOBL("powers", RODATA|NOPTR)
	for lane := range 8 {
		DATA(16*lane, U64(1)<<lane)
		DATA(16*lane+8, U64(0))
	}
	counts := GLOBL("counts", RODATA|NOPTR)
	for lane := range 4 {
		DATA(16*lane, U64(lane))
		DATA(16*lane+8, U64(0))
	}
	poly := GLOBL("poly", RODATA|NOPTR)
	DATA(0, U64(0x87))
	DATA(8, U64(0))
	for _, rounds := range []int{10, 14} {
		for _, decrypt := range []bool{false, true} {
			k := kernel512{rounds: rounds, decrypt: decrypt, counts: counts, powers: powers, poly: poly}
			k.keys, k.wide = offEnc1, offWide
			if decrypt {
				k.keys, k.wide = offDec1, offWide+wideSize
			}
			k.generate()
		}
	}
}

type kernel512 struct {
	rounds               int
	decrypt              bool
	counts, powers, poly Mem
	keys, wide           int // offsets in schedule
}

// first is c, step(m) the constant of a step by 8m.
func (k *kernel512) first() Mem     { return mem(rSched, k.wide+wideFirst) }
func (k *kernel512) step(m int) Mem { return mem(rSched, k.wide+wideStep+64*(m-1)) }

// gate is c for the first exclusive or of a stripe.
func (k *kernel512) gate() Op {
	if k.gated() {
		return zGate
	}
	return k.first()
}

// gated reports whether stripes wait for each other, for which AES-256 leaves no register.
func (k *kernel512) gated() bool { return k.rounds == 10 }

// poly is 0x87, power(j) the powers of x that the lanes of register j begin with. They are
// copies in scratch memory, as data of assembly is aligned to 32 bytes at most, and a load
// that crosses cache lines is two.
func poly() Mem       { return mem(rScratch, scPoly) }
func power(j int) Mem { return mem(rScratch, scPowers+64*j) }

// at is a memory operand in a ring.
func at(ring int, slot Register) Mem {
	return Mem{Base: rScratch, Index: slot, Scale: 1, Disp: ring}
}

func (k *kernel512) generate() {
	TEXT(kernelName(k.rounds, k.decrypt, "AVX512"), 0, "func(s, r *byte)")
	frame := AllocLocal(scSize + 64)
	LEAQ(frame, rScratch)
	ADDQ(Imm(63), rScratch)
	ANDQ(I8(-64), rScratch)
	k.prologue()

	Label("unit")
	MOVQ(rSrc, rIn)
	MOVQ(rDst, rOut)
	MOVQ(rStripes, rTmp)
	TESTQ(rTmp, rTmp)
	JZ(LabelRef("short"))
	Label("inner")
	CMPQ(rTmp, Imm(1))
	JE(LabelRef("last"))
	Label("stripe")
	k.stripe(k.steps(), nil)
	DECQ(rTmp)
	JNZ(LabelRef("inner"))
	JMP(LabelRef("tail"))

	Label("last")
	TESTQ(rTail, rTail)
	JNZ(LabelRef("stripe"))
	TESTQ(rSteal, rSteal)
	JZ(LabelRef("phase"))
	k.stealTweaks()

	Comment("The unit's last stripe, and the next unit's tweaks; what else is done depends on the place in the group.")
	Label("phase")
	LEAQ(mem(rSlot, 16), rTmp)
	ANDQ(U8(ringMask), rTmp)
	k.dispatch("lastTweaks", "lastFix")
	k.stripe(k.spread(at(scTweaks, rTmp)), nil)
	JMP(LabelRef("lastDone"))
	Label("lastTweaks")
	k.stripe(k.spread(at(scTweaks, rTmp)), k.tweakChain())
	k.nextNumbers()
	JMP(LabelRef("lastDone"))
	Label("lastFix")
	k.stripe(k.spread(at(scTweaks, rTmp)), k.fixChain())
	k.fixStore()
	Label("lastDone")
	TESTQ(rSteal, rSteal)
	JZ(LabelRef("next"))
	VMOVDQU(mem(rOut, -16), X0)
	k.steal("last")
	JMP(LabelRef("next"))

	Comment("What a stripe takes along stands before the tail, the registers of which overlap with it and with the next unit.")
	Label("short")
	Label("tail")
	k.tailTweaks()
	LEAQ(mem(rSlot, 16), rTmp)
	ANDQ(U8(ringMask), rTmp)
	k.dispatch("tailTweaks", "tailFix")
	JMP(LabelRef("tailSpread"))
	Label("tailTweaks")
	run(k.tweakChain())
	k.nextNumbers()
	JMP(LabelRef("tailSpread"))
	Label("tailFix")
	run(k.fixChain())
	k.fixStore()
	LEAQ(mem(rSlot, 16), rTmp)
	ANDQ(U8(ringMask), rTmp)
	Label("tailSpread")
	CMPQ(rCount, Imm(1))
	JE(LabelRef("tailStart"))
	run(k.spread(at(scTweaks, rTmp)))
	Label("tailStart")
	k.tail()

	Label("next")
	ADDQ(mem(rScratch, scSrcStride), rSrc)
	ADDQ(mem(rScratch, scDstStride), rDst)
	ADDQ(Imm(16), rSlot)
	ANDQ(U8(ringMask), rSlot)
	DECQ(rCount)
	JNZ(LabelRef("unit"))
	TESTQ(rPending, rPending)
	JZ(LabelRef("done"))
	k.flush()
	Label("done")
	k.epilogue()
}

// dispatch jumps to tweaks in the first unit of a group, if there is a group after
// it, and to fix in the third, if the group before it was stolen from. That is late
// enough for what the last of them has stored to be in the cache, and early enough
// for its place in the rings.
func (k *kernel512) dispatch(tweaks, fix string) {
	MOVQ(rSlot, rTmp2)
	ANDQ(U8(ringGroup-1), rTmp2)
	JZ(LabelRef(tweaks + "Maybe"))
	CMPQ(rTmp2, Imm(32))
	JNE(LabelRef(tweaks + "Not"))
	CMPQ(rPending, Imm(6))
	JGE(LabelRef(fix))
	JMP(LabelRef(tweaks + "Not"))
	Label(tweaks + "Maybe")
	CMPQ(rCount, Imm(4))
	JG(LabelRef(tweaks))
	Label(tweaks + "Not")
}

// prologue loads the keys and the run, and computes the first unit's tweaks.
func (k *kernel512) prologue() {
	Load(Param("s"), rSched)
	Load(Param("r"), rTmp)
	for j := range 2 {
		VMOVDQU64(k.powers.Offset(64*j), zTmp)
		VMOVDQA64(zTmp, power(j))
	}
	VBROADCASTI32X4(k.poly, zTmp)
	VMOVDQA64(zTmp, poly())
	XORQ(rSlot, rSlot)
	VBROADCASTI32X4(mem(rTmp, runLo), zChainKey)
	VMOVDQU64(k.counts, zChain)
	k.addNumbers()
	run(k.tweakChainOf(nil, scTweaks))
	k.nextNumbers()
	for i := 1; i < k.rounds; i++ {
		VBROADCASTI32X4(mem(rSched, k.keys+16*i), zKey[i])
	}
	if k.gated() {
		VMOVDQA64(k.first(), zGate)
	}

	MOVQ(mem(rTmp, runSrc), rSrc)
	MOVQ(mem(rTmp, runDst), rDst)
	MOVQ(mem(rTmp, runSrcStride), rIn)
	MOVQ(rIn, mem(rScratch, scSrcStride))
	MOVQ(mem(rTmp, runDstStride), rIn)
	MOVQ(rIn, mem(rScratch, scDstStride))
	MOVQ(mem(rTmp, runN), rCount)

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
	XORQ(rPending, rPending)
	run(k.spread(mem(rScratch, scTweaks)))
}

// fixChain encrypts the previous group's stolen-from blocks into zChain, and leaves
// the group's slot in rTmp2.
func (k *kernel512) fixChain() []func() {
	s := []func(){
		func() { MOVQ(rSlot, rTmp2); ANDQ(Imm(ringGroup), rTmp2); XORQ(Imm(ringGroup), rTmp2) },
	}
	return append(s, k.fixChainAt()...)
}

// fixChainAt is fixChain with the slot in rTmp2 already.
func (k *kernel512) fixChainAt() []func() {
	s := []func(){
		func() { VMOVDQA64(at(scFix, rTmp2), zChain) },
		func() { VMOVDQA64(at(scFixTweak, rTmp2), zChainKey) },
		func() { VPTERNLOGQ(Imm(xor3), k.first(), zChainKey, zChain) },
	}
	for r := 1; r < k.rounds; r++ {
		s = append(s, func() { aesRound(k.decrypt, zKey[r], zChain) })
	}
	return append(s, func() { aesLast(k.decrypt, zChainKey, zChain) })
}

// fixStore stores the four blocks of zChain.
func (k *kernel512) fixStore() {
	for i := range 4 {
		k.fixStoreLane(i)
	}
	SUBQ(Imm(4), rPending)
}

func (k *kernel512) fixStoreLane(i int) {
	MOVQ(at(scFixOut+16*i, rTmp2), rTmp)
	VEXTRACTI32X4(Imm(uint64(i)), zChain, X0)
	VMOVDQU(X0, mem(rTmp, 0))
}

// flush handles the stolen-from blocks that no later unit has taken along: at most
// one whole group and the units of the last one.
func (k *kernel512) flush() {
	Comment("The oldest is the first of its group.")
	MOVQ(rPending, rTmp2)
	SHLQ(Imm(4), rTmp2)
	NEGQ(rTmp2)
	ADDQ(rSlot, rTmp2)
	ANDQ(U8(ringMask), rTmp2)
	Label("flush")
	run(k.fixChainAt())
	for i := range 4 {
		k.fixStoreLane(i)
		DECQ(rPending)
		JZ(LabelRef("done"))
	}
	XORQ(Imm(ringGroup), rTmp2)
	JMP(LabelRef("flush"))
}

// stripe handles 512 bytes. Between its rounds stand next, which computes the tweaks of
// the stripe after it, and chain, which is a chain of rounds.
func (k *kernel512) stripe(next, chain []func()) {
	// The T', which next overwrites, are kept in registers as far as there are any.
	saved := make([]Op, 8)
	for i := range saved {
		if k.gated() && i < len(zSaved) {
			saved[i] = zSaved[i]
		} else {
			saved[i] = mem(rScratch, scStripe+64*i)
		}
	}
	for i, s := range zState {
		VMOVDQU64(mem(rIn, 64*i), s)
		VPTERNLOGQ(Imm(xor3), k.gate(), zTweak[i], s)
		VMOVDQA64(zTweak[i], saved[i])
		PREFETCHT0(mem(rIn, 512+64*i)) // worth a percent where runs are larger than the first cache
	}
	slots := 8 * (k.rounds - 1)
	for i := range slots {
		aesRound(k.decrypt, zKey[1+i/8], zState[i%8])
		share(next, i, slots)
		share(chain, i, slots)
		if k.gated() && i == 4*8-1 {
			const same = 0xF0
			VPTERNLOGQ(Imm(same), zState[7], zState[7], zGate)
		}
	}
	for i, s := range zState {
		aesLast(k.decrypt, saved[i], s)
		VMOVDQU64(s, mem(rOut, 64*i))
	}
	ADDQ(U32(512), rIn)
	ADDQ(U32(512), rOut)
}

// one handles the register Z0 with the T' in Z1.
func (k *kernel512) one() {
	VPTERNLOGQ(Imm(xor3), k.first(), Z1, Z0)
	for r := 1; r < k.rounds; r++ {
		aesRound(k.decrypt, zKey[r], Z0)
	}
	aesLast(k.decrypt, Z1, Z0)
}

// tail handles what follows the last stripe: rTail whole blocks and the theft.
func (k *kernel512) tail() {
	XORQ(rTmp, rTmp)
	SUBQ(Imm(4), rTail)
	JLT(LabelRef("tailRest"))
	Label("tailFour")
	VMOVDQU64(mem(rIn, 0), Z0)
	VMOVDQA64(at(scTail, rTmp), Z1)
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
	VMOVDQA64(at(scTail, rTmp), Z1)
	k.one()
	VMOVDQU64(Z0, kTail, mem(rOut, 0))
	VMOVDQA64(Z0, mem(rScratch, scLast))
	SHLQ(Imm(4), rTail)
	ADDQ(rTail, rIn)
	ADDQ(rTail, rOut)
	VMOVDQA(at(scLast-16, rTail), X0)
	JMP(LabelRef("tailSteal"))
	Label("tailWhole")
	VMOVDQU(mem(rOut, -16), X0)
	Label("tailSteal")
	MOVQ(mem(rScratch, scTailBlocks), rTail)
	TESTQ(rSteal, rSteal)
	JZ(LabelRef("tailDone"))
	k.steal("tail")
	Label("tailDone")
}

// steal is what is done at the end of a unit whose last whole block is in X0: the
// block's head is the unit's end, the input's rest takes the head's place, and the
// block waits in the ring for being encrypted again.
//
// Eight bytes are a signature field, and the rule; they are stored as such, as the
// memory behind a masked store counts as stored until it is done, and in place the next
// unit is read from there.
func (k *kernel512) steal(label string) {
	CMPQ(rSteal, Imm(8))
	JNE(LabelRef(label + "Masked"))
	VMOVLPS(mem(rIn, 0), X0, X1)
	VMOVQ(X0, mem(rOut, 0))
	JMP(LabelRef(label + "Stolen"))
	Label(label + "Masked")
	VMOVDQA(X0, X1)
	VMOVDQU8(mem(rIn, 0), kSteal, X1)
	VMOVDQU8(X0, kSteal, mem(rOut, 0))
	Label(label + "Stolen")
	VMOVDQA(X1, at(scFix, rSlot))
	SUBQ(Imm(16), rOut)
	MOVQ(rOut, at(scFixOut, rSlot))
	INCQ(rPending)
}

// epilogue leaves no key, tweak or block behind.
func (k *kernel512) epilogue() {
	for i := range 32 {
		z := zAll[i]
		VPXORQ(z, z, z)
	}
	for off := scTweaks; off < scTail; off += 64 {
		VMOVDQA64(Z0, mem(rScratch, off))
	}
	TESTQ(rTail, rTail)
	JZ(LabelRef("wiped"))
	for off := scTail; off < scPowers; off += 64 {
		VMOVDQA64(Z0, mem(rScratch, off))
	}
	Label("wiped")
	VZEROUPPER()
	RET()
}
