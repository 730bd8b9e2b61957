package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "github.com/softmkey/softmkey/internal/base/kernel/_asm/xtsgen"
)

// The kernel: AES-XTS in units of 520 bytes, a block of 512 bytes and its T10-DIF field.
//
// The structure is that of the kernel of package aesxts, for one size of unit: 32 AES
// blocks in flight, one round in each cycle on port 0, and everything else between the
// rounds, on port 5. A unit ends with ciphertext stealing of 8 bytes, the field. The AES
// block that is encrypted last waits in a ring until four of them are processed together,
// in a later unit.
//
// This delay gives the guard its time. When encrypting, the sum over a block is computed
// while the block is encrypted. It becomes a field when the AES block that includes the
// field is encrypted, up to six units later. When decrypting, the sum is computed one
// unit later without the last 16 bytes. These are decrypted by then or later, with three
// others; the field is computed afterwards and compared.
//
// Tweaks are kept as T' = T ^ L, where L is the last round key; see package aesxts.

type vec = VecPhysical

var (
	// zKey holds round keys; the first and the last are part of c and T'. Those from
	// 8 on are in memory, and are loaded to zLateKey for their round.
	zKey     = [8]vec{1: Z16, Z17, Z18, Z19, Z20, Z21, Z22}
	zLateKey = Z23
	// For the sums:
	zPlace, zSum, zProduct, zData = Z24, Z25, Z26, Z27
	zField                        = Z28 // decryption only

	rCount     = RCX // remaining units, including the current one
	rIn        = RDX // address of the current unit
	rOut       = R8
	rIndex     = RSI // offset of the current unit in the tables: 8 times its number
	rConsts    = RDI
	rGuardSlot = R11 // slot of the block whose sum is computed
	rGuard     = R12 // address of that block
	rSrcTable  = R13
	kThree     = K1 // first three lanes, in 64-bit lanes
	kGroup     = K2 // lanes of the flushed group, in 64-bit lanes
)

// Scratch memory of this kernel: offsets from Scratch. When encrypting, the blocks in the
// ring ScFix do not include the field yet.
const (
	scSums     = ScOwn // ring of sums
	scFields   = 704   // ring of decrypted fields, decryption only
	scStripe   = 832   // T' of the current unit
	scKeys     = 1344  // round keys 8 to 13
	scTags     = 1728  // vectors copied from the run
	scStep     = 1792
	scMask     = 1856
	scDiff     = 1920
	scSrc      = 1984 // 64-bit fields copied from the run
	scDst      = 1992
	scDstTable = 2000
	scFieldsAt = 2008
	scSplits   = 2016 // address of the next split
	scScatter  = 2024 // 1 if splits are written
	scSplitAt  = 2032 // table offset of the unit before which the next split is processed
	scSpilled  = 2040 // two registers
	scSize     = 2056
)

type kernel struct{ XTS }

// key returns the round key r.
func (k *kernel) key(r int) Op {
	if r < len(zKey) {
		return zKey[r]
	}
	return Ptr(Scratch, scKeys+64*(r-len(zKey)))
}

// byIndex returns the table entry of the current unit, or of the unit n later.
func byIndex(table Register, n int) Mem {
	return Mem{Base: table, Index: rIndex, Scale: 1, Disp: 8 * n}
}

