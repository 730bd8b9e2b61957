package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The AVX-512 kernels have one shape. Four blocks at a time, side by side, are folded
// into sums of some vectors each; the sums of four are brought together in one vector;
// two such vectors, of eight blocks, become eight fields; the fields are stored or
// compared. Where blocks do not begin on cache lines, there are other ways to fold some
// of them: see lines_avx512.go and long_avx512.go.
//
// Folding keeps its execution ports busy and needs nothing that went before. The other
// stages are chains of dependent steps. If they followed their input at once, they
// would wait in the scheduler, fill it up, and keep the next blocks out. So while four
// blocks are folded, the stages of those before are woven in between, instruction by
// instruction, and the fields are looked at one group of eight later still.

// xor3 is VPTERNLOG's truth table of a ^ b ^ c.
const xor3 = 0x96

// How far ahead of their use lines are prefetched.
const (
	// For copies, on both sides. It serves the lines of the destination: a
	// store to a line that is not in the first level waits for it, and stores wait in
	// order.
	ahead = 512

	// For short blocks: about four of them with their fields. These do not begin on
	// cache lines, and a load that spans two lines takes long if it has to wait for
	// both. In long blocks the hardware prefetcher suffices.
	aheadShort = 2112
)

// algorithm is the part in which the kernels differ.
type algorithm struct {
	name  string
	sums  int  // vectors that a block is folded into
	more  int  // vectors of sum besides, while it is folded
	short bool // for blocks of less than two steps only
	setup func(k *kernel)
	// fold adds n vectors of data of every block of a group to the sums. load loads
	// vector v of block i. The constants of the first stand at disp behind the group's
	// table.
	fold func(k *kernel, g *group, disp, n int, load func(v, i int) VecVirtual)
	// factors is how many constants there are for a vector, if there is a kernel that
	// reads by lines.
	factors int
	// unit divides the addresses of all blocks that are read by lines: 8 or 4
	// bytes.
	unit int
	// foldBlock, if there is one, is for a kernel that folds one long block after the
	// other by lines. It folds the next one of the run.
	foldBlock func(k *kernel, sums []VecVirtual)
	// bits, if there is one, turns the bits of data that is added to the sums around.
	bits func(k *kernel, z VecVirtual)
	// finish, if there is one, gets rid of the sums that are not kept.
	finish func(k *kernel, sums []VecVirtual)
	// quad brings the sums of four blocks together in one vector. load loads or names
	// sum v of block b.
	quad func(load func(b, v int) VecVirtual) VecVirtual
	// fields makes eight fields of two such vectors, without what wire adds: in order, or
	// else those of the same place in both beside each other.
	fields func(k *kernel, four [2]Mem, ordered bool) VecVirtual
	// wire adds what the fields of the next eight blocks have besides. It may be called
	// in the order of blocks only.
	wire func(k *kernel, z VecVirtual) VecVirtual
}

// kernel is the function being generated.
type kernel struct {
	alg    *algorithm
	run    Register
	stack  Register
	frame  frame
	copies bool

	zero      VecVirtual
	fix       VecVirtual   // of every field
	tag, step VecVirtual   // of T10-DIF: native tags, their increment by eight blocks
	own       []VecVirtual // of the algorithm
}

// frame is the stack of a kernel, in bytes from its start on a cache line.
type frame struct {
	sums   int    // of four blocks
	quads  [2]int // of the first and second four of eight blocks
	fields int
	round  int // of a round by lines: see lines_avx512.go
	size   int
}

func newFrame(sums int) (f frame) {
	take := func(vectors int) int {
		at := f.size
		f.size += vectors * 64
		return at
	}
	f.sums = take(4 * sums)
	f.quads = [2]int{take(1), take(1)}
	f.fields = take(1)
	f.round = take(8)
	return f
}

func avx512() {
	for _, a := range []*algorithm{t10(), t10Long(), crcFold("crc", false), crcFold("crcMSB", true), csum()} {
		a.generate(false)
		a.generate(true)
	}
	crc32c := crcFold("crc32c", false)
	crc32c.unit = 4
	for _, a := range []*algorithm{t10(), t10LongLines(), crcFold("crc", false), crc32c, crcFold("crcMSB", true)} {
		a.generateLines()
	}
}

