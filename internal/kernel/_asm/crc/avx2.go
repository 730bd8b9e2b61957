package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The AVX2 kernels take one block after the other. There is one carry-less
// multiplier, of 128 bits, and it is busy all the time: the products of a block do
// not depend on each other, and the next block's are under way while this one is
// reduced.

func avx2() {
	crcFold128("crc", false)
	crcFold128("crcMSB", true)
	csum256()
}

// block is the loop over the blocks of a run, and within it over the bytes of one.
type block struct {
	run, src, dst, off, size Register
	copies                   bool
}

// blocks emits a kernel: begin, once; then for every block a loop of whole steps of
// step bytes, then steps of 8 bytes, and field, which returns the guard or CRC as it
// stands in memory, with zeros where the tags are.
func blocks(name string, copies bool, step int, begin func(b *block), whole func(b *block), eight func(b *block), field func(b *block) GPVirtual) {
	if copies {
		name += "Copy"
	}
	TEXT(name+"AVX2", NOSPLIT, "func(r *byte)")
	b := &block{copies: copies}
	b.run = Load(Param("r"), GP64())
	b.src = load64(b.run, runSrc)
	if copies {
		b.dst = load64(b.run, runDst)
	}
	b.size = load64(b.run, runSize)
	begin(b)

	next, more, rest, quads, end := label("block"), label("step"), label("rest"), label("quads"), label("end")
	Label(next)
	b.off = GP64()
	limit := GP64()
	XORQ(b.off, b.off)
	MOVQ(b.size, limit)
	SUBQ(U8(step), limit)
	JLT(LabelRef(rest))
	Label(more)
	whole(b)
	ADDQ(U8(step), b.off)
	CMPQ(b.off, limit)
	JLE(LabelRef(more))
	Label(rest)
	CMPQ(b.off, b.size)
	JE(LabelRef(end))
	Label(quads)
	eight(b)
	ADDQ(U8(8), b.off)
	CMPQ(b.off, b.size)
	JNE(LabelRef(quads))
	Label(end)

	f := field(b)
	tag := load64(b.run, runTag)
	tags := GP64()
	MOVQ(tag, tags)
	BSWAPQ(tags)
	XORQ(tags, f)
	// The reference tag is the low half, which wraps by itself.
	ADDL(mem(b.run, runStep), tag.As32())
	MOVL(tag.As32(), mem(b.run, runTag))

	want := load64(b.run, runWant)
	MOVQ(f, mem(want, 0))
	ADDQ(U8(8), mem(b.run, runWant))
	count := GP64()
	MOVQ(U32(1), count)
	eachField(b.run, want, count)

	ADDQ(mem(b.run, runSrcStride), b.src)
	if copies {
		ADDQ(mem(b.run, runDstStride), b.dst)
	}
	DECQ(mem(b.run, runN))
	JNZ(LabelRef(next))
	VZEROUPPER()
	RET()
}

// nibbleReverse turns around the bits of the bytes of vectors: each nibble by a
// table of its 16 values.
type nibbleReverse struct {
	mask, low, high VecVirtual
}

func newNibbleReverse() *nibbleReverse {
	n := &nibbleReverse{XMM(), XMM(), XMM()}
	var reversed [16]byte
	for i := range reversed {
		reversed[i] = byte(i&1<<3 | i&2<<1 | i&4>>1 | i&8>>3)
	}
	var mask, low, high [16]byte
	for i := range mask {
		mask[i] = 0x0F
		low[i] = reversed[i] << 4
		high[i] = reversed[i]
	}
	VMOVDQU(data("nibbleMask", mask[:]), n.mask)
	VMOVDQU(data("nibbleLow", low[:]), n.low)
	VMOVDQU(data("nibbleHigh", high[:]), n.high)
	return n
}

func (n *nibbleReverse) apply(x VecVirtual) {
	t := XMM()
	VPSRLW(U8(4), x, t)
	VPAND(n.mask, x, x)
	VPAND(n.mask, t, t)
	VPSHUFB(x, n.low, x)
	VPSHUFB(t, n.high, t)
	VPOR(t, x, x)
}

