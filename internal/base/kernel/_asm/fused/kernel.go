package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "github.com/softmkey/softmkey/internal/base/kernel/_asm/xtsgen"
)

// The kernels: AES-XTS of blocks of 512 bytes that have T10-DIF fields before it, after it
// or on both sides.
//
// The structure is that of the kernel of package aesxts, for one size of unit: 32 AES
// blocks in flight, one round in each cycle on port 0, and everything else between the
// rounds, on port 5. Fields are computed for groups of four units, in the third unit after
// the group.
//
// If the field is encrypted with its block, a unit has 520 bytes and ends with ciphertext
// stealing of 8 bytes, the field. The AES block that is encrypted last waits in a ring
// until four of them are processed together, in a later unit. This delay gives the guard
// its time. When encrypting, the sum over a block is computed while the block is
// encrypted. It becomes a field when the AES block that includes the field is encrypted,
// up to six units later. When decrypting, the sum is computed one unit later without the
// last 16 bytes. These are decrypted by then or later, with three others; the field is
// computed afterwards and compared.
//
// If the field is not encrypted, a unit is its block. The sum over the input is computed
// while the unit is processed, the sum over the output one unit later.
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
	zField                        = Z28

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

// Scratch memory of the kernels: offsets from Scratch. When encrypting, the blocks in the
// ring ScFix do not include the field yet. The ring ScFixOut has the address 16 bytes
// before the end of a block, also if the field is not encrypted.
const (
	scSums      = ScOwn // ring of sums
	scFields    = 704   // ring of fields to check
	scStripe    = 832   // T' of the current unit
	scKeys      = 1344  // round keys 8 to 13
	scIn        = 1728  // vectors copied from the run: tags to check, and their step
	scOut       = 1856  // tags to generate, and their step
	scMask      = 1984
	scDiff      = 2048
	scGenerated = 2112 // fields of a group
	scSrc       = 2176 // 64-bit fields copied from the run
	scDst       = 2184
	scDstTable  = 2192
	scFieldsAt  = 2200
	scSplits    = 2208 // address of the next split
	scScatter   = 2216 // 1 if splits are written
	scSplitAt   = 2224 // table offset of the unit before which the next split is processed
	scSpilled   = 2232 // two registers
	scSize      = 2248
)

// kernel is the function being generated. Its input has fields if check is set, its output
// if generate is set.
type kernel struct {
	XTS
	name            string
	sealed          bool // fields are encrypted with their blocks
	check, generate bool
}

// late reports whether the sums are over the output, which is complete one unit later.
func (k *kernel) late() bool {
	if k.sealed {
		return k.Decrypt
	}
	return k.generate
}

// stores reports whether a group of four units has results that are stored late.
func (k *kernel) stores() bool { return k.sealed || k.generate }

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

