package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The AVX-512 kernels have one shape. Four blocks at a time, side by side, are folded
// into sums of some vectors each; the sums of four are brought together in one vector;
// two such vectors, of eight blocks, become eight fields; the fields are stored or
// compared.
//
// Folding keeps its execution ports busy and needs nothing that went before. The other
// stages are chains of dependent steps. If they followed their input at once, they
// would wait in the scheduler, fill it up, and keep the next blocks out. So each stage
// works on what the one before left a turn ago: while blocks 8 to 11 are folded, those
// before are brought together, and so on. What is under way is kept in memory.

// xor3 is VPTERNLOG's truth table of a ^ b ^ c.
const xor3 = 0x96

// ahead is how far ahead of its use a line is prefetched, on both sides of a copy. The
// lines of the destination are what it is for: a store to a line that is not in the
// first level waits for it, and stores wait in order.
const ahead = 512

// algorithm is what tells the kernels apart.
type algorithm struct {
	name  string
	sums  int // vectors that a block is folded into
	more  int // vectors of sum besides, while it is folded
	setup func(k *kernel)
	// fold adds vectors of data, [vector][block], already loaded, to the sums. The
	// constants of the first stand at disp behind the group's table.
	fold func(k *kernel, g *group, disp int, data [][]VecVirtual)
	// finish, if there is one, gets rid of the sums that are not stored.
	finish func(k *kernel, sums []VecVirtual)
	// quad brings the sums of four blocks, [block][vector], together in one vector.
	quad func(sums [][]VecVirtual) VecVirtual
	// fields makes eight fields of two such vectors.
	fields func(k *kernel, four [2]Mem) VecVirtual
}

// kernel is the function being generated.
type kernel struct {
	run    Register
	copies bool

	zero      VecVirtual
	fix       VecVirtual   // of every field
	tag, step VecVirtual   // of T10-DIF: native tags, their increment by eight blocks
	own       []VecVirtual // of the algorithm
}

// group is one or more blocks that are folded side by side.
type group struct {
	n        int
	src, dst *rows
	table    Register       // constants of the place that src is at
	sums     [][]VecVirtual // [block][vector]
}

func avx512() {
	for _, a := range []*algorithm{t10(), t10Long(), crcFold("crc", false), crcFold("crcMSB", true), csum()} {
		a.generate(false)
		a.generate(true)
	}
}

// The stack of a kernel, in bytes from its start on a cache line.
type frame struct {
	sums   [2]int // of four blocks, of the first and second half of a group of eight
	quads  [2]int // the same, brought together
	fields int    // of the last group
	size   int
}

func (a *algorithm) frame() (f frame) {
	take := func(vectors int) int {
		at := f.size
		f.size += vectors * 64
		return at
	}
	f.sums = [2]int{take(4 * a.sums), take(4 * a.sums)}
	f.quads = [2]int{take(1), take(1)}
	f.fields = take(1)
	return f
}

