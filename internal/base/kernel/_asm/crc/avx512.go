package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The AVX-512 kernels have a common structure, of four stages:
//
//	fold     folds four blocks, side by side, into algorithm.sums vectors each
//	quad     combines the sums of the four blocks, a quad, in one or two vectors (quadVectors)
//	fields   computes the fields of eight blocks, in one vector, from the vectors of two quads;
//	         constantPart adds the part of a field that does not depend on the block's data
//	each     stores or compares the fields (eachField)
//
// eights or wovenEights processes a run's blocks in groups of eight, and lastBlocks the last one to
// seven blocks. Blocks that do not begin on cache lines can be folded in other ways: see
// lines_avx512.go and long_avx512.go.
//
// Folding keeps its execution ports busy and depends on no earlier result. The other
// stages are chains of dependent instructions. If such a chain followed its input directly, its
// instructions would wait in the processor's scheduler, fill it, and delay the next blocks.
// Therefore wovenEights interleaves the quad and fields stages of earlier blocks, instruction by
// instruction, with the folding of the next four blocks (weave). It stores or compares fields eight
// blocks later. CRCs by multiplication use eights: interleaving makes them faster by less
// than a tenth, and their code three times as long.

// xor3 is VPTERNLOG's truth table of a ^ b ^ c.
const xor3 = 0x96

// Prefetch distances.
const (
	// For copies, in source and destination. The destination matters most: a store to
	// a line outside of the first-level cache waits for the line, and stores complete
	// in order.
	ahead = 512

	// For short blocks: about four blocks with their fields. These do not begin on
	// cache lines, and a load across two lines takes long if it has to wait for both.
	// For long blocks the hardware prefetcher suffices.
	aheadShort = 2112

	// For the destination of copies by cache lines: two blocks with their fields.
	aheadLines = 1040
)

// algorithm is the part that differs between the kernels.
type algorithm struct {
	name string
	sums int // number of vectors into which a block is folded
	// extraSums is the number of further vectors to which fold adds. finish adds them to the first sums.
	extraSums int
	short     bool // only for blocks shorter than two steps
	// woven is set if the stages after the folding of eight blocks are interleaved with the folding of the next ones
	// (wovenEights). Without it a kernel completes eight blocks before it begins with others.
	woven bool
	// plain is set if there is also a kernel that copies without prefetches.
	plain bool
	// spillsSums is set if folding four blocks takes nearly all registers. The sums of
	// folded blocks are then stored to the stack, and the later stages use four registers at a
	// time. There is no kernel that copies.
	spillsSums bool
	setup      func(k *kernel)
	// fold adds n vectors of data of every block of a set to the sums. load loads
	// vector v of block i. The first constants are at offset disp from the set's
	// table.
	fold func(k *kernel, g *foldSet, disp, n int, load func(v, i int) VecVirtual)
	// factors is the number of constants per vector, for algorithms with a kernel
	// that reads cache lines.
	factors int
	// unit is the alignment of blocks that are read by cache lines: 8 or 4 bytes.
	unit int
	// foldBlock, if not nil, folds the next block of the run, for a kernel that folds
	// long blocks one after the other by cache lines.
	foldBlock func(k *kernel, sums []VecVirtual)
	// reverseBits, if not nil, reverses the bits of data that is added to the sums.
	reverseBits func(k *kernel, z VecVirtual)
	// finish, if not nil, adds the extraSums of a block to its first sums.
	finish func(k *kernel, sums []VecVirtual)
	// quad combines the sums of four blocks in quadVectors() vectors, and passes each to
	// keep. load returns sum v of block b, in a register or in memory.
	quad func(load func(b, v int) Op, keep func(v int, z VecVirtual))
	// fields computes eight fields from the combined sums of two quads, except for the
	// part that constantPart adds. The result is in the order of the blocks if ordered is set.
	// Otherwise the quads alternate: blocks 0 4 1 5 2 6 3 7.
	fields func(k *kernel, four [2]Mem, ordered bool) VecVirtual
	// constantPart adds the remaining part of the next eight fields: tags and the contribution of the seed. It must be called in the
	// order of the blocks.
	constantPart func(k *kernel, z VecVirtual) VecVirtual
}

