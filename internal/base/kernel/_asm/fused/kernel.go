package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The kernel: AES-XTS in units of 520 bytes, which are a block of 512 and its T10-DIF.
//
// The shape is that of the kernel of package aesxts, for the one size of unit: 32 blocks
// of AES in flight, one round in each cycle on port 0, and everything else between the
// rounds, on port 5. A unit ends with the theft of 8 bytes, the field. The block that
// is encrypted last waits in a ring until four of them are done at once, in some
// later unit.
//
// That leaves the guard its time. When encrypting, the sum over a block is taken
// while the block is encrypted, and made a field when the block that takes the
// field in is encrypted, up to six units later. When decrypting, the sum is taken one
// unit later, without the last 16 bytes, which are decrypted by then or later still, with
// three others; the field is computed after that and compared.
//
// Tweaks are kept as T' = T ^ L, L being the last round key; see package aesxts.

type vec = VecPhysical

var (
	zState = [8]vec{Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7}
	zTweak = [8]vec{Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15}
	// zKey are round keys; the first and the last are in c and T'. Those from 8 on are in
	// memory, and in zLateKey when their round comes.
	zKey     = [8]vec{1: Z16, Z17, Z18, Z19, Z20, Z21, Z22}
	zLateKey = Z23
	// Of the sums:
	zPlace, zSum, zProduct, zData = Z24, Z25, Z26, Z27
	zField                        = Z28 // decrypting

	zTmp      = Z29
	zChainKey = Z30
	zChain    = Z31
	zAll      = []vec{Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15,
		Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23, Z24, Z25, Z26, Z27, Z28, Z29, Z30, Z31}

	rSched     = RAX // *schedule
	rSlot      = RBX // the current unit's slot in the rings
	rCount     = RCX // units left, the current one included
	rIn        = RDX // the current unit
	rOut       = R8
	rIndex     = RSI // the current unit's place in the tables: 8 times its number
	rConsts    = RDI
	rScratch   = R9  // 64-byte aligned
	rPending   = R10 // units whose last block waits
	rGuardSlot = R11 // slot of the block that is summed up
	rGuard     = R12 // that block
	rSrcTable  = R13
	rTmp       = R14
	rTmp2      = R15
	kThree     = K1 // the first three lanes, in qwords
	kGroup     = K2 // the lanes of the group that is flushed, in qwords
)

// Scratch memory: offsets from rScratch. A ring has eight slots of 16 bytes, for units
// modulo 8: two groups of four.
const (
	scNumbers  = 0    // the next four tweak numbers to be encrypted
	scTweaks   = 64   // ring: encrypted tweak numbers
	scFix      = 192  // ring: blocks that are encrypted last; encrypting, without the field
	scFixTweak = 320  // ring: their T'
	scFixOut   = 448  // ring: where they go
	scSums     = 576  // ring: the sums
	scFields   = 704  // ring: decrypting, the fields that were decrypted
	scStripe   = 832  // the current unit's T'
	scKeys     = 1344 // round keys 8 to 13
	scTags     = 1728 // vectors of the run
	scStep     = 1792
	scMask     = 1856
	scDiff     = 1920
	scSrc      = 1984 // single qwords of the run
	scDst      = 1992
	scDstTable = 2000
	scFieldsAt = 2008
	scSplits   = 2016 // the next split
	scScatter  = 2024 // whether splits are written
	scSplitAt  = 2032 // the unit before which the next split has its turn, as rIndex
	scSpilled  = 2040 // two registers
	scSize     = 2056
)

const (
	ringMask  = 127
	ringGroup = 64
)

type kernel struct {
	rounds     int
	decrypt    bool
	keys, wide int // offsets in schedule
}

func (k *kernel) name() string {
	dir := "encrypt"
	if k.decrypt {
		dir = "decrypt"
	}
	return fmt.Sprintf("%s%dAVX512", dir, map[int]int{10: 128, 14: 256}[k.rounds])
}

// first is c, step(m) the constant of a step by 8m, key the round key.
func (k *kernel) first() Mem     { return mem(rSched, k.wide+wideFirst) }
func (k *kernel) step(m int) Mem { return mem(rSched, k.wide+wideStep+64*(m-1)) }
func (k *kernel) key(r int) Op {
	if r < len(zKey) {
		return zKey[r]
	}
	return mem(rScratch, scKeys+64*(r-len(zKey)))
}

