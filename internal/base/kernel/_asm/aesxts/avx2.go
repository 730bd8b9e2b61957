package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "github.com/softmkey/softmkey/internal/base/kernel/_asm/xtsgen"
)

// The kernels of the AVX2 and VAES tiers: AES-NI on 128 bits with one block per register,
// and VAES on 256 bits with two blocks per register.
//
// Eight registers are in flight; their blocks form a stripe. That suffices for the
// latency of every AES unit. The tweaks of a stripe are in memory, in one of two arrays.
// Between the rounds, the tweaks of the next stripe are computed into the other array: in
// the same unit by steps, for the next unit by spread. The tweak numbers of as many units
// as a stripe has blocks are encrypted together. The rest of a unit after its last
// stripe, and ciphertext stealing, are processed register by register; the out-of-order
// engine overlaps them with the next unit.

var (
	xState = [8]VecPhysical{X0, X1, X2, X3, X4, X5, X6, X7}
	xKey   = X12
	xFix   = X13
	xFirst = X14 // first round key
	xPoly  = X15
)

// kernel generates one kernel.
type kernel struct {
	tier    string
	lanes   int // blocks per register
	rounds  int
	decrypt bool
	keys    int // offset in schedule
	shifts  Mem // VPSHUFB controls for shifts by whole bytes: at s, left by 16-s; at 32-s, right by 16-s
	carries Mem
}

func avx2() {
	expand()
	blocks()
	kernels("AESNI", 1)
}

func vaes() { kernels("VAES", 2) }

func kernels(tier string, lanes int) {
	shifts := GLOBL("shifts", RODATA|NOPTR)
	for i := range 48 {
		if i/16 == 1 {
			DATA(i, U8(i-16))
		} else {
			DATA(i, U8(0x80)) // zero
		}
	}
	carries := GLOBL("carries", RODATA|NOPTR)
	DATA(0, U64(0x87))
	DATA(8, U64(1))
	for _, rounds := range []int{10, 14} {
		for _, decrypt := range []bool{false, true} {
			k := kernel{tier: tier, lanes: lanes, rounds: rounds, decrypt: decrypt, keys: OffEnc1, shifts: shifts, carries: carries}
			if decrypt {
				k.keys = OffDec1
			}
			k.generate()
		}
	}
}

// wide returns the register of the kernel's width whose first half is x.
func (k *kernel) wide(x VecPhysical) VecPhysical {
	if k.lanes == 2 {
		return x.AsY().(VecPhysical)
	}
	return x
}

// register is the size of a register in bytes. stripe is the size of a stripe, and of its
// tweaks.
func (k *kernel) register() int { return 16 * k.lanes }
func (k *kernel) stripe() int   { return 8 * k.register() }

// broadcast loads 16 bytes into every lane.
func (k *kernel) broadcast(m Mem, x VecPhysical) {
	if k.lanes == 2 {
		VBROADCASTI128(m, k.wide(x))
	} else {
		VMOVDQU(m, x)
	}
}

// Scratch memory, from Scratch on: the encrypted tweak numbers, as many bytes as a stripe
// has; two arrays for the tweaks of a stripe; and the fields below.

func (k *kernel) arrays() int { return k.stripe() }

// at returns one of these fields.
func (k *kernel) at(off int) Mem { return Ptr(Scratch, 3*k.stripe()+off) }

const (
	niSrcStride = 0
	niDstStride = 8
	niLo        = 16
	niHi        = 24
	niNextArray = 32
	niUnit      = 40
	niLastTweak = 48 // tweak of the block that is encrypted last, after stealing
	niRest      = 64 // last 16 bytes of the unit, if it needs stealing

	// The block of the previous unit that is encrypted last. The address is 0 if
	// there is none.
	niFix      = 80
	niFixTweak = 96
	niFixOut   = 112
	niSize     = 128
)

func (k *kernel) key(r int) Mem { return Ptr(Sched, k.keys+16*r) }