// kernel is the function being generated.
type kernel struct {
	alg    *algorithm
	run    Register
	stack  Register
	frame  frame
	copies bool

	// byLines is set in kernels that copy short blocks by cache lines of the
	// destination, where blocks with fields seldom begin on one. A store across two
	// lines occupies the first-level cache twice. The price is that the data is loaded
	// twice. Out of the caches that gains half, within them it costs a quarter (measured on Zen 4).
	byLines bool

	// plain is set in kernels that copy long blocks without prefetches.
	plain bool

	zero      VecVirtual
	fix       Op           // tables.fix: the contribution of the seed and the final inversion to every field
	tag, step VecVirtual   // T10-DIF: the tags of eight blocks in native byte order, and their increment for the next eight
	low       Register     // CRCs of 32 bits by maps: a mask of the lower 4 bytes of every 8
	constants []VecVirtual // constants of the algorithm, which setup loads
}

// frame describes the stack frame of a kernel, in bytes from its start on a cache line.
type frame struct {
	sums   int    // sums of four blocks
	quads  [2]int // combined sums of the first and second four of eight blocks
	fields int
	round  int // fields of a round of blocks that are read by cache lines: see lines_avx512.go
	size   int
}

func newFrame(a *algorithm) (f frame) {
	take := func(vectors int) int {
		at := f.size
		f.size += vectors * 64
		return at
	}
	f.sums = take(4 * a.sums)
	f.quads = [2]int{take(a.quadVectors()), take(a.quadVectors())}
	f.fields = take(1)
	f.round = take(8)
	return f
}

func avx512() {
	for _, a := range []*algorithm{t10(), t10Long(), crcFold("crc", false), crcFold("crcMSB", true), crcMaps(), csum()} {
		a.generate("", kernel{})
		if a.spillsSums {
			continue
		}
		a.generate("Copy", kernel{copies: true})
		if a.woven {
			a.generate("CopyToLines", kernel{copies: true, byLines: true})
		}
		if a.plain {
			a.generate("CopyPlain", kernel{copies: true, plain: true})
		}
	}
	crc32c := crcFold("crc32c", false) // as "crc", for blocks whose fields of 4 bytes leave them at multiples of 4
	crc32c.unit = 4
	for _, a := range []*algorithm{t10(), t10LongLines(), crcFold("crc", false), crc32c, crcFold("crcMSB", true)} {
		a.generateLines()
	}
}

func (a *algorithm) generate(suffix string, kind kernel) {
	a.kernel(suffix, kind, func(k *kernel, remainder string) {
		switch {
		case !a.woven:
			k.eights()
		case a.short || kind.byLines || !kind.copies:
			k.wovenEights()
		default: // long blocks are copied one after the other: see eights
			long := label("long")
			CMPQ(mem(k.run, runSize), U32(2*step))
			JGE(LabelRef(long))
			k.wovenEights()
			JMP(LabelRef(remainder))
			Label(long)
			k.eights()
		}
	})
}

// generateLines generates a kernel that reads cache lines. For blocks of 512 bytes it
// requires at least one round, because the other kernel is faster for fewer blocks.
func (a *algorithm) generateLines() {
	a.kernel("Lines", kernel{}, func(k *kernel, remainder string) {
		if a.foldBlock == nil {
			k.rounds()
			CMPQ(mem(k.run, runN), U8(8))
			JLT(LabelRef(remainder))
		}
		k.eights()
	})
}

// kernel generates the function with the name suffix suffix. The caller sets only copies, byLines and plain of
// kind. eights generates the code that processes all groups of eight blocks. At its end, that code falls
// through, or jumps to the label remainder.
func (a *algorithm) kernel(suffix string, kind kernel, eights func(k *kernel, remainder string)) {
	TEXT(a.name+suffix+"AVX512", 0, "func(r *byte)")
	k := &kind
	k.alg, k.frame = a, newFrame(a)
	k.run = Load(Param("r"), GP64())
	stack := GP64()
	LEAQ(AllocLocal(k.frame.size+64), stack)
	ADDQ(U8(63), stack)
	ANDQ(I8(-64), stack)
	k.stack = stack
	if !a.spillsSums {
		zero, fix := ZMM(), ZMM()
		k.zero, k.fix = zero, fix
		VPXORQ(zero, zero, zero)
		VPBROADCASTQ(mem(k.run, runFix), fix)
	}
	a.setup(k)

	remainder, end := label("rest"), label("end")
	CMPQ(mem(k.run, runN), U8(8))
	JLT(LabelRef(remainder))
	eights(k, remainder)
	Label(remainder)
	CMPQ(mem(k.run, runN), U8(0))
	JE(LabelRef(end))
	k.lastBlocks()
	Label(end)
	VZEROUPPER()
	RET()
}

