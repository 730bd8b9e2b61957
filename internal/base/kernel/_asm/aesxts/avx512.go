package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "github.com/softmkey/softmkey/internal/base/kernel/_asm/xtsgen"
)

// The AVX-512 kernel.
//
// On the processors for which it was written, a 512-bit VAESENC uses only port 0, at one
// per cycle, and no other instruction needs port 0. The kernel is therefore as fast as
// the rounds alone if everything else fits port 5, the other port of 512-bit
// instructions, and port 0 never waits.
//
//   - A stripe of 32 blocks, in eight registers, is in flight.
//   - Between the rounds of a stripe, the tweaks of the next one are computed: in the same
//     unit by steps, for the next unit by spread. Between two stripes only the loads and the
//     first exclusive or remain.
//   - Shifts of 64-bit lanes use port 0 and are avoided. Tweaks are multiplied by byte
//     shifts and carry-less multiplications, which use port 5.
//   - The tweak numbers of four units are encrypted in one register, as a ninth chain of
//     rounds in a stripe of the four units before. So are the last blocks of four units with
//     ciphertext stealing, in a stripe of the four units after them.
//
// AMD's Zen 4 multiplies on the ports of VAESENC, so that the tweaks take a few percent there.
//
// # Tweaks with the last round key
//
// The last round of AES adds the last round key L, and XTS then adds the tweak T. Tweaks
// are therefore kept as T' = T ^ L, which the last round uses as its key. The first
// exclusive or is then with T' ^ c, where c = K0 ^ L.
//
// # Multiplying tweaks
//
// A tweak is a polynomial T = hi*x^64 + lo modulo x^128 + x^7 + x^2 + x + 1, so x^128 =
// 0x87. For s < 64, with hi*x^s = o*x^64 + b (o is the overflow),
//
//	T * x^s = lo*x^s + b*x^64 + o*0x87
//
// where lo*x^s and hi*x^s are one carry-less multiplication each, by constants that
// differ between lanes. For s = 8m, byte shifts suffice: the m bytes shifted out at the
// top are multiplied by 0x87. For T' this becomes
//
//	T'*x^8m ^ C = (T'<<8m) ^ (T'>>(128-8m))*0x87 ^ C,  C = L*x^8m ^ L

// # A stripe waits for the previous one
//
// The first exclusive or of a stripe could execute a whole stripe early. Its rounds would
// then compete with the older rounds of the previous stripe, which the processor does not
// always prefer. With AES-128 the scheduler holds more than one stripe, and port 0 was
// idle for about 5 of 88 cycles. c is therefore computed by an instruction that also
// reads a state of the previous stripe, but whose result is always c (gate).

// Registers.
var (
	// zKey holds the round keys 1 to 9 or 13. The first and the last one are part of
	// c and T'.
	zKey = [14]VecPhysical{1: Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23, Z24, Z25, Z26, Z27, Z28}
	// zGate is c, with AES-128. zSaved holds the first T' of a stripe, in the
	// registers that are free.
	zGate    = Z25
	zSaved   = [3]VecPhysical{Z26, Z27, Z28}
	rCount   = RCX // remaining units, including the current one
	rIn      = RDX // position in the current unit
	rOut     = R8
	rSrc     = RSI // address of the current unit
	rDst     = RDI
	rStripes = R11 // stripes per unit
	rTail    = R12 // whole blocks after the last stripe
	rSteal   = R13 // bytes after the last whole block
	kSteal   = K1  // mask of rSteal bytes
	kTail    = K2  // mask of the tail's last, partial register, in 64-bit lanes
	kCarry   = K3  // 64-bit lanes with a carry
)

// Scratch memory of this kernel: offsets from Scratch.
const (
	scStripe     = ScOwn // T' of the current stripe
	scTail       = 1088  // T' of the tail
	scLast       = 1600  // last register of the tail
	scPowers     = 1664  // x^0 to x^7, in two vectors
	scPoly       = 1792  // 0x87
	scSrcStride  = 1856  // single 64-bit fields from here on
	scDstStride  = 1864
	scTailBlocks = 1872 // saved rTail, while the tail decrements it
	scSize       = 1920
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
			k := kernel512{
				XTS:    XTS{Rounds: rounds, Decrypt: decrypt, Poly: scratchPoly, Power: scratchPower},
				counts: counts, powers: powers, poly: poly,
			}
			k.generate()
		}
	}
}

type kernel512 struct {
	XTS
	counts, powers, poly Mem
}

// gate computes c for the first exclusive or of a stripe.
func (k *kernel512) gate() Op {
	if k.gated() {
		return zGate
	}
	return k.First()
}