// byIndex is the current unit's entry of a table, or that of the unit n further.
func byIndex(table Register, n int) Mem {
	return Mem{Base: table, Index: rIndex, Scale: 1, Disp: 8 * n}
}

// at is a memory operand in a ring.
func at(ring int, slot Register) Mem {
	return Mem{Base: rScratch, Index: slot, Scale: 1, Disp: ring}
}

func (k *kernel) generate() {
	TEXT(k.name(), 0, "func(s, r *byte)")
	frame := AllocLocal(scSize + 64)
	LEAQ(frame, rScratch)
	ADDQ(Imm(63), rScratch)
	ANDQ(I8(-64), rScratch)
	k.prologue()

	Label("unit")
	CMPQ(rIndex, mem(rScratch, scSplitAt))
	JEQ(LabelRef("split"))
	Label("unsplit")
	MOVQ(byIndex(rSrcTable, 0), rIn)
	ADDQ(mem(rScratch, scSrc), rIn)
	MOVQ(mem(rScratch, scDstTable), rOut)
	MOVQ(byIndex(rOut, 0), rOut)
	ADDQ(mem(rScratch, scDst), rOut)
	if !k.decrypt {
		MOVQ(rIn, rGuard)
		MOVQ(rSlot, rGuardSlot)
	}
	k.stealTweaks()
	k.prefetch()

	Comment("What is done between the rounds depends on the unit's place in its group.")
	LEAQ(mem(rSlot, 16), rTmp)
	ANDQ(U8(ringMask), rTmp)
	MOVQ(rSlot, rTmp2)
	ANDQ(U8(ringGroup-1), rTmp2)
	JZ(LabelRef("first"))
	CMPQ(rTmp2, Imm(32))
	JNE(LabelRef("plain"))
	Comment("In the third unit: that is late enough for what the last of the group before it has stored to be in the cache.")
	CMPQ(rPending, Imm(6))
	JGE(LabelRef("fix"))
	Label("plain")
	k.stripe(k.spread(at(scTweaks, rTmp)), nil)
	JMP(LabelRef("done"))
	Label("first")
	CMPQ(rCount, Imm(4))
	JLE(LabelRef("plain"))
	k.stripe(k.spread(at(scTweaks, rTmp)), k.tweakChain())
	k.nextNumbers()
	JMP(LabelRef("done"))
	Label("fix")
	k.stripe(k.spread(at(scTweaks, rTmp)), k.fixChain())
	k.fixStore()
	Label("done")
	k.steal()

	ADDQ(Imm(8), rIndex)
	if k.decrypt {
		MOVQ(rOut, rGuard)
		MOVQ(rSlot, rGuardSlot)
	}
	ADDQ(Imm(16), rSlot)
	ANDQ(U8(ringMask), rSlot)
	DECQ(rCount)
	JNZ(LabelRef("unit"))
	if k.decrypt {
		run(k.sum())
	}
	k.flush()
	k.epilogue()
	k.split()
}