func (k *kernel) build() {
	TEXT(fmt.Sprintf("%s%d%s", k.name, map[int]int{10: 128, 14: 256}[k.Rounds], k.Tier()), 0, "func(s, r *byte)")
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
	if !k.late() {
		MOVQ(rIn, rGuard)
		MOVQ(Slot, rGuardSlot)
	}
	if k.sealed {
		k.StealTweaks()
	}
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
	k.stripe(k.Spread(At(ScTweaks, Tmp1)), k.group())
	if k.stores() {
		for i := range 4 {
			k.storeLane(i)
		}
	}
	SUBQ(Imm(4), Pending)
	Label("done")
	if k.sealed {
		k.steal()
	} else {
		k.pend()
	}

	ADDQ(Imm(8), rIndex)
	if k.late() {
		MOVQ(rOut, rGuard)
		MOVQ(Slot, rGuardSlot)
	}
	ADDQ(Imm(16), Slot)
	ANDQ(U8(RingMask), Slot)
	DECQ(rCount)
	JNZ(LabelRef("unit"))
	if k.late() {
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
	for i := range 5 {
		VMOVDQU64(Ptr(Tmp1, runIn+64*i), Tmp)
		VMOVDQA64(Tmp, Ptr(Scratch, scIn+64*i))
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
	if k.late() {
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

// group computes the fields of the previous group, and leaves the group's slot in Tmp2. If
// the fields are encrypted, it also encrypts or decrypts the group's last blocks into Chain.
func (k *kernel) group() []func() {
	return append([]func(){PreviousGroup}, k.groupAt(nil)...)
}

// groupAt is group with the slot already in Tmp2. lanes, if not nil, selects the 64-bit
// lanes whose differences count.
func (k *kernel) groupAt(lanes Op) (s []func()) {
	add := func(f ...func()) { s = append(s, f...) }
	if k.sealed && k.Decrypt {
		add(func() { VMOVDQA64(At(ScFix, Tmp2), Chain) })
		add(k.fixRounds()...)
		// The last lane of each of the four blocks, and the sums over the others.
		add(
			func() { VPSHUFB(constant(cReverse), Chain, zField) },
			func() { VPCLMULQDQ(Imm(0x00), constant(cLast), zField, ChainKey) },
			func() { VPCLMULQDQ(Imm(0x11), constant(cLast), zField, zField) },
			func() { VPTERNLOGQ(Imm(Xor3), At(scSums, Tmp2), ChainKey, zField) },
		)
	} else {
		add(func() { VMOVDQA64(At(scSums, Tmp2), zField) })
	}
	add(k.guards(zField, ChainKey)...)
	if k.generate {
		add(k.tags(scOut, ChainKey)...)
		if k.sealed && !k.Decrypt {
			add(
				func() { VPXORQ(At(ScFix, Tmp2), ChainKey, Chain) },
				func() { VPXORQ(zField, Chain, Chain) },
			)
		} else {
			add(
				func() { VPXORQ(zField, ChainKey, ChainKey) },
				func() { VMOVDQA64(ChainKey, Ptr(Scratch, scGenerated)) },
			)
		}
		add(k.nextTags(scOut, ChainKey)...)
	}
	if k.check {
		add(k.tags(scIn, ChainKey)...)
		add(
			func() { VPTERNLOGQ(Imm(Xor3), At(scFields, Tmp2), ChainKey, zField) },
			func() {
				if lanes != nil {
					VPANDQ_Z(Ptr(Scratch, scMask), zField, lanes, zField)
				} else {
					VPANDQ(Ptr(Scratch, scMask), zField, zField)
				}
			},
			func() { VPORQ(Ptr(Scratch, scDiff), zField, zField) },
			func() { VMOVDQA64(zField, Ptr(Scratch, scDiff)) },
		)
		add(k.nextTags(scIn, ChainKey)...)
	}
	if k.sealed && !k.Decrypt {
		add(k.fixRounds()...)
	}
	return s
}

// fixRounds encrypts or decrypts Chain with the tweaks of the last blocks of the group at
// Tmp2.
func (k *kernel) fixRounds() []func() {
	s := []func(){
		func() { VMOVDQA64(At(ScFixTweak, Tmp2), ChainKey) },
		func() { VPTERNLOGQ(Imm(Xor3), k.First(), ChainKey, Chain) },
	}
	for r := 1; r < k.Rounds; r++ {
		s = append(s, func() { Round(k.Decrypt, k.key(r), Chain) })
	}
	return append(s, func() { LastRound(k.Decrypt, ChainKey, Chain) })
}

// storeLane stores the results of unit i of the group at Tmp2: the last AES block, from
// Chain, and the generated field.
func (k *kernel) storeLane(i int) {
	if k.sealed {
		FixStoreLane(i)
	} else {
		MOVQ(At(ScFixOut+16*i, Tmp2), Tmp1)
	}
	if k.generate && !(k.sealed && !k.Decrypt) {
		VMOVQ(Ptr(Scratch, scGenerated+16*i), X0)
		VMOVQ(X0, Ptr(Tmp1, 16))
	}
}

// flush processes the units whose fields no later unit has computed: at most one whole
// group and the units of the last one.
func (k *kernel) flush() {
	Oldest()
	Label("flush")
	if k.check {
		Comment("A mask of two qwords for each remaining unit, at most eight qwords.")
		MOVQ(I32(-1), Tmp1)
		LEAQ(Mem{Base: Pending, Index: Pending, Scale: 1}, rIn)
		BZHIQ(rIn, Tmp1, Tmp1)
		KMOVB(Tmp1.As32(), kGroup)
	}
	Run(k.groupAt(kGroup))
	for i := range 4 {
		if k.stores() {
			k.storeLane(i)
		}
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
		if k.check {
			MOVQ(Ptr(rIn, blockSize), Tmp1)
			MOVQ(Tmp1, At(scFields, Slot))
		}
		VMOVQ(X0, Ptr(rOut, blockSize))
	}
	VMOVHPS(X0, At(ScFix+8, Slot))
	LEAQ(Ptr(rOut, blockSize-16), Tmp1)
	MOVQ(Tmp1, At(ScFixOut, Slot))
	INCQ(Pending)
}

// pend notes a unit whose field is not encrypted: the field to check, or the place of the
// one to generate.
func (k *kernel) pend() {
	if k.check {
		MOVQ(Ptr(rIn, blockSize), Tmp1)
		MOVQ(Tmp1, At(scFields, Slot))
	}
	if k.generate {
		LEAQ(Ptr(rOut, blockSize-16), Tmp1)
		MOVQ(Tmp1, At(ScFixOut, Slot))
	}
	INCQ(Pending)
}

// epilogue clears keys, tweaks and data from registers and scratch memory.
func (k *kernel) epilogue() {
	if k.check {
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
	for off := ScTweaks; off < scIn; off += 64 {
		VMOVDQA64(Z0, Ptr(Scratch, off))
	}
	if k.generate {
		VMOVDQA64(Z0, Ptr(Scratch, scGenerated))
	}
	VZEROUPPER()
	RET()
}