func (k *kernel) generate() {
	TEXT(KernelName(k.rounds, k.decrypt, k.tier), 0, "func(s, r *byte)")
	rTweak, rArray := Slot, Pending
	frame := AllocLocal(3*k.stripe() + niSize + 32)
	LEAQ(frame, Scratch)
	ADDQ(Imm(31), Scratch)
	ANDQ(I8(-32), Scratch)

	Load(Param("s"), Sched)
	Load(Param("r"), Tmp1)
	for _, f := range []struct{ from, to int }{
		{runSrcStride, niSrcStride}, {runDstStride, niDstStride}, {runLo, niLo}, {runHi, niHi}, {runUnit, niUnit},
	} {
		MOVQ(Ptr(Tmp1, f.from), Tmp2)
		MOVQ(Tmp2, k.at(f.to))
	}
	MOVQ(Ptr(Tmp1, runSrc), rSrc)
	MOVQ(Ptr(Tmp1, runDst), rDst)
	MOVQ(Ptr(Tmp1, runN), rCount)
	Comment("unit = stripe*stripes + 16*tail + steal. If there is no tail, the last stripe is processed separately.")
	MOVQ(Ptr(Tmp1, runUnit), rStripes)
	MOVQ(rStripes, rTail)
	MOVQ(rStripes, rSteal)
	SHRQ(Imm(uint64(6+k.lanes)), rStripes)
	SHRQ(Imm(4), rTail)
	ANDQ(Imm(uint64(8*k.lanes-1)), rTail)
	ANDQ(Imm(15), rSteal)
	CMPQ(rTail, Imm(1))
	SBBQ(Imm(0), rStripes)
	k.broadcast(k.key(0), xFirst)
	k.broadcast(k.carries, xPoly)
	Comment("Keep 0x87 in the low halves only.")
	VPSLLDQ(Imm(8), k.wide(xPoly), k.wide(xPoly))
	VPSRLDQ(Imm(8), k.wide(xPoly), k.wide(xPoly))

	XORQ(Tmp1, Tmp1)
	MOVQ(Tmp1, k.at(niFixOut))

	k.tweaks()
	MOVQ(Scratch, rTweak)
	LEAQ(Ptr(Scratch, k.arrays()), rArray)
	Run(k.spread(rTweak, rArray))

	Label("unit")
	MOVQ(rSrc, rIn)
	MOVQ(rDst, rOut)
	MOVQ(rStripes, Tmp1)
	TESTQ(Tmp1, Tmp1)
	JZ(LabelRef("advance"))
	Label("stripe")
	k.otherArray(rArray)
	k.eight(rArray, k.steps(rArray), false)
	DECQ(Tmp1)
	JNZ(LabelRef("stripe"))

	Comment("Load the next unit's tweak, which may be in the next group. After the last unit it is not used.")
	Label("advance")
	ADDQ(Imm(16), rTweak)
	LEAQ(Ptr(Scratch, k.arrays()), Tmp1)
	CMPQ(rTweak, Tmp1)
	JNE(LabelRef("advanced"))
	MOVQ(Scratch, rTweak)
	CMPQ(rCount, Imm(1))
	JE(LabelRef("advanced"))
	k.tweaks()
	Label("advanced")
	k.otherArray(rArray)
	MOVQ(Tmp2, k.at(niNextArray))
	TESTQ(rSteal, rSteal)
	JZ(LabelRef("kept"))
	Comment("Read it now: in place, a load after the last store would wait for that store.")
	MOVQ(k.at(niUnit), Tmp1)
	VMOVDQU(Mem{Base: rSrc, Index: Tmp1, Scale: 1, Disp: -16}, X8)
	VMOVDQA(X8, k.at(niRest))
	Label("kept")
	TESTQ(rTail, rTail)
	JNZ(LabelRef("tail"))

	Comment("Without a tail the last stripe remains.")
	TESTQ(rSteal, rSteal)
	JZ(LabelRef("last"))
	last := Ptr(rArray, k.stripe()-16)
	VMOVDQA(last, X8)
	if k.decrypt {
		Comment("Decryption uses the tweaks of the last block and of the remainder in reverse order.")
		VMOVDQA(X8, k.at(niLastTweak))
		Run(k.double(X8, X9))
		VMOVDQA(X8, last)
	} else {
		Run(k.double(X8, X9))
		VMOVDQA(X8, k.at(niLastTweak))
	}
	Label("last")
	CMPQ(k.at(niFixOut), Imm(0))
	JNE(LabelRef("fix"))
	k.eight(rArray, k.spread(rTweak, Tmp2), false)
	JMP(LabelRef("lastDone"))
	Label("fix")
	k.eight(rArray, k.spread(rTweak, Tmp2), true)
	MOVQ(k.at(niFixOut), Tmp1)
	VMOVDQU(xFix, Ptr(Tmp1, 0))
	Label("lastDone")
	MOVQ(k.at(niNextArray), rArray)
	TESTQ(rSteal, rSteal)
	JZ(LabelRef("next"))
	k.steal()
	VMOVDQA(X0, k.at(niFix))
	VMOVDQA(k.at(niLastTweak), X1)
	VMOVDQA(X1, k.at(niFixTweak))
	SUBQ(Imm(16), rOut)
	MOVQ(rOut, k.at(niFixOut))
	JMP(LabelRef("next"))

	Label("tail")
	Run(k.spread(rTweak, Tmp2))
	MOVQ(rTail, Tmp1)
	TESTQ(rSteal, rSteal)
	JZ(LabelRef("blocks"))
	SHLQ(Imm(4), Tmp1)
	VMOVDQA(Mem{Base: rArray, Index: Tmp1, Scale: 1}, X8)
	if k.decrypt {
		VMOVDQA(Mem{Base: rArray, Index: Tmp1, Scale: 1, Disp: -16}, X9)
		VMOVDQA(X8, Mem{Base: rArray, Index: Tmp1, Scale: 1, Disp: -16})
		VMOVDQA(X9, k.at(niLastTweak))
	} else {
		VMOVDQA(X8, k.at(niLastTweak))
	}
	MOVQ(rTail, Tmp1)
	Label("blocks")
	if k.lanes == 2 {
		SUBQ(Imm(2), Tmp1)
		JLT(LabelRef("odd"))
		Label("pair")
		k.one(Y0, Ptr(rIn, 0), Ptr(rArray, 0), Ptr(rOut, 0))
		for _, r := range []Register{rIn, rOut, rArray} {
			ADDQ(Imm(32), r)
		}
		SUBQ(Imm(2), Tmp1)
		JGE(LabelRef("pair"))
		Label("odd")
		ADDQ(Imm(2), Tmp1)
		JZ(LabelRef("tailDone"))
	}
	Label("block")
	k.one(X0, Ptr(rIn, 0), Ptr(rArray, 0), Ptr(rOut, 0))
	for _, r := range []Register{rIn, rOut, rArray} {
		ADDQ(Imm(16), r)
	}
	DECQ(Tmp1)
	JNZ(LabelRef("block"))

	Label("tailDone")
	MOVQ(k.at(niNextArray), rArray)
	TESTQ(rSteal, rSteal)
	JZ(LabelRef("next"))
	k.steal()
	VMOVDQA(X0, k.at(niRest))
	k.one(X0, k.at(niRest), k.at(niLastTweak), Ptr(rOut, -16))
	Label("next")
	ADDQ(k.at(niSrcStride), rSrc)
	ADDQ(k.at(niDstStride), rDst)
	DECQ(rCount)
	JNZ(LabelRef("unit"))
	MOVQ(k.at(niFixOut), Tmp1)
	TESTQ(Tmp1, Tmp1)
	JZ(LabelRef("fixed"))
	k.one(X0, k.at(niFix), k.at(niFixTweak), Ptr(Tmp1, 0))
	Label("fixed")

	zero := k.wide(X0)
	VPXOR(zero, zero, zero)
	for off := 0; off < 3*k.stripe(); off += k.register() {
		VMOVDQA(zero, Ptr(Scratch, off))
	}
	VMOVDQA(X0, k.at(niLastTweak))
	VMOVDQA(X0, k.at(niRest))
	VMOVDQA(X0, k.at(niFix))
	VMOVDQA(X0, k.at(niFixTweak))
	VZEROALL()
	RET()
}