// prologue loads the keys and the run, and computes the first unit's tweaks.
func (k *kernel) prologue() {
	Load(Param("s"), rSched)
	Load(Param("r"), rTmp)
	MOVQ(mem(rTmp, runLo), rIn)
	MOVQ(mem(rTmp, runHi), rOut)
	for i := range 4 {
		VMOVQ(rIn, X0)
		VPINSRQ(Imm(1), rOut, X0, X0)
		if i == 0 {
			VMOVDQA64(Z0, zChain)
		} else {
			VINSERTI32X4(Imm(uint64(i)), X0, zChain, zChain)
		}
		ADDQ(Imm(1), rIn)
		ADCQ(Imm(0), rOut)
	}
	XORQ(rSlot, rSlot)
	MOVQ(mem(rTmp, runConsts), rConsts)
	run(k.tweakChainOf(nil))
	for i := range 4 {
		MOVQ(rIn, mem(rScratch, scNumbers+16*i))
		MOVQ(rOut, mem(rScratch, scNumbers+16*i+8))
		ADDQ(Imm(1), rIn)
		ADCQ(Imm(0), rOut)
	}
	for r := 1; r < k.rounds; r++ {
		if r < len(zKey) {
			VBROADCASTI32X4(mem(rSched, k.keys+16*r), zKey[r])
		} else {
			VBROADCASTI32X4(mem(rSched, k.keys+16*r), zTmp)
			VMOVDQA64(zTmp, k.key(r).(Mem))
		}
	}
	for i, off := range []int{runTags, runStep, runMask} {
		VMOVDQU64(mem(rTmp, off), zTmp)
		VMOVDQA64(zTmp, mem(rScratch, scTags+64*i))
	}
	Comment("Halves of slots that are not written must be zero.")
	VPXORQ(zTmp, zTmp, zTmp)
	VMOVDQA64(zTmp, mem(rScratch, scDiff))
	for off := scFix; off < scFixTweak; off += 64 {
		VMOVDQA64(zTmp, mem(rScratch, off))
	}
	for off := scFields; off < scStripe; off += 64 {
		VMOVDQA64(zTmp, mem(rScratch, off))
	}
	MOVQ(U32(0x3F), rIn)
	KMOVQ(rIn, kThree)
	MOVQ(mem(rTmp, runSrcTable), rSrcTable)
	for i, off := range []int{runSrc, runDst, runDstTable, runFields, runSplits, runScatter} {
		MOVQ(mem(rTmp, off), rIn)
		MOVQ(rIn, mem(rScratch, scSrc+8*i))
	}
	MOVQ(mem(rTmp, runSplits), rIn)
	MOVQ(mem(rIn, splitAt), rIn)
	MOVQ(rIn, mem(rScratch, scSplitAt))
	XORQ(rIndex, rIndex)
	MOVQ(mem(rTmp, runN), rCount)
	if k.decrypt {
		Comment("Before the first block there is none to sum up: any memory will do, and a slot that is written again before its use.")
		MOVQ(mem(rSrcTable, 0), rGuard)
		ADDQ(mem(rScratch, scSrc), rGuard)
		MOVQ(U32(7*16), rGuardSlot)
	}
	XORQ(rPending, rPending)
	run(k.spread(mem(rScratch, scTweaks)))
}

// nextNumbers adds 4 to each tweak number.
func (k *kernel) nextNumbers() {
	for i := range 4 {
		ADDQ(Imm(4), mem(rScratch, scNumbers+16*i))
		ADCQ(Imm(0), mem(rScratch, scNumbers+16*i+8))
	}
}

// tweakChain encrypts the four numbers of scNumbers for the next group.
func (k *kernel) tweakChain() []func() {
	return append([]func(){func() { VMOVDQA64(mem(rScratch, scNumbers), zChain) }},
		k.tweakChainOf(func() { MOVQ(rSlot, rTmp2); XORQ(Imm(ringGroup), rTmp2) })...)
}

// tweakChainOf encrypts zChain with key2 into the ring, at rTmp2 if slot sets it.
func (k *kernel) tweakChainOf(slot func()) (s []func()) {
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
			VMOVDQA64(zChain, mem(rScratch, scTweaks))
		} else {
			slot()
			VMOVDQA64(zChain, at(scTweaks, rTmp2))
		}
	})
}

// fixChain encrypts the previous group's last blocks, with their fields, into zChain, and
// leaves the group's slot in rTmp2. Decrypting, it computes the fields after that
// and adds up how they differ.
func (k *kernel) fixChain() []func() {
	return append([]func(){
		func() { MOVQ(rSlot, rTmp2); ANDQ(Imm(ringGroup), rTmp2); XORQ(Imm(ringGroup), rTmp2) },
	}, k.fixChainAt(nil)...)
}

