package main

import (
	"iter"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// step is the number of bytes of a block that one iteration of the unrolled loop folds.
const step = 512

// foldSet is one to four blocks that are folded side by side.
type foldSet struct {
	n        int
	src, dst *rows
	table    Register       // constants for the position of src
	plane    int            // affine maps: distance in the table between the matrices of two planes
	sums     [][]VecVirtual // [block][vector]
}

// foldGroup folds the next len(sums) blocks, and moves the run's src and dst past them. The code
// that other generates, if it is not nil, is interleaved with the first step.
func (k *kernel) foldGroup(sums [][]VecVirtual, other func()) {
	a := k.alg
	n := len(sums)
	g := &foldSet{n: n, sums: sums, table: load64(k.run, runTable), plane: planeTable}
	g.src = newRows(k.run, runSrc, runSrcStride, n)
	if k.copies {
		g.dst = newRows(k.run, runDst, runDstStride, n)
	}
	for _, block := range sums {
		for _, s := range block {
			if a.spillsSums {
				zero(s)
			} else {
				VMOVDQA64(k.zero, s)
			}
		}
	}

	// Blocks are processed in steps of 512 bytes without a branch, which covers the
	// most common block size, and then in single vectors. The branch at the end of a
	// short loop would be mispredicted for every block.
	left := load64(k.run, runSize)
	long, none, short, single, tail, end := label("long"), label("none"), label("short"), label("vector"), label("tail"), label("end")
	foldStep := func(prefetch int) {
		for disp := 0; disp < step; disp += 128 {
			// A step has four iterations, and four blocks are folded side by side. Iteration i copies all of block i.
			byLines := k.byLines && n == step/128
			if byLines {
				g.copyLines(disp / 128)
			}
			a.fold(k, g, disp, 2, k.loader(g, disp, nil, prefetch, k.copies && !byLines))
		}
	}
	prefetch := 0 // distance, for the code that is not interleaved
	if k.copies && !k.plain {
		prefetch = ahead
	}
	SUBQ(U32(step), left)
	if other != nil {
		JLT(LabelRef(none))
		weave(func() { foldStep(aheadShort) }, other)
		g.advance(step)
		SUBQ(U32(step), left)
		JLT(LabelRef(short))
	} else {
		JLT(LabelRef(short))
	}
	if other == nil || !a.short {
		Label(long)
		foldStep(prefetch)
		g.advance(step)
		SUBQ(U32(step), left)
		JGE(LabelRef(long))
	}
	if other != nil {
		JMP(LabelRef(short))
		Label(none)
		other()
	}

	Label(short)
	ADDQ(U32(step-64), left)
	JLT(LabelRef(tail))
	Label(single)
	a.fold(k, g, 0, 1, k.loader(g, 0, nil, prefetch, k.copies))
	g.advance(64)
	SUBQ(U8(64), left)
	JGE(LabelRef(single))

	Label(tail)
	ADDQ(U8(64), left)
	JZ(LabelRef(end))
	// The remainder of less than a vector is a multiple of 8 bytes. Lanes after it
	// are masked off and count as zeros, which do not change the sum.
	SHRQ(U8(3), left)
	lanes, mask := GP64(), K()
	MOVL(U32(0xFF), lanes.As32())
	BZHIQ(left, lanes, lanes)
	KMOVW(lanes.As32(), mask)
	a.fold(k, g, 0, 1, k.loader(g, 0, mask, 0, k.copies))
	Label(end)

	g.src.next()
	if k.copies {
		g.dst.next()
	}
	if a.finish != nil {
		for _, block := range sums {
			a.finish(k, block)
		}
	}
}

// loader returns the code that loads a vector of a block of g, and copies it if copies is
// set. mask, if not nil, limits both. The line prefetch bytes ahead is prefetched, unless
// prefetch is 0.
func (k *kernel) loader(g *foldSet, disp int, mask Register, prefetch int, copies bool) func(v, i int) VecVirtual {
	return func(v, i int) VecVirtual {
		z := ZMM()
		at := disp + 64*v
		if prefetch != 0 {
			PREFETCHT0(g.src.mem(i, at+prefetch))
			if copies {
				PREFETCHT0(g.dst.mem(i, at+prefetch))
			}
		}
		if mask == nil {
			VMOVDQU64(g.src.mem(i, at), z)
		} else {
			VMOVDQU64_Z(g.src.mem(i, at), mask, z)
		}
		if copies && mask == nil {
			VMOVDQU64(z, g.dst.mem(i, at))
		} else if copies {
			VMOVDQU64(z, mask, g.dst.mem(i, at))
		}
		return z
	}
}

// copyLines copies 512 bytes of block i, in the order of the addresses. All stores but the
// first and the last begin on a cache line: the first seven lines that begin in the block.
func (g *foldSet) copyLines(i int) {
	src, dst, line := GP64(), GP64(), GP64()
	LEAQ(g.src.mem(i, 0), src)
	LEAQ(g.dst.mem(i, 0), dst)
	move := func(disp int) {
		z := ZMM()
		VMOVDQU64(mem(src, disp), z)
		VMOVDQU64(z, mem(dst, disp))
	}
	for disp := 0; disp < step; disp += 64 {
		PREFETCHT0(mem(dst, disp+aheadLines))
	}
	move(0)
	XORL(line.As32(), line.As32())
	SUBQ(dst, line)
	ANDQ(U8(63), line)
	for disp := 0; disp < step-64; disp += 64 {
		z := ZMM()
		VMOVDQU64(idx(src, line, disp), z)
		VMOVDQU64(z, idx(dst, line, disp))
	}
	move(step - 64)
}

// advance advances all addresses of the set by n bytes.
func (g *foldSet) advance(n int) {
	for _, r := range []*rows{g.src, g.dst} {
		if r != nil {
			ADDQ(U32(n), r.at)
		}
	}
	ADDQ(U32(n), g.table)
}

// rows addresses the same position in up to four blocks, one stride apart. The address of
// the first block stays in the run, because there are not enough registers.
type rows struct {
	run             Register
	base            int      // offset in the run of the first block's address
	at              Register // position in the first block
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
		return Mem{Base: r.at, Index: r.stride3, Scale: 1, Disp: disp}
	}
	return Mem{Base: r.at, Index: r.stride, Scale: uint8(i), Disp: disp}
}

// next advances the run to the first block after those in r.
func (r *rows) next() {
	base := load64(r.run, r.base)
	LEAQ(Mem{Base: base, Index: r.stride, Scale: uint8(r.n)}, base)
	MOVQ(base, mem(r.run, r.base))
}

// weave interleaves the instructions of one function, other, with those of another one, main. The functions
// of the later stages call yieldToMain after each instruction, mostly by later, and the functions that fold call otherHere where an
// instruction of other may be inserted. Outside of weave both do nothing.
var (
	yieldToMain = func() {}
	otherHere   = func() {}
)

// later generates an instruction of a later stage, which yields to main.
func later(instruction func(...Op), ops ...Op) {
	instruction(ops...)
	yieldToMain()
}

// weave generates main with the instructions of other inserted, one at each otherHere. Those for which main has
// none left follow it.
func weave(main, other func()) {
	next, stop := iter.Pull(func(yield func(struct{}) bool) {
		yieldToMain = func() { yield(struct{}{}) }
		other()
		yieldToMain = func() {}
	})
	defer stop()
	pending := true // other has instructions left
	otherHere = func() {
		if pending {
			_, pending = next()
		}
	}
	main()
	otherHere = func() {}
	for pending {
		_, pending = next()
	}
}