func (a *algorithm) generate(copies bool) {
	name := a.name
	if copies {
		name += "Copy"
	}
	TEXT(name+"AVX512", 0, "func(r *byte)")
	k := &kernel{copies: copies}
	k.run = Load(Param("r"), GP64())

	f := a.frame()
	stack := GP64()
	LEAQ(AllocLocal(f.size+64), stack)
	ADDQ(U8(63), stack)
	ANDQ(I8(-64), stack)
	k.zero, k.fix = ZMM(), ZMM()
	VPXORQ(k.zero, k.zero, k.zero)
	VPBROADCASTQ(mem(k.run, runFix), k.fix)
	a.setup(k)

	quad := func(half int) {
		var sums [][]VecVirtual
		for b := range 4 {
			var block []VecVirtual
			for v := range a.sums {
				z := ZMM()
				VMOVDQA64(mem(stack, f.sums[half]+(b*a.sums+v)*64), z)
				block = append(block, z)
			}
			sums = append(sums, block)
		}
		VMOVDQA64(a.quad(sums), mem(stack, f.quads[half]))
	}
	fields := func() VecVirtual {
		return a.fields(k, [2]Mem{mem(stack, f.quads[0]), mem(stack, f.quads[1])})
	}
	// unless emits body behind a test of the number of groups that are complete.
	unless := func(groups int, body func()) {
		skip := label("skip")
		CMPQ(mem(k.run, runGroups), U8(groups))
		JB(LabelRef(skip))
		body()
		Label(skip)
	}

	eight, last := label("eight"), label("last")
	Label(eight)
	count, n := GP64(), load64(k.run, runN)
	MOVQ(U32(8), count) // blocks of this group of eight
	CMPQ(n, count)
	CMOVQLT(n, count)
	SUBQ(count, n)
	MOVQ(n, mem(k.run, runN))
	MOVQ(count, mem(k.run, runCount))
	four, none := GP64(), GP64()
	MOVQ(U32(4), four)
	CMPQ(count, four)
	CMOVQLT(count, four)

	a.gather(k, four, stack, f.sums[0])
	unless(1, func() { quad(1) })
	unless(2, func() { eachField(k.run, nil, nil) })
	MOVQ(mem(k.run, runCount), none)
	SUBQ(U8(4), none)
	noSecond := label("second")
	JLE(LabelRef(noSecond))
	a.gather(k, none, stack, f.sums[1])
	Label(noSecond)
	unless(1, func() {
		want := load64(k.run, runWant)
		VMOVDQU64(fields(), mem(want, 0))
		ADDQ(U8(64), want)
		MOVQ(want, mem(k.run, runWant))
	})
	quad(0)
	INCQ(mem(k.run, runGroups))
	CMPQ(mem(k.run, runN), U8(0))
	JNE(LabelRef(eight))

	Label(last)
	quad(1)
	unless(2, func() { eachField(k.run, nil, nil) })
	field := fields()
	// The mask has a one for each block there is.
	lanes, mask := GP64(), K()
	count = load64(k.run, runCount)
	MOVL(U32(0xFF), lanes.As32())
	BZHIQ(count, lanes, lanes)
	KMOVW(lanes.As32(), mask)
	VMOVDQU64(field, mask, mem(load64(k.run, runWant), 0))
	// These fields are needed at once, and a load can take over what a store has not
	// written yet, but not from a store under a mask.
	VMOVDQA64(field, mem(stack, f.fields))
	values := GP64()
	LEAQ(mem(stack, f.fields), values)
	eachField(k.run, values, count)

	VZEROUPPER()
	RET()
}

// gather folds count blocks, one to four, and stores their sums. Of fewer than four,
// the sums that are missing remain whatever was there; they come out in fields that
// nobody looks at.
func (a *algorithm) gather(k *kernel, count, stack Register, sums int) {
	few, one, done := label("few"), label("one"), label("gathered")
	if !k.copies {
		CMPQ(count, U8(4))
		JNE(LabelRef(few))
		for b, block := range a.foldGroup(k, 4) {
			for v, s := range block {
				VMOVDQA64(s, mem(stack, sums+(b*a.sums+v)*64))
			}
		}
		JMP(LabelRef(done))
	}
	Label(few)
	to := GP64()
	LEAQ(mem(stack, sums), to)
	Label(one)
	for v, s := range a.foldGroup(k, 1)[0] {
		VMOVDQA64(s, mem(to, v*64))
	}
	ADDQ(U32(a.sums*64), to)
	DECQ(count)
	JNZ(LabelRef(one))
	Label(done)
}

// foldGroup folds n blocks, moves the run's src and dst behind them and returns the
// sums, [block][vector].
func (a *algorithm) foldGroup(k *kernel, n int) [][]VecVirtual {
	g := &group{n: n}
	g.src = newRows(k.run, runSrc, runSrcStride, n)
	if k.copies {
		g.dst = newRows(k.run, runDst, runDstStride, n)
	}
	g.table = load64(k.run, runTable)
	for range n {
		var s []VecVirtual
		for range a.sums + a.more {
			z := ZMM()
			VMOVDQA64(k.zero, z)
			s = append(s, z)
		}
		g.sums = append(g.sums, s)
	}

	// Blocks are gone through in steps of 512 bytes without a branch, which is all of
	// the most common block, then in single vectors.
	left := load64(k.run, runSize)
	long, short, single, tail, end := label("long"), label("short"), label("vector"), label("tail"), label("end")
	SUBQ(U32(step), left)
	JLT(LabelRef(short))
	Label(long)
	for disp := 0; disp < step; disp += 128 {
		a.fold(k, g, disp, [][]VecVirtual{k.read(g, disp, nil), k.read(g, disp+64, nil)})
	}
	g.advance(step)
	SUBQ(U32(step), left)
	JGE(LabelRef(long))

	Label(short)
	ADDQ(U32(step-64), left)
	JLT(LabelRef(tail))
	Label(single)
	a.fold(k, g, 0, [][]VecVirtual{k.read(g, 0, nil)})
	g.advance(64)
	SUBQ(U8(64), left)
	JGE(LabelRef(single))

	Label(tail)
	ADDQ(U8(64), left)
	JZ(LabelRef(end))
	// A last part of less than a vector, in units of 8 bytes: the lanes behind it are
	// not touched and count as zeros, which add nothing.
	SHRQ(U8(3), left)
	lanes, mask := GP64(), K()
	MOVL(U32(0xFF), lanes.As32())
	BZHIQ(left, lanes, lanes)
	KMOVW(lanes.As32(), mask)
	a.fold(k, g, 0, [][]VecVirtual{k.read(g, 0, mask)})
	Label(end)

	g.src.next()
	if k.copies {
		g.dst.next()
	}
	for b := range g.sums {
		if a.finish != nil {
			a.finish(k, g.sums[b])
		}
		g.sums[b] = g.sums[b][:a.sums]
	}
	return g.sums
}