// halves returns two functions that generate code for one half of a group of eight blocks. fold
// folds the half's four blocks with foldFour. quad combines the sums of the half, and stores the
// result in frame.quads[half].
func (k *kernel) halves(foldFour func(sums [][]VecVirtual, other func())) (fold func(half int, other func()), quad func(half int)) {
	if k.alg.spillsSums {
		// Both halves use the same registers and memory: the sums of one are
		// reduced before those of the other are stored.
		sums := k.newSums(4)
		fold = func(_ int, other func()) {
			foldFour(sums, other)
			k.storeSums(sums)
		}
		return fold, k.quadOfStack
	}
	sums := [2][][]VecVirtual{k.newSums(4), k.newSums(4)}
	fold = func(half int, other func()) { foldFour(sums[half], other) }
	return fold, func(half int) {
		k.alg.quad(func(b, v int) Op { return sums[half][b][v] }, k.keepQuad(half))
	}
}

// keepQuad returns the code that stores the combined sums of a half.
func (k *kernel) keepQuad(half int) func(v int, z VecVirtual) {
	return func(v int, z VecVirtual) {
		VMOVDQA64(z, mem(k.stack, k.frame.quads[half]+64*v))
		if k.alg.spillsSums {
			yieldToMain()
		}
	}
}

// storeSums stores the sums of four blocks.
func (k *kernel) storeSums(sums [][]VecVirtual) {
	for b, block := range sums {
		for v := range k.alg.sums {
			VMOVDQA64(block[v], mem(k.stack, k.frame.sums+(b*k.alg.sums+v)*64))
		}
	}
}

// wovenEights processes all groups of eight blocks, at least one. The later stages are
// interleaved with the folding.
func (k *kernel) wovenEights() {
	fold, quad := k.halves(k.foldGroup)
	fields := func() {
		z := k.fields()
		want := load64(k.run, runWant)
		VMOVDQU64(z, mem(want, 0))
		ADDQ(U8(64), mem(k.run, runWant))
	}

	next, last, drain := label("eight"), label("last"), label("later")
	fold(0, nil)
	// Each pass of the loop begins with the first half of its blocks folded; with spillsSums, with both halves folded,
	// because the two share their registers.
	if k.alg.spillsSums {
		fold(1, func() { quad(0) })
		Label(next)
	} else {
		Label(next)
		fold(1, func() { quad(0) })
	}
	SUBQ(U8(8), mem(k.run, runN))
	CMPQ(mem(k.run, runN), U8(8))
	JLT(LabelRef(last))
	if k.alg.spillsSums {
		// The inputs of the fields must be complete when their instructions
		// begin, because these maps wait for the same ports as the next blocks'.
		fold(0, func() { quad(1) })
		fold(1, func() { fields(); quad(0) })
	} else {
		fold(0, func() { quad(1); fields() })
	}
	// The fields of the last eight blocks are still being computed. Store or compare those
	// of the eight before. runGroups counts how many eights have passed.
	INCQ(mem(k.run, runGroups))
	CMPQ(mem(k.run, runGroups), U8(2))
	JB(LabelRef(next))
	eachField(k.run, nil, nil)
	JMP(LabelRef(next))

	Label(last)
	quad(1)
	fields()
	// Store or compare the fields that are left.
	Label(drain)
	eachField(k.run, nil, nil)
	values := load64(k.run, runValues)
	CMPQ(values, mem(k.run, runWant))
	JB(LabelRef(drain))
}

// eights processes all groups of eight blocks, at least one, stage by stage. It is for
// long blocks, in which the later stages take little time. Copies process one block after
// the other, because memory works best with few streams.
func (k *kernel) eights() {
	next := label("eight")
	Label(next)
	for half := range 2 {
		k.foldToStack(nil, !k.copies)
		k.quadOfStack(half)
	}
	z := k.fields()
	want := load64(k.run, runWant)
	VMOVDQU64(z, mem(want, 0))
	ADDQ(U8(64), want)
	MOVQ(want, mem(k.run, runWant))
	eachField(k.run, nil, nil)
	SUBQ(U8(8), mem(k.run, runN))
	CMPQ(mem(k.run, runN), U8(8))
	JGE(LabelRef(next))
}