// tweaks encrypts the next tweak numbers.
func (k *kernel) tweaks() {
	next := func(x VecPhysical) {
		VMOVQ(Tmp1, x)
		VPINSRQ(Imm(1), Tmp2, x, x)
		ADDQ(Imm(1), Tmp1)
		ADCQ(Imm(0), Tmp2)
	}
	MOVQ(k.at(niLo), Tmp1)
	MOVQ(k.at(niHi), Tmp2)
	k.broadcast(Ptr(Sched, OffEnc2), X8)
	for _, x := range xState {
		next(x)
		if k.lanes == 2 {
			next(X9)
			VINSERTI128(Imm(1), X9, k.wide(x), k.wide(x))
		}
		VPXOR(k.wide(X8), k.wide(x), k.wide(x))
	}
	MOVQ(Tmp1, k.at(niLo))
	MOVQ(Tmp2, k.at(niHi))
	for r := 1; r < k.rounds; r++ {
		k.broadcast(Ptr(Sched, OffEnc2+16*r), X8)
		for _, x := range xState {
			VAESENC(k.wide(X8), k.wide(x), k.wide(x))
		}
	}
	k.broadcast(Ptr(Sched, OffEnc2+16*k.rounds), X8)
	for i, x := range xState {
		VAESENCLAST(k.wide(X8), k.wide(x), k.wide(x))
		VMOVDQA(k.wide(x), Ptr(Scratch, i*k.register()))
	}
}