// fixChainAt is fixChain with the slot in rTmp2 already. lanes, if not nil, are the
// qwords of which the differences count.
func (k *kernel) fixChainAt(lanes Op) (s []func()) {
	if k.decrypt {
		s = append(s, func() { VMOVDQA64(at(scFix, rTmp2), zChain) })
	} else {
		s = append(s, func() { VMOVDQA64(at(scSums, rTmp2), zChain) })
		s = append(s, k.fields(zChain, zChainKey)...)
		s = append(s, func() { VPTERNLOGQ(Imm(xor3), at(scFix, rTmp2), zChainKey, zChain) })
		s = append(s, k.nextTags(zChainKey)...)
	}
	s = append(s,
		func() { VMOVDQA64(at(scFixTweak, rTmp2), zChainKey) },
		func() { VPTERNLOGQ(Imm(xor3), k.first(), zChainKey, zChain) },
	)
	for r := 1; r < k.rounds; r++ {
		s = append(s, func() { k.round(k.key(r), zChain) })
	}
	s = append(s, func() { k.roundLast(zChainKey, zChain) })
	if !k.decrypt {
		return s
	}
	// The last lane of each of the four blocks, and the sums of the others.
	s = append(s,
		func() { VPSHUFB(constant(cReverse), zChain, zField) },
		func() { VPCLMULQDQ(Imm(0x00), constant(cLast), zField, zChainKey) },
		func() { VPCLMULQDQ(Imm(0x11), constant(cLast), zField, zField) },
		func() { VPTERNLOGQ(Imm(xor3), at(scSums, rTmp2), zChainKey, zField) },
	)
	s = append(s, k.fields(zField, zChainKey)...)
	s = append(s, func() { VPTERNLOGQ(Imm(xor3), at(scFields, rTmp2), zChainKey, zField) })
	s = append(s, k.nextTags(zChainKey)...)
	return append(s,
		func() {
			if lanes != nil {
				VPANDQ_Z(mem(rScratch, scMask), zField, kGroup, zField)
			} else {
				VPANDQ(mem(rScratch, scMask), zField, zField)
			}
		},
		func() { VPORQ(mem(rScratch, scDiff), zField, zField) },
		func() { VMOVDQA64(zField, mem(rScratch, scDiff)) },
	)
}

// fixStore stores the four blocks of zChain.
func (k *kernel) fixStore() {
	for i := range 4 {
		k.fixStoreLane(i)
	}
	SUBQ(Imm(4), rPending)
}

func (k *kernel) fixStoreLane(i int) {
	MOVQ(at(scFixOut+16*i, rTmp2), rTmp)
	VEXTRACTI32X4(Imm(uint64(i)), zChain, X0)
	VMOVDQU(X0, mem(rTmp, 0))
}

// flush handles the last blocks that no later unit has taken along: at most one whole
// group and the units of the last one.
func (k *kernel) flush() {
	Comment("The oldest is the first of its group.")
	MOVQ(rPending, rTmp2)
	SHLQ(Imm(4), rTmp2)
	NEGQ(rTmp2)
	ADDQ(rSlot, rTmp2)
	ANDQ(U8(ringMask), rTmp2)
	Label("flush")
	if k.decrypt {
		Comment("A mask of two qwords for each unit left, eight at most.")
		MOVQ(I32(-1), rTmp)
		LEAQ(Mem{Base: rPending, Index: rPending, Scale: 1}, rIn)
		BZHIQ(rIn, rTmp, rTmp)
		KMOVB(rTmp.As32(), kGroup)
	}
	run(k.fixChainAt(kGroup))
	for i := range 4 {
		k.fixStoreLane(i)
		DECQ(rPending)
		JZ(LabelRef("flushed"))
	}
	XORQ(Imm(ringGroup), rTmp2)
	JMP(LabelRef("flush"))
	Label("flushed")
}

