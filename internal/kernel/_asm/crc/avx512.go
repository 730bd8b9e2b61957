package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The AVX-512 kernels have one shape. Blocks are taken in groups of eight. First
// every block of a group is read and folded into one or two vectors, which go to a
// scratch area on the stack; then the eight are brought to their values together;
// then the fields are stored or compared. A block's sum does not depend on what was
// folded before it, so the processor works on the next group's blocks while the
// last group's reduction waits for its latencies.

// xor3 is VPTERNLOG's truth table of a ^ b ^ c.
const xor3 = 0x96

// ahead is how far ahead of its use a line is prefetched. Blocks with their fields
// do not begin on cache lines, and a load that spans two lines waits for both; asked
// for ahead, they come from the second level at the rate of aligned ones.
const ahead = 1024

// algorithm is what tells the kernels apart.
type algorithm struct {
	name  string
	acc   int // vectors of sum a block is folded into
	slots int // those of them that go to the scratch area
	group int // blocks that are folded side by side, sharing constants
	setup func(k *kernel)
	// fold adds vectors of data, [vector][block], already loaded, to the sums. The
	// constants of the first stand at table + off + disp, the others' behind it.
	fold func(k *kernel, g *group, off Register, disp int, data [][]VecVirtual)
	// finish brings the sums of a group into the form in which they are stored.
	finish func(k *kernel, g *group)
	reduce func(k *kernel) VecVirtual // returns the fields of eight blocks
}

// kernel is the function being generated.
type kernel struct {
	run     Register
	scratch Register
	table   Register
	alg     *algorithm
	copies  bool

	fix       VecVirtual   // of every field
	tag, step VecVirtual   // of T10-DIF: native tags, their increment by eight blocks
	own       []VecVirtual // of the algorithm
}

// group is one or more blocks that are folded side by side.
type group struct {
	n    int
	src  []Register
	dst  []Register
	sums [][]VecVirtual // [block][vector]
}

func avx512() {
	for _, a := range []*algorithm{t10(), crcFold("crc", false), crcFold("crcMSB", true), csum()} {
		a.generate(false)
		a.generate(true)
	}
}

func (a *algorithm) slot(k *kernel, block, vector, disp int) Mem {
	return mem(k.scratch, (block*a.slots+vector)*64+disp)
}

func (a *algorithm) generate(copies bool) {
	name := a.name
	if copies {
		name += "Copy"
	}
	TEXT(name+"AVX512", 0, "func(r *byte)")
	k := &kernel{alg: a, copies: copies}
	k.run = Load(Param("r"), GP64())

	area := AllocLocal(8*a.acc*64 + 64)
	scratch := GP64()
	LEAQ(area, scratch)
	ADDQ(U8(63), scratch)
	ANDQ(I8(-64), scratch)
	k.scratch = scratch
	k.table = load64(k.run, runTable)
	k.fix = ZMM()
	VPBROADCASTQ(mem(k.run, runFix), k.fix)
	a.setup(k)

	src, dst := load64(k.run, runSrc), GPVirtual(nil)
	if copies {
		dst = load64(k.run, runDst)
	}

	eight, fold, folded := label("eight"), label("fold"), label("folded")
	Label(eight)
	count, n := GP64(), load64(k.run, runN) // blocks of this group of eight, blocks left
	MOVQ(U32(8), count)
	CMPQ(n, count)
	CMOVQLT(n, count)
	SUBQ(count, n)
	MOVQ(n, mem(k.run, runN))

	left, out := GP64(), GP64()
	MOVQ(count, left)
	MOVQ(scratch, out)
	single := label("single")
	if a.group > 1 {
		Label(fold)
		CMPQ(left, U8(a.group))
		JLT(LabelRef(single))
		a.foldGroup(k, a.group, src, dst, out)
		SUBQ(U8(a.group), left)
		JNZ(LabelRef(fold))
		JMP(LabelRef(folded))
	}
	Label(single)
	a.foldGroup(k, 1, src, dst, out)
	DECQ(left)
	JNZ(LabelRef(single))
	Label(folded)

	field := a.reduce(k)
	// The mask has a one for each block there is.
	bits, kmask := GP64(), K()
	MOVL(U32(0xFF), bits.As32())
	BZHIQ(count, bits, bits)
	KMOVW(bits.As32(), kmask)
	VMOVDQU64(field, kmask, mem(load64(k.run, runWant), 0))
	eachField(k.run, count)
	CMPQ(mem(k.run, runN), U8(0))
	JNE(LabelRef(eight))

	VZEROUPPER()
	RET()
}