// otherArray sets Tmp2 to the array other than array; the sum of both is constant.
func (k *kernel) otherArray(array Register) {
	LEAQ(Mem{Base: Scratch, Index: Scratch, Scale: 1, Disp: 2*k.arrays() + k.stripe()}, Tmp2)
	SUBQ(array, Tmp2)
}

// spread sets array to T, T*x, T*x^2 and so on, for the tweak T.
func (k *kernel) spread(tweak, array Register) []func() {
	s := []func(){
		func() { VMOVDQA(Ptr(tweak, 0), X8) },
	}
	if k.lanes == 1 {
		s = append(s, func() { VMOVDQA(X8, Ptr(array, 0)) })
		for i := 1; i < 8; i++ {
			s = append(s, k.double(X8, X9)...)
			s = append(s, func() { VMOVDQA(X8, Ptr(array, 16*i)) })
		}
		return s
	}
	// Registers 0 to 3 differ by factors of x^2; registers 4 to 7 are x^8 times them.
	s = append(s, func() { VMOVDQA(X8, X10) })
	s = append(s, k.double(X8, X9)...)
	s = append(s, func() { VINSERTI128(Imm(1), X8, Y10, Y10) })
	for i := range 4 {
		s = append(s, func() { VMOVDQA(Y10, Ptr(array, 32*i)) })
		s = append(s, k.byBytes(Y10, Y8, Y9, 1)...)
		s = append(s, func() { VMOVDQA(Y8, Ptr(array, 32*(4+i))) })
		if i < 3 {
			// Shift by 2 bits: bits that leave the low half enter the high
			// half; bits that leave the high half are multiplied by 0x87.
			s = append(s,
				func() { VPSRLQ(Imm(62), Y10, Y11) },
				func() { VPSLLQ(Imm(2), Y10, Y10) },
				func() { VPCLMULQDQ(Imm(0x01), Y15, Y11, Y9) },
				func() { VPSLLDQ(Imm(8), Y11, Y11) },
				func() { VPXOR(Y9, Y10, Y10) },
				func() { VPXOR(Y11, Y10, Y10) },
			)
		}
	}
	return s
}

// double multiplies t by x. The top bit of each half is spread over the other half and
// masked with its value there, 0x87 or a carry.
func (k *kernel) double(t, tmp VecPhysical) []func() {
	return []func(){
		func() { VPSHUFD(Imm(0x13), t, tmp) },
		func() { VPSRAD(Imm(31), tmp, tmp) },
		func() { VPAND(k.carries, tmp, tmp) },
		func() { VPADDQ(t, t, t) },
		func() { VPXOR(tmp, t, t) },
	}
}

// byBytes sets d to t*x^8m: it shifts by m bytes and adds 0x87 times the bytes shifted
// out. d may be t.
func (k *kernel) byBytes(t, d, tmp VecPhysical, m int) []func() {
	return []func(){
		func() { VPSRLDQ(Imm(uint64(16-m)), t, tmp) },
		func() { VPCLMULQDQ(Imm(0x00), k.wide(xPoly), tmp, tmp) },
		func() { VPSLLDQ(Imm(uint64(m)), t, d) },
		func() { VPXOR(tmp, d, d) },
	}
}