func (a *algorithm) generate(copies bool) {
	suffix := ""
	if copies {
		suffix = "Copy"
	}
	a.kernel(suffix, copies, func(k *kernel, rest string) {
		switch {
		case a.more > 0:
			k.eights()
		case a.short || !copies:
			k.wovenEights()
		default:
			long := label("long")
			CMPQ(mem(k.run, runSize), U32(2*step))
			JGE(LabelRef(long))
			k.wovenEights()
			JMP(LabelRef(rest))
			Label(long)
			k.eights()
		}
	})
}

// generateLines makes a kernel that reads by lines. For blocks of 512 bytes there is at
// least one round, as for fewer the way of other blocks is the better one.
func (a *algorithm) generateLines() {
	a.kernel("Lines", false, func(k *kernel, rest string) {
		if a.foldBlock == nil {
			k.rounds()
			CMPQ(mem(k.run, runN), U8(8))
			JLT(LabelRef(rest))
		}
		k.eights()
	})
}

// kernel emits a function. The code of eights does all groups of eight blocks and goes
// on behind itself or at rest.
func (a *algorithm) kernel(suffix string, copies bool, eights func(k *kernel, rest string)) {
	TEXT(a.name+suffix+"AVX512", 0, "func(r *byte)")
	k := &kernel{alg: a, copies: copies, frame: newFrame(a.sums)}
	k.run = Load(Param("r"), GP64())
	stack := GP64()
	LEAQ(AllocLocal(k.frame.size+64), stack)
	ADDQ(U8(63), stack)
	ANDQ(I8(-64), stack)
	k.stack = stack
	k.zero, k.fix = ZMM(), ZMM()
	VPXORQ(k.zero, k.zero, k.zero)
	VPBROADCASTQ(mem(k.run, runFix), k.fix)
	a.setup(k)

	rest, end := label("rest"), label("end")
	CMPQ(mem(k.run, runN), U8(8))
	JLT(LabelRef(rest))
	eights(k, rest)
	Label(rest)
	CMPQ(mem(k.run, runN), U8(0))
	JE(LabelRef(end))
	k.few()
	Label(end)
	VZEROUPPER()
	RET()
}

// halves returns the sums of two groups of four blocks, and the code that reduces those of one to
// where a group of eight is put together.
func (k *kernel) halves() (sums [2][][]VecVirtual, quad func(half int)) {
	sums = [2][][]VecVirtual{k.newSums(4), k.newSums(4)}
	return sums, func(half int) {
		z := k.alg.quad(func(b, v int) VecVirtual { return sums[half][b][v] })
		VMOVDQA64(z, mem(k.stack, k.frame.quads[half]))
	}
}

// wovenEights does as many groups of eight blocks as there are, at least one, with
// the later stages woven into the folding.
func (k *kernel) wovenEights() {
	sums, quad := k.halves()
	fields := func() {
		z := k.fields()
		want := load64(k.run, runWant)
		VMOVDQU64(z, mem(want, 0))
		ADDQ(U8(64), mem(k.run, runWant))
	}

	next, last, later := label("eight"), label("last"), label("later")
	k.foldGroup(sums[0], nil)
	Label(next)
	k.foldGroup(sums[1], func() { quad(0) })
	SUBQ(U8(8), mem(k.run, runN))
	CMPQ(mem(k.run, runN), U8(8))
	JLT(LabelRef(last))
	k.foldGroup(sums[0], func() { quad(1); fields() })
	// The fields of the last group are just being made. Take those of the one before.
	INCQ(mem(k.run, runGroups))
	CMPQ(mem(k.run, runGroups), U8(2))
	JB(LabelRef(next))
	eachField(k.run, nil, nil)
	JMP(LabelRef(next))

	Label(last)
	quad(1)
	fields()
	Label(later)
	eachField(k.run, nil, nil)
	values := load64(k.run, runValues)
	CMPQ(values, mem(k.run, runWant))
	JB(LabelRef(later))
}