// gated reports whether stripes wait for the previous one. AES-256 has no free register
// for it.
func (k *kernel512) gated() bool { return k.Rounds == 10 }

// scratchPoly and scratchPower are copies of constants in scratch memory. Assembly data
// is aligned to 32 bytes at most, and a load across cache lines takes two accesses.
func scratchPoly() Mem       { return Ptr(Scratch, scPoly) }
func scratchPower(j int) Mem { return Ptr(Scratch, scPowers+64*j) }

func (k *kernel512) generate() {
	TEXT(KernelName(k.Rounds, k.Decrypt, "AVX512"), 0, "func(s, r *byte)")
	frame := AllocLocal(scSize + 64)
	LEAQ(frame, Scratch)
	ADDQ(Imm(63), Scratch)
	ANDQ(I8(-64), Scratch)
	k.prologue()

	Label("unit")
	MOVQ(rSrc, rIn)
	MOVQ(rDst, rOut)
	MOVQ(rStripes, Tmp1)
	TESTQ(Tmp1, Tmp1)
	JZ(LabelRef("short"))
	Label("inner")
	CMPQ(Tmp1, Imm(1))
	JE(LabelRef("last"))
	Label("stripe")
	k.stripe(k.Steps(), nil)
	DECQ(Tmp1)
	JNZ(LabelRef("inner"))
	JMP(LabelRef("tail"))

	Label("last")
	TESTQ(rTail, rTail)
	JNZ(LabelRef("stripe"))
	TESTQ(rSteal, rSteal)
	JZ(LabelRef("phase"))
	k.StealTweaks()

	Comment("The unit's last stripe and the next unit's tweaks. The other work depends on the unit's place in the group.")
	Label("phase")
	LEAQ(Ptr(Slot, 16), Tmp1)
	ANDQ(U8(RingMask), Tmp1)
	k.dispatch("lastTweaks", "lastFix")
	k.stripe(k.Spread(At(ScTweaks, Tmp1)), nil)
	JMP(LabelRef("lastDone"))
	Label("lastTweaks")
	k.stripe(k.Spread(At(ScTweaks, Tmp1)), k.TweakChain())
	k.nextNumbers()
	JMP(LabelRef("lastDone"))
	Label("lastFix")
	k.stripe(k.Spread(At(ScTweaks, Tmp1)), k.fixChain())
	FixStore()
	Label("lastDone")
	TESTQ(rSteal, rSteal)
	JZ(LabelRef("next"))
	VMOVDQU(Ptr(rOut, -16), X0)
	k.steal("last")
	JMP(LabelRef("next"))

	Comment("Without a stripe, the chains come before the tail, whose instructions overlap with them and with the next unit.")
	Label("short")
	Label("tail")
	k.tailTweaks()
	LEAQ(Ptr(Slot, 16), Tmp1)
	ANDQ(U8(RingMask), Tmp1)
	k.dispatch("tailTweaks", "tailFix")
	JMP(LabelRef("tailSpread"))
	Label("tailTweaks")
	Run(k.TweakChain())
	k.nextNumbers()
	JMP(LabelRef("tailSpread"))
	Label("tailFix")
	Run(k.fixChain())
	FixStore()
	LEAQ(Ptr(Slot, 16), Tmp1)
	ANDQ(U8(RingMask), Tmp1)
	Label("tailSpread")
	CMPQ(rCount, Imm(1))
	JE(LabelRef("tailStart"))
	Run(k.Spread(At(ScTweaks, Tmp1)))
	Label("tailStart")
	k.tail()

	Label("next")
	ADDQ(Ptr(Scratch, scSrcStride), rSrc)
	ADDQ(Ptr(Scratch, scDstStride), rDst)
	ADDQ(Imm(16), Slot)
	ANDQ(U8(RingMask), Slot)
	DECQ(rCount)
	JNZ(LabelRef("unit"))
	TESTQ(Pending, Pending)
	JZ(LabelRef("done"))
	k.flush()
	Label("done")
	k.epilogue()
}

// dispatch jumps to tweaks in the first unit of a group, if another group follows, and to
// fix in the third unit, if the previous group had stealing. In the third unit, the last
// stores of the previous group are already in the cache, and its slots in the rings are
// still valid.
func (k *kernel512) dispatch(tweaks, fix string) {
	MOVQ(Slot, Tmp2)
	ANDQ(U8(RingGroup-1), Tmp2)
	JZ(LabelRef(tweaks + "Maybe"))
	CMPQ(Tmp2, Imm(32))
	JNE(LabelRef(tweaks + "Not"))
	CMPQ(Pending, Imm(6))
	JGE(LabelRef(fix))
	JMP(LabelRef(tweaks + "Not"))
	Label(tweaks + "Maybe")
	CMPQ(rCount, Imm(4))
	JG(LabelRef(tweaks))
	Label(tweaks + "Not")
}