// crcFold128 is crcFold for vectors of 128 bits.
func crcFold128(name string, msb bool) {
	for _, copies := range []bool{false, true} {
		var (
			table        Register
			sums         [2]VecVirtual
			inverse, top VecVirtual
			zero         VecVirtual
			reverse      *nibbleReverse
			one          func(b *block, disp int)
			fix          Register
		)
		begin := func(b *block) {
			table = load64(b.run, runTable)
			consts := load64(b.run, runConsts)
			fix = load64(b.run, runFix)
			// inverse and poly side by side: the second product takes the upper one.
			inverse, top, zero = XMM(), XMM(), XMM()
			VMOVDQU(mem(consts, crcInverse), inverse)
			VMOVDDUP(mem(consts, crcTop), top)
			VPXOR(zero, zero, zero)
			if msb {
				reverse = newNibbleReverse()
			}
			sums = [2]VecVirtual{XMM(), XMM()}
			VMOVDQA(zero, sums[0])
			VMOVDQA(zero, sums[1])
		}
		add := func(d, c VecVirtual) {
			even, odd := XMM(), XMM()
			if msb {
				reverse.apply(d)
			}
			VPCLMULQDQ(U8(0x00), c, d, even)
			VPCLMULQDQ(U8(0x11), c, d, odd)
			VPXOR(even, sums[0], sums[0])
			VPXOR(odd, sums[1], sums[1])
		}
		one = func(b *block, disp int) {
			d, c := XMM(), XMM()
			VMOVDQU(idx(b.src, b.off, disp), d)
			if copies {
				VMOVDQU(d, idx(b.dst, b.off, disp))
			}
			VMOVDQU(idx(table, b.off, disp), c)
			add(d, c)
		}
		whole := func(b *block) {
			for disp := 0; disp < 64; disp += 16 {
				one(b, disp)
			}
		}
		eight := func(b *block) {
			d, c := XMM(), XMM()
			VMOVQ(idx(b.src, b.off, 0), d)
			if copies {
				VMOVQ(d, idx(b.dst, b.off, 0))
			}
			VMOVQ(idx(table, b.off, 0), c)
			add(d, c)
		}
		field := func(b *block) GPVirtual {
			s, q, qp := XMM(), XMM(), XMM()
			VPXOR(sums[0], sums[1], s)
			VMOVDQA(zero, sums[0])
			VMOVDQA(zero, sums[1])
			VPCLMULQDQ(U8(0x00), inverse, s, q)
			VPCLMULQDQ(U8(0x10), inverse, q, qp)
			VPXOR(qp, s, s)
			VPSLLDQ(U8(8), q, q)
			VPAND(top, q, q)
			VPXOR(q, s, s)
			if msb {
				reverse.apply(s)
			}
			f := GP64()
			VPEXTRQ(U8(1), s, f)
			XORQ(fix, f)
			return f
		}
		blocks(name, copies, 64, begin, whole, eight, field)
	}
}

// csum256 is csum for vectors of 256 bits.
func csum256() {
	for _, copies := range []bool{false, true} {
		var all, upper, zero VecVirtual
		begin := func(b *block) {
			zero = YMM()
			VPXOR(zero, zero, zero)
			all, upper = YMM(), YMM()
			VMOVDQA(zero, all)
			VMOVDQA(zero, upper)
		}
		add := func(d VecVirtual) {
			VPADDQ(d, all, all)
			VPSRLQ(U8(32), d, d)
			VPADDQ(d, upper, upper)
		}
		whole := func(b *block) {
			for disp := 0; disp < 64; disp += 32 {
				d := YMM()
				VMOVDQU(idx(b.src, b.off, disp), d)
				if copies {
					VMOVDQU(d, idx(b.dst, b.off, disp))
				}
				add(d)
			}
		}
		eight := func(b *block) {
			d := YMM()
			x := GP64()
			MOVQ(idx(b.src, b.off, 0), x)
			if copies {
				MOVQ(x, idx(b.dst, b.off, 0))
			}
			VMOVQ(x, d.AsX())
			add(d)
		}
		field := func(b *block) GPVirtual {
			t, u := YMM(), XMM()
			VPSLLQ(U8(32), upper, t)
			VPSUBQ(t, all, all)
			VPADDQ(upper, all, all)
			VEXTRACTI128(U8(1), all, u)
			VPADDQ(all.AsX(), u, u)
			VPSRLDQ(U8(8), u, t.AsX())
			VPADDQ(t.AsX(), u, u)
			VMOVDQA(zero, all)
			VMOVDQA(zero, upper)

			f := GP64()
			VMOVQ(u, f)
			ADDQ(mem(b.run, runFix), f)
			// Fold to 16 bits: by 32, then by 16 three times. Zero only if all was zero.
			x := GP64()
			MOVL(f.As32(), x.As32())
			SHRQ(U8(32), f)
			ADDQ(x, f)
			for range 3 {
				MOVWLZX(f.As16(), x.As32())
				SHRQ(U8(16), f)
				ADDQ(x, f)
			}
			XORQ(U32(0xFFFF), f)
			return f
		}
		blocks("csum", copies, 64, begin, whole, eight, field)
	}
}