// eights does as many groups of eight blocks as there are, at least one, stage after
// stage: for long blocks, in which the later stages do not show. Copies go through one
// block after the other, because memory likes few streams.
func (k *kernel) eights() {
	next := label("eight")
	Label(next)
	for half := range 2 {
		k.gather(nil, !k.copies)
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

// few does the last blocks, one to seven.
func (k *kernel) few() {
	done := label("folded")
	count := load64(k.run, runN)
	four := GP64()
	MOVQ(U32(4), four)
	CMPQ(count, four)
	CMOVQLT(count, four)
	k.gather(four, !k.copies)
	k.quadOfStack(0)
	count = load64(k.run, runN)
	SUBQ(U8(4), count)
	JLE(LabelRef(done))
	k.gather(count, false)
	k.quadOfStack(1)
	Label(done)

	z := k.fields()
	// The mask has a one for each block there is.
	lanes, mask := GP64(), K()
	count = load64(k.run, runN)
	MOVL(U32(0xFF), lanes.As32())
	BZHIQ(count, lanes, lanes)
	KMOVW(lanes.As32(), mask)
	VMOVDQU64(z, mask, mem(load64(k.run, runWant), 0))
	// The fields are needed at once, and a load can take over what a store has not
	// written yet, but not from a store under a mask.
	VMOVDQA64(z, mem(k.stack, k.frame.fields))
	values := GP64()
	LEAQ(mem(k.stack, k.frame.fields), values)
	eachField(k.run, values, count)
}

// gather folds count blocks, one to four, or four if count is nil, and stores their
// sums. Of fewer than four, the sums that are missing remain whatever was there; they
// come out in fields that nobody looks at.
func (k *kernel) gather(count GPVirtual, sideBySide bool) {
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
		for b, block := range sums {
			for v := range a.sums {
				VMOVDQA64(block[v], mem(k.stack, k.frame.sums+(b*a.sums+v)*64))
			}
		}
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

// quadOfStack combines the sums that gather left.
func (k *kernel) quadOfStack(half int) {
	a := k.alg
	z := a.quad(func(b, v int) VecVirtual {
		z := ZMM()
		VMOVDQA64(mem(k.stack, k.frame.sums+(b*a.sums+v)*64), z)
		return z
	})
	VMOVDQA64(z, mem(k.stack, k.frame.quads[half]))
}

func (k *kernel) fields() VecVirtual {
	return k.alg.wire(k, k.alg.fields(k, k.quads(), true))
}

// quads returns where the sums of two times four blocks are.
func (k *kernel) quads() [2]Mem {
	return [2]Mem{mem(k.stack, k.frame.quads[0]), mem(k.stack, k.frame.quads[1])}
}

// newSums returns registers for the sums of n blocks, [block][vector].
func (k *kernel) newSums(n int) (sums [][]VecVirtual) {
	for range n {
		var block []VecVirtual
		for range k.alg.sums + k.alg.more {
			block = append(block, ZMM())
		}
		sums = append(sums, block)
	}
	return sums
}

func xor(x, y, z Op) { VPXORQ(x, y, z) }
func add(x, y, z Op) { VPADDQ(x, y, z) }

// unpack combines the even with the odd lanes of 64 bits: [x0+x1, y0+y1, x2+x3, ...].
func unpack(x, y VecVirtual, combine func(x, y, z Op)) VecVirtual {
	even, odd := ZMM(), ZMM()
	VPUNPCKLQDQ(y, x, even)
	rest()
	VPUNPCKHQDQ(y, x, odd)
	rest()
	combine(even, odd, even)
	rest()
	return even
}

// lanes combines the even with the odd lanes of 128 bits: [x0+x1, x2+x3, y0+y1, y2+y3].
func lanes(x, y VecVirtual, combine func(x, y, z Op)) VecVirtual {
	even, odd := ZMM(), ZMM()
	VSHUFI64X2(U8(0x88), y, x, even)
	rest()
	VSHUFI64X2(U8(0xDD), y, x, odd)
	rest()
	combine(even, odd, even)
	rest()
	return even
}