// prologue loads the keys and the run, and computes the first unit's tweaks.
func (k *kernel512) prologue() {
	Load(Param("s"), Sched)
	Load(Param("r"), Tmp1)
	for j := range 2 {
		VMOVDQU64(k.powers.Offset(64*j), Tmp)
		VMOVDQA64(Tmp, k.Power(j))
	}
	VBROADCASTI32X4(k.poly, Tmp)
	VMOVDQA64(Tmp, k.Poly())
	XORQ(Slot, Slot)
	VBROADCASTI32X4(Ptr(Tmp1, runLo), ChainKey)
	VMOVDQU64(k.counts, Chain)
	k.addNumbers()
	Run(k.TweakChainOf(nil))
	k.nextNumbers()
	for i := 1; i < k.Rounds; i++ {
		VBROADCASTI32X4(k.RoundKey(i), zKey[i])
	}
	if k.gated() {
		VMOVDQA64(k.First(), zGate)
	}

	MOVQ(Ptr(Tmp1, runSrc), rSrc)
	MOVQ(Ptr(Tmp1, runDst), rDst)
	MOVQ(Ptr(Tmp1, runSrcStride), rIn)
	MOVQ(rIn, Ptr(Scratch, scSrcStride))
	MOVQ(Ptr(Tmp1, runDstStride), rIn)
	MOVQ(rIn, Ptr(Scratch, scDstStride))
	MOVQ(Ptr(Tmp1, runN), rCount)

	Comment("unit = 512*stripes + 16*tail + steal")
	MOVQ(Ptr(Tmp1, runUnit), rStripes)
	MOVQ(rStripes, rTail)
	MOVQ(rStripes, rSteal)
	SHRQ(Imm(9), rStripes)
	SHRQ(Imm(4), rTail)
	ANDQ(Imm(31), rTail)
	ANDQ(Imm(15), rSteal)
	MOVQ(I32(-1), rIn)
	BZHIQ(rSteal, rIn, rOut)
	KMOVQ(rOut, kSteal)
	Comment("Mask for the tail's last register: 2 * (tail mod 4) qwords.")
	MOVQ(rTail, rOut)
	ANDQ(Imm(3), rOut)
	ADDQ(rOut, rOut)
	BZHIQ(rOut, rIn, rOut)
	KMOVQ(rOut, kTail)
	XORQ(Pending, Pending)
	Run(k.Spread(Ptr(Scratch, ScTweaks)))
}

// fixChain encrypts the stolen-from blocks of the previous group into Chain, and leaves
// the group's slot in Tmp2.
func (k *kernel512) fixChain() []func() {
	return append([]func(){PreviousGroup}, k.fixChainAt()...)
}

// fixChainAt is fixChain with the slot already in Tmp2.
func (k *kernel512) fixChainAt() []func() {
	s := []func(){
		func() { VMOVDQA64(At(ScFix, Tmp2), Chain) },
		func() { VMOVDQA64(At(ScFixTweak, Tmp2), ChainKey) },
		func() { VPTERNLOGQ(Imm(Xor3), k.First(), ChainKey, Chain) },
	}
	for r := 1; r < k.Rounds; r++ {
		s = append(s, func() { Round(k.Decrypt, zKey[r], Chain) })
	}
	return append(s, func() { LastRound(k.Decrypt, ChainKey, Chain) })
}

// flush processes the stolen-from blocks that no later unit has processed: at most one
// whole group and the units of the last one.
func (k *kernel512) flush() {
	Oldest()
	Label("flush")
	Run(k.fixChainAt())
	for i := range 4 {
		FixStoreLane(i)
		DECQ(Pending)
		JZ(LabelRef("done"))
	}
	XORQ(Imm(RingGroup), Tmp2)
	JMP(LabelRef("flush"))
}