func (k *kernel) generate() {
	TEXT(KernelName(k.Rounds, k.Decrypt, "AVX512"), 0, "func(s, r *byte)")
	frame := AllocLocal(scSize + 64)
	LEAQ(frame, Scratch)
	ADDQ(Imm(63), Scratch)
	ANDQ(I8(-64), Scratch)
	k.prologue()

	Label("unit")
	CMPQ(rIndex, Ptr(Scratch, scSplitAt))
	JEQ(LabelRef("split"))
	Label("unsplit")
	MOVQ(byIndex(rSrcTable, 0), rIn)
	ADDQ(Ptr(Scratch, scSrc), rIn)
	MOVQ(Ptr(Scratch, scDstTable), rOut)
	MOVQ(byIndex(rOut, 0), rOut)
	ADDQ(Ptr(Scratch, scDst), rOut)
	if !k.Decrypt {
		MOVQ(rIn, rGuard)
		MOVQ(Slot, rGuardSlot)
	}
	k.StealTweaks()
	k.prefetch()

	Comment("The work between the rounds depends on the unit's place in its group.")
	LEAQ(Ptr(Slot, 16), Tmp1)
	ANDQ(U8(RingMask), Tmp1)
	MOVQ(Slot, Tmp2)
	ANDQ(U8(RingGroup-1), Tmp2)
	JZ(LabelRef("first"))
	CMPQ(Tmp2, Imm(32))
	JNE(LabelRef("plain"))
	Comment("In the third unit, the last stores of the previous group are already in the cache.")
	CMPQ(Pending, Imm(6))
	JGE(LabelRef("fix"))
	Label("plain")
	k.stripe(k.Spread(At(ScTweaks, Tmp1)), nil)
	JMP(LabelRef("done"))
	Label("first")
	CMPQ(rCount, Imm(4))
	JLE(LabelRef("plain"))
	k.stripe(k.Spread(At(ScTweaks, Tmp1)), k.TweakChain())
	k.nextNumbers()
	JMP(LabelRef("done"))
	Label("fix")
	k.stripe(k.Spread(At(ScTweaks, Tmp1)), k.fixChain())
	FixStore()
	Label("done")
	k.steal()

	ADDQ(Imm(8), rIndex)
	if k.Decrypt {
		MOVQ(rOut, rGuard)
		MOVQ(Slot, rGuardSlot)
	}
	ADDQ(Imm(16), Slot)
	ANDQ(U8(RingMask), Slot)
	DECQ(rCount)
	JNZ(LabelRef("unit"))
	if k.Decrypt {
		Run(k.sum())
	}
	k.flush()
	k.epilogue()
	k.split()
}

// prologue loads the keys and the run, and computes the first unit's tweaks.
func (k *kernel) prologue() {
	Load(Param("s"), Sched)
	Load(Param("r"), Tmp1)
	MOVQ(Ptr(Tmp1, runLo), rIn)
	MOVQ(Ptr(Tmp1, runHi), rOut)
	for i := range 4 {
		VMOVQ(rIn, X0)
		VPINSRQ(Imm(1), rOut, X0, X0)
		if i == 0 {
			VMOVDQA64(Z0, Chain)
		} else {
			VINSERTI32X4(Imm(uint64(i)), X0, Chain, Chain)
		}
		ADDQ(Imm(1), rIn)
		ADCQ(Imm(0), rOut)
	}
	XORQ(Slot, Slot)
	MOVQ(Ptr(Tmp1, runConsts), rConsts)
	Run(k.TweakChainOf(nil))
	for i := range 4 {
		MOVQ(rIn, Ptr(Scratch, ScNumbers+16*i))
		MOVQ(rOut, Ptr(Scratch, ScNumbers+16*i+8))
		ADDQ(Imm(1), rIn)
		ADCQ(Imm(0), rOut)
	}
	for r := 1; r < k.Rounds; r++ {
		if r < len(zKey) {
			VBROADCASTI32X4(k.RoundKey(r), zKey[r])
		} else {
			VBROADCASTI32X4(k.RoundKey(r), Tmp)
			VMOVDQA64(Tmp, k.key(r).(Mem))
		}
	}
	for i, off := range []int{runTags, runStep, runMask} {
		VMOVDQU64(Ptr(Tmp1, off), Tmp)
		VMOVDQA64(Tmp, Ptr(Scratch, scTags+64*i))
	}
	Comment("Halves of slots that are not written must be zero.")
	VPXORQ(Tmp, Tmp, Tmp)
	VMOVDQA64(Tmp, Ptr(Scratch, scDiff))
	for off := ScFix; off < ScFixTweak; off += 64 {
		VMOVDQA64(Tmp, Ptr(Scratch, off))
	}
	for off := scFields; off < scStripe; off += 64 {
		VMOVDQA64(Tmp, Ptr(Scratch, off))
	}
	MOVQ(U32(0x3F), rIn)
	KMOVQ(rIn, kThree)
	MOVQ(Ptr(Tmp1, runSrcTable), rSrcTable)
	for i, off := range []int{runSrc, runDst, runDstTable, runFields, runSplits, runScatter} {
		MOVQ(Ptr(Tmp1, off), rIn)
		MOVQ(rIn, Ptr(Scratch, scSrc+8*i))
	}
	MOVQ(Ptr(Tmp1, runSplits), rIn)
	MOVQ(Ptr(rIn, splitAt), rIn)
	MOVQ(rIn, Ptr(Scratch, scSplitAt))
	XORQ(rIndex, rIndex)
	MOVQ(Ptr(Tmp1, runN), rCount)
	if k.Decrypt {
		Comment("There is no block before the first one. Use any memory, and a slot that is written again before its use.")
		MOVQ(Ptr(rSrcTable, 0), rGuard)
		ADDQ(Ptr(Scratch, scSrc), rGuard)
		MOVQ(U32(7*16), rGuardSlot)
	}
	XORQ(Pending, Pending)
	Run(k.Spread(Ptr(Scratch, ScTweaks)))
}