// spread sets the eight tweak registers to T', T'*x, ... T'*x^31 for the T in memory.
func (k *kernel) spread(tweak Mem) (n []func()) {
	t, b, c := zTweak[2], zTweak[3], zTmp
	n = append(n, func() { VBROADCASTI32X4(tweak, t) })
	for j := range 2 {
		d, power := zTweak[j], constant(cPowers+64*j)
		n = append(n,
			func() { VPCLMULQDQ(Imm(0x01), power, t, b) },           // hi * x^s
			func() { VPCLMULQDQ(Imm(0x00), power, t, d) },           // lo * x^s
			func() { VPCLMULQDQ(Imm(0x01), constant(cPoly), b, c) }, // overflow * 0x87
			func() { VPSLLDQ(Imm(8), b, b) },                        // b * x^64
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

// multiply sets d to t*x^8m, of T' to T'.
func (k *kernel) multiply(t, d, tmp vec, m int) []func() {
	return []func(){
		func() { VPSRLDQ(Imm(uint64(16-m)), t, tmp) },
		func() { VPCLMULQDQ(Imm(0x00), constant(cPoly), tmp, tmp) },
		func() { VPSLLDQ(Imm(uint64(m)), t, d) },
		func() { VPTERNLOGQ(Imm(xor3), k.step(m), tmp, d) },
	}
}

func (k *kernel) round(key Op, s vec) {
	if k.decrypt {
		VAESDEC(key, s, s)
	} else {
		VAESENC(key, s, s)
	}
}

func (k *kernel) roundLast(key Op, s vec) {
	if k.decrypt {
		VAESDECLAST(key, s, s)
	} else {
		VAESENCLAST(key, s, s)
	}
}

// stripe handles a block. Between its rounds stand next, which computes the tweaks of
// the unit after it, chain, which is a chain of rounds, and the sum.
func (k *kernel) stripe(next, chain []func()) {
	saved := func(i int) Mem { return mem(rScratch, scStripe+64*i) }
	for i, s := range zState {
		VMOVDQU64(mem(rIn, 64*i), s)
		VPTERNLOGQ(Imm(xor3), k.first(), zTweak[i], s)
		VMOVDQA64(zTweak[i], saved(i))
	}
	sum := k.sum()
	slots := 8 * (k.rounds - 1)
	for i := range slots {
		key := k.key(1 + i/8)
		if m, late := key.(Mem); late {
			if key = zLateKey; i%8 == 0 {
				VMOVDQA64(m, zLateKey)
			}
		}
		k.round(key, zState[i%8])
		share(next, i, slots)
		share(chain, i, slots)
		share(sum, i, slots)
	}
	for i, s := range zState {
		k.roundLast(saved(i), s)
		VMOVDQU64(s, mem(rOut, 64*i))
	}
}

// prefetch asks for the unit after the next one, which can be anywhere. Behind the last
// unit of a run the table holds what it held before, or is followed by other things; a
// prefetch from there does no harm.
func (k *kernel) prefetch() {
	MOVQ(byIndex(rSrcTable, 2), rTmp)
	ADDQ(mem(rScratch, scSrc), rTmp)
	for i := 0; i < blockSize; i += 64 {
		PREFETCHT0(mem(rTmp, i))
	}
}

// stealTweaks prepares the theft: the tweak of the block that is encrypted last goes to
// the ring.
func (k *kernel) stealTweaks() {
	run(k.multiply(zTweak[0], zTmp, zChainKey, 4))
	VMOVDQA64(zTmp, zState[0])
	if !k.decrypt {
		VMOVDQA(X0, at(scFixTweak, rSlot))
		return
	}
	Comment("The last block and the field swap their tweaks.")
	VEXTRACTI32X4(Imm(3), zTweak[7], at(scFixTweak, rSlot))
	VINSERTI32X4(Imm(3), X0, zTweak[7], zTweak[7])
}

// steal takes the last block in zState[7] apart: its head is the unit's end, and the
// field takes the head's place.
func (k *kernel) steal() {
	VEXTRACTI32X4(Imm(3), zState[7], X0)
	if k.decrypt {
		MOVQ(mem(rIn, blockSize), rTmp)
		MOVQ(rTmp, at(scFix, rSlot))
		VMOVQ(X0, at(scFields, rSlot))
		MOVQ(mem(rScratch, scFieldsAt), rTmp)
		VMOVQ(X0, byIndex(rTmp, 0))
	} else {
		VMOVQ(X0, mem(rOut, blockSize))
	}
	VMOVHPS(X0, at(scFix+8, rSlot))
	LEAQ(mem(rOut, blockSize-16), rTmp)
	MOVQ(rTmp, at(scFixOut, rSlot))
	INCQ(rPending)
}

// epilogue leaves no key, tweak or data behind.
func (k *kernel) epilogue() {
	if k.decrypt {
		Comment("The differences of all four lanes.")
		VMOVDQA64(mem(rScratch, scDiff), Z0)
		VEXTRACTI64X4(Imm(1), Z0, Y1)
		VPORQ(Y1, Y0, Y0)
		VEXTRACTI32X4(Imm(1), Y0, X1)
		VPOR(X1, X0, X0)
		Load(Param("r"), rTmp)
		VMOVQ(X0, mem(rTmp, runDiff))
	}
	for _, z := range zAll {
		VPXORQ(z, z, z)
	}
	for off := scTweaks; off < scTags; off += 64 {
		VMOVDQA64(Z0, mem(rScratch, off))
	}
	VZEROUPPER()
	RET()
}