// stripe processes 512 bytes. Its rounds are interleaved with next, which computes the
// tweaks of the next stripe, and with chain, a chain of rounds.
func (k *kernel512) stripe(next, chain []func()) {
	// next overwrites the T', so they are kept in registers as far as these are free.
	saved := make([]Op, 8)
	for i := range saved {
		if k.gated() && i < len(zSaved) {
			saved[i] = zSaved[i]
		} else {
			saved[i] = Ptr(Scratch, scStripe+64*i)
		}
	}
	for i, s := range State {
		VMOVDQU64(Ptr(rIn, 64*i), s)
		VPTERNLOGQ(Imm(Xor3), k.gate(), Tweak[i], s)
		VMOVDQA64(Tweak[i], saved[i])
		PREFETCHT0(Ptr(rIn, 512+64*i)) // 1 % faster for runs larger than the first-level cache
	}
	slots := 8 * (k.Rounds - 1)
	for i := range slots {
		Round(k.Decrypt, zKey[1+i/8], State[i%8])
		Share(next, i, slots)
		Share(chain, i, slots)
		if k.gated() && i == 4*8-1 {
			const same = 0xF0
			VPTERNLOGQ(Imm(same), State[7], State[7], zGate)
		}
	}
	for i, s := range State {
		LastRound(k.Decrypt, saved[i], s)
		VMOVDQU64(s, Ptr(rOut, 64*i))
	}
	ADDQ(U32(512), rIn)
	ADDQ(U32(512), rOut)
}

// one processes register Z0 with the T' in Z1.
func (k *kernel512) one() {
	VPTERNLOGQ(Imm(Xor3), k.First(), Z1, Z0)
	for r := 1; r < k.Rounds; r++ {
		Round(k.Decrypt, zKey[r], Z0)
	}
	LastRound(k.Decrypt, Z1, Z0)
}

// tail processes the rest of a unit after its last stripe: rTail whole blocks, and
// ciphertext stealing.
func (k *kernel512) tail() {
	XORQ(Tmp1, Tmp1)
	SUBQ(Imm(4), rTail)
	JLT(LabelRef("tailRest"))
	Label("tailFour")
	VMOVDQU64(Ptr(rIn, 0), Z0)
	VMOVDQA64(At(scTail, Tmp1), Z1)
	k.one()
	VMOVDQU64(Z0, Ptr(rOut, 0))
	ADDQ(Imm(64), Tmp1)
	ADDQ(Imm(64), rIn)
	ADDQ(Imm(64), rOut)
	SUBQ(Imm(4), rTail)
	JGE(LabelRef("tailFour"))
	Label("tailRest")
	ADDQ(Imm(4), rTail)
	JZ(LabelRef("tailWhole"))
	VMOVDQU64_Z(Ptr(rIn, 0), kTail, Z0)
	VMOVDQA64(At(scTail, Tmp1), Z1)
	k.one()
	VMOVDQU64(Z0, kTail, Ptr(rOut, 0))
	VMOVDQA64(Z0, Ptr(Scratch, scLast))
	SHLQ(Imm(4), rTail)
	ADDQ(rTail, rIn)
	ADDQ(rTail, rOut)
	VMOVDQA(At(scLast-16, rTail), X0)
	JMP(LabelRef("tailSteal"))
	Label("tailWhole")
	VMOVDQU(Ptr(rOut, -16), X0)
	Label("tailSteal")
	MOVQ(Ptr(Scratch, scTailBlocks), rTail)
	TESTQ(rSteal, rSteal)
	JZ(LabelRef("tailDone"))
	k.steal("tail")
	Label("tailDone")
}

// steal performs ciphertext stealing, with the last whole block of the unit in X0. The
// first bytes of the block become the end of the unit, the remainder of the input takes
// their place, and the block waits in the ring to be encrypted again.
//
// The remainder is usually 8 bytes, a signature field, and these are stored without a
// mask: until a masked store completes, the memory after it counts as stored too, and in
// place the next unit is read from there.
func (k *kernel512) steal(label string) {
	CMPQ(rSteal, Imm(8))
	JNE(LabelRef(label + "Masked"))
	VMOVLPS(Ptr(rIn, 0), X0, X1)
	VMOVQ(X0, Ptr(rOut, 0))
	JMP(LabelRef(label + "Stolen"))
	Label(label + "Masked")
	VMOVDQA(X0, X1)
	VMOVDQU8(Ptr(rIn, 0), kSteal, X1)
	VMOVDQU8(X0, kSteal, Ptr(rOut, 0))
	Label(label + "Stolen")
	VMOVDQA(X1, At(ScFix, Slot))
	SUBQ(Imm(16), rOut)
	MOVQ(rOut, At(ScFixOut, Slot))
	INCQ(Pending)
}

// epilogue clears keys, tweaks and blocks from registers and scratch memory.
func (k *kernel512) epilogue() {
	for i := range 32 {
		z := AllZ[i]
		VPXORQ(z, z, z)
	}
	for off := ScTweaks; off < scTail; off += 64 {
		VMOVDQA64(Z0, Ptr(Scratch, off))
	}
	TESTQ(rTail, rTail)
	JZ(LabelRef("wiped"))
	for off := scTail; off < scPowers; off += 64 {
		VMOVDQA64(Z0, Ptr(Scratch, off))
	}
	Label("wiped")
	VZEROUPPER()
	RET()
}