// steps sets the array at Tmp2 to the tweaks of array times x^8 or x^16, whose exponent
// is the number of blocks in a stripe.
func (k *kernel) steps(array Register) (s []func()) {
	for i := range xState {
		t, o := k.wide(X8), k.wide(X9)
		if i%2 == 1 {
			t, o = k.wide(X10), k.wide(X11)
		}
		s = append(s, func() { VMOVDQA(Ptr(array, k.register()*i), t) })
		s = append(s, k.byBytes(t, t, o, k.lanes)...)
		s = append(s, func() { VMOVDQA(t, Ptr(Tmp2, k.register()*i)) })
	}
	return s
}

// eight processes a stripe with the tweaks of array. next, interleaved with the rounds,
// sets the other array, at Tmp2, and array is exchanged for it. With fix, the block niFix
// goes through the same rounds, to xFix.
func (k *kernel) eight(array Register, next []func(), fix bool) {
	key, first, size := k.wide(xKey), k.wide(xFirst), k.register()
	for i, x := range xState {
		s := k.wide(x)
		VMOVDQU(Ptr(rIn, size*i), s)
		VPXOR(Ptr(array, size*i), s, s)
		VPXOR(first, s, s)
	}
	if fix {
		VMOVDQA(k.at(niFix), xFix)
		VPXOR(k.at(niFixTweak), xFix, xFix)
		VPXOR(xFirst, xFix, xFix)
	}
	slots := 8 * (k.rounds - 1)
	for i := range slots {
		if i%8 == 0 {
			k.broadcast(k.key(1+i/8), xKey)
			if fix {
				Round(k.decrypt, xKey, xFix)
			}
		}
		Round(k.decrypt, key, k.wide(xState[i%8]))
		Share(next, i, slots)
	}
	k.broadcast(k.key(k.rounds), xKey)
	for i, x := range xState {
		s := k.wide(x)
		LastRound(k.decrypt, key, s)
		VPXOR(Ptr(array, size*i), s, s)
		VMOVDQU(s, Ptr(rOut, size*i))
	}
	if fix {
		LastRound(k.decrypt, xKey, xFix)
		VPXOR(k.at(niFixTweak), xFix, xFix)
	}
	MOVQ(Tmp2, array)
	if k.lanes == 1 {
		SUBQ(I8(-128), rIn)
		SUBQ(I8(-128), rOut)
	} else {
		ADDQ(U32(256), rIn)
		ADDQ(U32(256), rOut)
	}
}

// one processes register s, of one or two blocks, with the tweak at t, from in to out.
func (k *kernel) one(s VecPhysical, in, t, out Mem) {
	first := VecPhysical(xFirst)
	if s == Y0 {
		first = k.wide(xFirst)
	}
	VMOVDQU(in, s)
	VPXOR(t, s, s)
	VPXOR(first, s, s)
	key := func(r int) Op {
		if s != Y0 {
			return k.key(r)
		}
		k.broadcast(k.key(r), xKey)
		return k.wide(xKey)
	}
	for r := 1; r < k.rounds; r++ {
		Round(k.decrypt, key(r), s)
	}
	LastRound(k.decrypt, key(k.rounds), s)
	VPXOR(t, s, s)
	VMOVDQU(s, out)
}

// steal performs ciphertext stealing at the end of a unit that is not a multiple of 16
// bytes, after the last whole block was stored before rOut. The first bytes of that block
// become the end of the unit, and the remainder of the input takes their place, in X0.
// The caller encrypts this block with niLastTweak and stores it before rOut: at once, or
// in the last stripe of the next unit, because a separate chain of rounds would delay
// everything. The end of the unit is stored with 16 bytes, which always exist; the wrong
// bytes before the remainder are overwritten by the block.
func (k *kernel) steal() {
	VMOVDQU(Ptr(rOut, -16), X0)
	LEAQ(k.shifts, Tmp2)
	VMOVDQA(k.at(niRest), X1)
	VPSHUFB(Mem{Base: Tmp2, Index: rSteal, Scale: 1}, X0, X2)
	VMOVDQU(X2, Mem{Base: rOut, Index: rSteal, Scale: 1, Disp: -16})
	SUBQ(rSteal, Tmp2)
	VMOVDQU(Ptr(Tmp2, 32), X2)
	VPSHUFB(X2, X1, X1)
	VPBLENDVB(X2, X0, X1, X0)
}