// foldGroup folds n blocks and moves src, dst and out, where the sums go, behind
// them.
func (a *algorithm) foldGroup(k *kernel, n int, src, dst, out Register) {
	g := &group{n: n}
	strided := func(base Register, strideOff int) []Register {
		stride := load64(k.run, strideOff)
		p := []Register{base}
		for i := 1; i < n; i++ {
			r := GP64()
			LEAQ(idx(p[i-1], stride, 0), r)
			p = append(p, r)
		}
		return p
	}
	g.src = strided(src, runSrcStride)
	if k.copies {
		g.dst = strided(dst, runDstStride)
	}
	for range n {
		var s []VecVirtual
		for range a.acc {
			z := ZMM()
			VPXORQ(z, z, z)
			s = append(s, z)
		}
		g.sums = append(g.sums, s)
	}

	off, size := GP64(), load64(k.run, runSize)
	XORQ(off, off)
	SUBQ(U8(128), size) // the last offset at which two whole vectors follow
	two, one, tail, end := label("two"), label("one"), label("tail"), label("end")
	JLT(LabelRef(one))
	Label(two)
	a.fold(k, g, off, 0, [][]VecVirtual{k.read(g, off, 0, nil, ahead), k.read(g, off, 64, nil, ahead)})
	SUBQ(I8(-128), off)
	CMPQ(off, size)
	JLE(LabelRef(two))

	Label(one)
	ADDQ(U8(64), size)
	CMPQ(off, size)
	JG(LabelRef(tail))
	a.fold(k, g, off, 0, [][]VecVirtual{k.read(g, off, 0, nil, 0)})
	ADDQ(U8(64), off)

	Label(tail)
	ADDQ(U8(64), size)
	SUBQ(off, size)
	JZ(LabelRef(end))
	// A last part of less than a vector, in units of 8 bytes: the lanes behind it are
	// not touched and count as zeros, which add nothing.
	SHRQ(U8(3), size)
	lanes, kmask := GP64(), K()
	MOVL(U32(0xFF), lanes.As32())
	BZHIQ(size, lanes, lanes)
	KMOVW(lanes.As32(), kmask)
	a.fold(k, g, off, 0, [][]VecVirtual{k.read(g, off, 0, kmask, 0)})
	Label(end)

	if a.finish != nil {
		a.finish(k, g)
	}
	for i := range n {
		for v := range a.slots {
			VMOVDQA64(g.sums[i][v], mem(out, (i*a.slots+v)*64))
		}
	}
	ADDQ(U32(n*a.slots*64), out)
	next := func(base Register, last Register, strideOff int) {
		stride := load64(k.run, strideOff)
		LEAQ(idx(last, stride, 0), base)
	}
	next(src, g.src[n-1], runSrcStride)
	if k.copies {
		next(dst, g.dst[n-1], runDstStride)
	}
}

// read loads a vector of every block of g and copies it, if the kernel copies. A
// mask, if there is one, limits both; ahead, if it is not zero, prefetches.
func (k *kernel) read(g *group, off Register, disp int, mask Register, ahead int) []VecVirtual {
	data := make([]VecVirtual, g.n)
	for i := range data {
		data[i] = ZMM()
		if ahead != 0 {
			PREFETCHT0(idx(g.src[i], off, disp+ahead))
			if k.copies {
				PREFETCHT0(idx(g.dst[i], off, disp+ahead))
			}
		}
		if mask == nil {
			VMOVDQU64(idx(g.src[i], off, disp), data[i])
		} else {
			VMOVDQU64_Z(idx(g.src[i], off, disp), mask, data[i])
		}
		if k.copies && mask == nil {
			VMOVDQU64(data[i], idx(g.dst[i], off, disp))
		} else if k.copies {
			VMOVDQU64(data[i], mask, idx(g.dst[i], off, disp))
		}
	}
	return data
}

// halves returns [p's low half, q's low half] combined with [p's high half, q's high
// half], of two vectors in the scratch area. The second half comes in by a load, not
// by a shuffle: shuffles have one port and the multiplications need it.
func halves(p, q func(disp int) Mem, combine func(x, y, z Op)) VecVirtual {
	lo, hi := ZMM(), ZMM()
	VBROADCASTI64X4(p(0), lo)
	VINSERTI64X4(U8(1), q(0), lo, lo)
	VBROADCASTI64X4(p(32), hi)
	VINSERTI64X4(U8(1), q(32), hi, hi)
	combine(lo, hi, lo)
	return lo
}

// unpack combines the even with the odd lanes of 64 bits: [x0+x1, y0+y1, x2+x3, ...].
func unpack(x, y VecVirtual, combine func(x, y, z Op)) VecVirtual {
	lo, hi := ZMM(), ZMM()
	VPUNPCKLQDQ(y, x, lo)
	VPUNPCKHQDQ(y, x, hi)
	combine(lo, hi, lo)
	return lo
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