// nextNumbers adds 4 to each tweak number.
func (k *kernel) nextNumbers() {
	for i := range 4 {
		ADDQ(Imm(4), Ptr(Scratch, ScNumbers+16*i))
		ADCQ(Imm(0), Ptr(Scratch, ScNumbers+16*i+8))
	}
}

// fixChain encrypts the last blocks of the previous group, with their fields, into Chain,
// and leaves the group's slot in Tmp2. When decrypting, it then computes the fields and
// accumulates their differences.
func (k *kernel) fixChain() []func() {
	return append([]func(){PreviousGroup}, k.fixChainAt(nil)...)
}

// fixChainAt is fixChain with the slot already in Tmp2. lanes, if not nil, selects the
// 64-bit lanes whose differences count.
func (k *kernel) fixChainAt(lanes Op) (s []func()) {
	if k.Decrypt {
		s = append(s, func() { VMOVDQA64(At(ScFix, Tmp2), Chain) })
	} else {
		s = append(s, func() { VMOVDQA64(At(scSums, Tmp2), Chain) })
		s = append(s, k.fields(Chain, ChainKey)...)
		s = append(s, func() { VPTERNLOGQ(Imm(Xor3), At(ScFix, Tmp2), ChainKey, Chain) })
		s = append(s, k.nextTags(ChainKey)...)
	}
	s = append(s,
		func() { VMOVDQA64(At(ScFixTweak, Tmp2), ChainKey) },
		func() { VPTERNLOGQ(Imm(Xor3), k.First(), ChainKey, Chain) },
	)
	for r := 1; r < k.Rounds; r++ {
		s = append(s, func() { Round(k.Decrypt, k.key(r), Chain) })
	}
	s = append(s, func() { LastRound(k.Decrypt, ChainKey, Chain) })
	if !k.Decrypt {
		return s
	}
	// The last lane of each of the four blocks, and the sums over the others.
	s = append(s,
		func() { VPSHUFB(constant(cReverse), Chain, zField) },
		func() { VPCLMULQDQ(Imm(0x00), constant(cLast), zField, ChainKey) },
		func() { VPCLMULQDQ(Imm(0x11), constant(cLast), zField, zField) },
		func() { VPTERNLOGQ(Imm(Xor3), At(scSums, Tmp2), ChainKey, zField) },
	)
	s = append(s, k.fields(zField, ChainKey)...)
	s = append(s, func() { VPTERNLOGQ(Imm(Xor3), At(scFields, Tmp2), ChainKey, zField) })
	s = append(s, k.nextTags(ChainKey)...)
	return append(s,
		func() {
			if lanes != nil {
				VPANDQ_Z(Ptr(Scratch, scMask), zField, kGroup, zField)
			} else {
				VPANDQ(Ptr(Scratch, scMask), zField, zField)
			}
		},
		func() { VPORQ(Ptr(Scratch, scDiff), zField, zField) },
		func() { VMOVDQA64(zField, Ptr(Scratch, scDiff)) },
	)
}