// lastBlocks processes the last one to seven blocks.
func (k *kernel) lastBlocks() {
	folded := label("folded")
	count := load64(k.run, runN)
	four := GP64()
	MOVQ(U32(4), four)
	CMPQ(count, four)
	CMOVQLT(count, four)
	k.foldToStack(four, !k.copies)
	k.quadOfStack(0)
	count = load64(k.run, runN)
	SUBQ(U8(4), count)
	JLE(LabelRef(folded))
	k.foldToStack(count, false)
	k.quadOfStack(1)
	Label(folded)

	z := k.fields()
	// The mask has a one for each remaining block.
	lanes, mask := GP64(), K()
	count = load64(k.run, runN)
	MOVL(U32(0xFF), lanes.As32())
	BZHIQ(count, lanes, lanes)
	KMOVW(lanes.As32(), mask)
	VMOVDQU64(z, mask, mem(load64(k.run, runWant), 0))
	// The fields are needed at once. A load can forward data from a store that is not
	// complete, but not from a masked store.
	VMOVDQA64(z, mem(k.stack, k.frame.fields))
	values := GP64()
	LEAQ(mem(k.stack, k.frame.fields), values)
	eachField(k.run, values, count)
}

// foldToStack folds count blocks, one to four, or four if count is nil, and stores their sums.
// With fewer than four blocks, the remaining sums keep old values, which result in fields
// that are not used.
func (k *kernel) foldToStack(count GPVirtual, sideBySide bool) {
	a := k.alg
	one, several, done := label("one"), label("several"), label("gathered")
	if count == nil {
		count = GP64()
		MOVQ(U32(4), count)
	}
	if sideBySide && a.foldBlock == nil {
		CMPQ(count, U8(4))
		JNE(LabelRef(several))
		sums := k.newSums(4)
		k.foldGroup(sums, nil)
		k.storeSums(sums)
		JMP(LabelRef(done))
		Label(several)
	}
	to := GP64()
	LEAQ(mem(k.stack, k.frame.sums), to)
	Label(one)
	sums := k.newSums(1)
	if a.foldBlock != nil {
		a.foldBlock(k, sums[0])
	} else {
		k.foldGroup(sums, nil)
	}
	for v := range a.sums {
		VMOVDQA64(sums[0][v], mem(to, v*64))
	}
	ADDQ(U32(a.sums*64), to)
	DECQ(count)
	JNZ(LabelRef(one))
	Label(done)
}

// quadOfStack combines the sums that foldToStack stored.
func (k *kernel) quadOfStack(half int) {
	a := k.alg
	a.quad(func(b, v int) Op {
		sum := mem(k.stack, k.frame.sums+(b*a.sums+v)*64)
		if a.spillsSums {
			return sum
		}
		z := ZMM()
		VMOVDQA64(sum, z)
		return z
	}, k.keepQuad(half))
}

// fields generates the code from the stack's quads to eight complete fields, in order.
func (k *kernel) fields() VecVirtual {
	return k.alg.constantPart(k, k.alg.fields(k, k.quadSums(), true))
}

// quadSums returns the places on the stack of the combined sums of two quads.
func (k *kernel) quadSums() [2]Mem {
	return [2]Mem{mem(k.stack, k.frame.quads[0]), mem(k.stack, k.frame.quads[1])}
}

// newSums returns registers for the sums of n blocks, [block][vector].
func (k *kernel) newSums(n int) (sums [][]VecVirtual) {
	for range n {
		var block []VecVirtual
		for range k.alg.sums + k.alg.extraSums {
			block = append(block, ZMM())
		}
		sums = append(sums, block)
	}
	return sums
}

// quadVectors returns the number of vectors in which the sums of four blocks are combined.
func (a *algorithm) quadVectors() int { return max(1, a.sums/2) }

func xor(x, y, z Op) { VPXORQ(x, y, z) }
func add(x, y, z Op) { VPADDQ(x, y, z) }

// unpack combines the even with the odd lanes of 64 bits: [x0+x1, y0+y1, x2+x3, ...].
func unpack(x, y Op, combine func(x, y, z Op)) VecVirtual {
	even, odd := ZMM(), ZMM()
	later(VPUNPCKLQDQ, y, x, even)
	later(VPUNPCKHQDQ, y, x, odd)
	combine(even, odd, even)
	yieldToMain()
	return even
}

// combineLanes combines the even with the odd lanes of 128 bits: [x0+x1, x2+x3, y0+y1, y2+y3].
func combineLanes(x, y VecVirtual, combine func(x, y, z Op)) VecVirtual {
	even, odd := ZMM(), ZMM()
	later(VSHUFI64X2, U8(0x88), y, x, even)
	later(VSHUFI64X2, U8(0xDD), y, x, odd)
	combine(even, odd, even)
	yieldToMain()
	return even
}