// step is the bytes of a block that one turn of the unrolled loop takes.
const step = 512

// rows addresses the same place in up to four blocks, one stride apart. Where the
// first block begins stays in the run, for want of registers.
type rows struct {
	run             Register
	base            int      // offset of the first block's address in the run
	at              Register // in the first block
	stride, stride3 Register
	n               int
}

func newRows(run Register, base, stride, n int) *rows {
	r := &rows{run: run, base: base, at: load64(run, base), stride: load64(run, stride), n: n}
	if n > 3 {
		s := GP64()
		LEAQ(Mem{Base: r.stride, Index: r.stride, Scale: 2}, s)
		r.stride3 = s
	}
	return r
}

func (r *rows) mem(i, disp int) Mem {
	switch i {
	case 0:
		return mem(r.at, disp)
	case 3:
		return idx(r.at, r.stride3, disp)
	}
	return Mem{Base: r.at, Index: r.stride, Scale: uint8(i), Disp: disp}
}

// next moves the run on to the first block that is not in r.
func (r *rows) next() {
	base := load64(r.run, r.base)
	LEAQ(Mem{Base: base, Index: r.stride, Scale: uint8(r.n)}, base)
	MOVQ(base, mem(r.run, r.base))
}

// advance moves all places of the group on by n bytes.
func (g *group) advance(n int) {
	for _, r := range []*rows{g.src, g.dst} {
		if r != nil {
			ADDQ(U32(n), r.at)
		}
	}
	ADDQ(U32(n), g.table)
}

// read loads a vector of every block of g and copies it, if the kernel copies. A
// mask, if there is one, limits both.
func (k *kernel) read(g *group, disp int, mask Register) []VecVirtual {
	data := make([]VecVirtual, g.n)
	for i := range data {
		data[i] = ZMM()
		if k.copies && mask == nil {
			PREFETCHT0(g.src.mem(i, disp+ahead))
			PREFETCHT0(g.dst.mem(i, disp+ahead))
		}
		if mask == nil {
			VMOVDQU64(g.src.mem(i, disp), data[i])
		} else {
			VMOVDQU64_Z(g.src.mem(i, disp), mask, data[i])
		}
		if k.copies && mask == nil {
			VMOVDQU64(data[i], g.dst.mem(i, disp))
		} else if k.copies {
			VMOVDQU64(data[i], mask, g.dst.mem(i, disp))
		}
	}
	return data
}

// unpack combines the even with the odd lanes of 64 bits: [x0+x1, y0+y1, x2+x3, ...].
func unpack(x, y VecVirtual, combine func(x, y, z Op)) VecVirtual {
	even, odd := ZMM(), ZMM()
	VPUNPCKLQDQ(y, x, even)
	VPUNPCKHQDQ(y, x, odd)
	combine(even, odd, even)
	return even
}

// lanes combines the even with the odd lanes of 128 bits: [x0+x1, x2+x3, y0+y1, y2+y3].
func lanes(x, y VecVirtual, combine func(x, y, z Op)) VecVirtual {
	even, odd := ZMM(), ZMM()
	VSHUFI64X2(U8(0x88), y, x, even)
	VSHUFI64X2(U8(0xDD), y, x, odd)
	combine(even, odd, even)
	return even
}

func xor(x, y, z Op) { VPXORQ(x, y, z) }
func add(x, y, z Op) { VPADDQ(x, y, z) }