// flush processes the last blocks that no later unit has processed: at most one whole
// group and the units of the last one.
func (k *kernel) flush() {
	Oldest()
	Label("flush")
	if k.Decrypt {
		Comment("A mask of two qwords for each remaining unit, at most eight qwords.")
		MOVQ(I32(-1), Tmp1)
		LEAQ(Mem{Base: Pending, Index: Pending, Scale: 1}, rIn)
		BZHIQ(rIn, Tmp1, Tmp1)
		KMOVB(Tmp1.As32(), kGroup)
	}
	Run(k.fixChainAt(kGroup))
	for i := range 4 {
		FixStoreLane(i)
		DECQ(Pending)
		JZ(LabelRef("flushed"))
	}
	XORQ(Imm(RingGroup), Tmp2)
	JMP(LabelRef("flush"))
	Label("flushed")
}

// stripe processes a block. Its rounds are interleaved with next, which computes the
// tweaks of the next unit, with chain, a chain of rounds, and with the sum.
func (k *kernel) stripe(next, chain []func()) {
	saved := func(i int) Mem { return Ptr(Scratch, scStripe+64*i) }
	for i, s := range State {
		VMOVDQU64(Ptr(rIn, 64*i), s)
		VPTERNLOGQ(Imm(Xor3), k.First(), Tweak[i], s)
		VMOVDQA64(Tweak[i], saved(i))
	}
	sum := k.sum()
	slots := 8 * (k.Rounds - 1)
	for i := range slots {
		key := k.key(1 + i/8)
		if m, late := key.(Mem); late {
			if key = zLateKey; i%8 == 0 {
				VMOVDQA64(m, zLateKey)
			}
		}
		Round(k.Decrypt, key, State[i%8])
		Share(next, i, slots)
		Share(chain, i, slots)
		Share(sum, i, slots)
	}
	for i, s := range State {
		LastRound(k.Decrypt, saved(i), s)
		VMOVDQU64(s, Ptr(rOut, 64*i))
	}
}

// prefetch prefetches the unit after the next one, which can be at any address. At the
// end of a run the table has stale entries, whose prefetch is harmless.
func (k *kernel) prefetch() {
	MOVQ(byIndex(rSrcTable, 2), Tmp1)
	ADDQ(Ptr(Scratch, scSrc), Tmp1)
	for i := 0; i < blockSize; i += 64 {
		PREFETCHT0(Ptr(Tmp1, i))
	}
}

// steal performs ciphertext stealing for the last AES block, in State[7]: its first bytes
// become the end of the unit, and the field takes their place.
func (k *kernel) steal() {
	VEXTRACTI32X4(Imm(3), State[7], X0)
	if k.Decrypt {
		MOVQ(Ptr(rIn, blockSize), Tmp1)
		MOVQ(Tmp1, At(ScFix, Slot))
		VMOVQ(X0, At(scFields, Slot))
		MOVQ(Ptr(Scratch, scFieldsAt), Tmp1)
		VMOVQ(X0, byIndex(Tmp1, 0))
	} else {
		VMOVQ(X0, Ptr(rOut, blockSize))
	}
	VMOVHPS(X0, At(ScFix+8, Slot))
	LEAQ(Ptr(rOut, blockSize-16), Tmp1)
	MOVQ(Tmp1, At(ScFixOut, Slot))
	INCQ(Pending)
}

// epilogue clears keys, tweaks and data from registers and scratch memory.
func (k *kernel) epilogue() {
	if k.Decrypt {
		Comment("Combine the differences of all four lanes.")
		VMOVDQA64(Ptr(Scratch, scDiff), Z0)
		VEXTRACTI64X4(Imm(1), Z0, Y1)
		VPORQ(Y1, Y0, Y0)
		VEXTRACTI32X4(Imm(1), Y0, X1)
		VPOR(X1, X0, X0)
		Load(Param("r"), Tmp1)
		VMOVQ(X0, Ptr(Tmp1, runDiff))
	}
	for _, z := range AllZ {
		VPXORQ(z, z, z)
	}
	for off := ScTweaks; off < scTags; off += 64 {
		VMOVDQA64(Z0, Ptr(Scratch, off))
	}
	VZEROUPPER()
	RET()
}
