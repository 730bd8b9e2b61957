package main

import (
	"iter"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// step is the number of bytes of a block in one iteration of the unrolled loop.
const step = 512

// group is one or more blocks that are folded side by side.
type group struct {
	n        int
	src, dst *rows
	table    Register       // constants of the place that src is at
	high     int            // of T10-DIF: how far behind the table that for high bytes stands
	sums     [][]VecVirtual // [block][vector]
}

// foldGroup folds as many blocks as sums has room for and moves the run's src and dst
// behind them. Other code, if there is any, is woven into the first step.
func (k *kernel) foldGroup(sums [][]VecVirtual, other func()) {
	a := k.alg
	n := len(sums)
	g := &group{n: n, sums: sums, table: load64(k.run, runTable), high: highTable}
	g.src = newRows(k.run, runSrc, runSrcStride, n)
	if k.copies {
		g.dst = newRows(k.run, runDst, runDstStride, n)
	}
	for _, block := range sums {
		for _, s := range block {
			VMOVDQA64(k.zero, s)
		}
	}

	// Blocks are gone through in steps of 512 bytes without a branch, which is all of
	// the most common block, then in single vectors. A branch that ends a short loop is
	// a branch that is mispredicted for every block.
	left := load64(k.run, runSize)
	long, none, short, single, tail, end := label("long"), label("none"), label("short"), label("vector"), label("tail"), label("end")
	whole := func(prefetch int) {
		for disp := 0; disp < step; disp += 128 {
			a.fold(k, g, disp, 2, k.loader(g, disp, nil, prefetch))
		}
	}
	further := 0
	if k.copies {
		further = ahead
	}
	SUBQ(U32(step), left)
	if other != nil {
		JLT(LabelRef(none))
		weave(func() { whole(aheadShort) }, other)
		g.advance(step)
		SUBQ(U32(step), left)
		JLT(LabelRef(short))
	} else {
		JLT(LabelRef(short))
	}
	if other == nil || !a.short {
		Label(long)
		whole(further)
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
	a.fold(k, g, 0, 1, k.loader(g, 0, nil, further))
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
	a.fold(k, g, 0, 1, k.loader(g, 0, mask, 0))
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

// loader returns the code that loads a vector of a block of g and copies it, if the kernel
// copies. A mask, if there is one, limits both. The line prefetch bytes ahead is asked
// for, unless prefetch is 0.
func (k *kernel) loader(g *group, disp int, mask Register, prefetch int) func(v, i int) VecVirtual {
	return func(v, i int) VecVirtual {
		z := ZMM()
		at := disp + 64*v
		if prefetch != 0 {
			PREFETCHT0(g.src.mem(i, at+prefetch))
			if k.copies {
				PREFETCHT0(g.dst.mem(i, at+prefetch))
			}
		}
		if mask == nil {
			VMOVDQU64(g.src.mem(i, at), z)
		} else {
			VMOVDQU64_Z(g.src.mem(i, at), mask, z)
		}
		if k.copies && mask == nil {
			VMOVDQU64(z, g.dst.mem(i, at))
		} else if k.copies {
			VMOVDQU64(z, mask, g.dst.mem(i, at))
		}
		return z
	}
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
		return Mem{Base: r.at, Index: r.stride3, Scale: 1, Disp: disp}
	}
	return Mem{Base: r.at, Index: r.stride, Scale: uint8(i), Disp: disp}
}

// next moves the run on to the first block that is not in r.
func (r *rows) next() {
	base := load64(r.run, r.base)
	LEAQ(Mem{Base: base, Index: r.stride, Scale: uint8(r.n)}, base)
	MOVQ(base, mem(r.run, r.base))
}

// Weaving. Code that is woven in calls rest after each of its instructions; code that
// it is woven into calls beat where some of the other may go.
var (
	rest = func() {}
	beat = func() {}
)

// perBeat is how many instructions go in at each beat.
const perBeat = 1

// weave emits whole with other woven in.
func weave(whole, other func()) {
	next, stop := iter.Pull(func(yield func(struct{}) bool) {
		rest = func() { yield(struct{}{}) }
		other()
		rest = func() {}
	})
	defer stop()
	more := true
	beat = func() {
		for i := 0; more && i < perBeat; i++ {
			_, more = next()
		}
	}
	whole()
	beat = func() {}
	for more {
		_, more = next()
	}
}
