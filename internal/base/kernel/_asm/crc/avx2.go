package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The AVX2 and VAES kernels process one block after the other. The processor has one
// carry-less multiplier, of 128 bits for AVX2 and of 256 for VAES, and the kernels keep
// it busy: the products of a block do not depend on each other, and the products of the
// next block start while this block is reduced.

func avx2() {
	crcProducts("AVX2")
	crcSwaps("AVX2")
	csum256()
}

func vaes() {
	crcProducts("VAES")
	crcSwaps("VAES")
}

// block generates the loop over the blocks of a run and, within it, the loop over the
// bytes of a block.
type block struct {
	run, src, dst, off, size Register
	copies                   bool
}

// blocks generates a kernel from four functions. The code of begin runs once. For each block, the
// code of whole runs for every step bytes, and then that of eight for every 8 of the remaining
// bytes. field returns the guard or CRC in the byte order of memory, with zeros in place of the
// tags.
func blocks(name, tier string, copies bool, step int, begin func(b *block), whole func(b *block), eight func(b *block), field func(b *block) GPVirtual) {
	if copies {
		name += "Copy"
	}
	TEXT(name+tier, NOSPLIT, "func(r *byte)")
	b := &block{copies: copies}
	b.run = Load(Param("r"), GP64())
	b.src = load64(b.run, runSrc)
	if copies {
		b.dst = load64(b.run, runDst)
	}
	b.size = load64(b.run, runSize)
	begin(b)

	nextBlock, nextStep, remainder, nextQuad, end := label("block"), label("step"), label("rest"), label("quads"), label("end")
	Label(nextBlock)
	b.off = GP64()
	limit := GP64()
	XORQ(b.off, b.off)
	MOVQ(b.size, limit)
	SUBQ(U8(step), limit)
	JLT(LabelRef(remainder))
	Label(nextStep)
	whole(b)
	ADDQ(U8(step), b.off)
	CMPQ(b.off, limit)
	JLE(LabelRef(nextStep))
	Label(remainder)
	CMPQ(b.off, b.size)
	JE(LabelRef(end))
	Label(nextQuad)
	eight(b)
	ADDQ(U8(8), b.off)
	CMPQ(b.off, b.size)
	JNE(LabelRef(nextQuad))
	Label(end)

	f := field(b)
	tag := load64(b.run, runTag)
	tags := GP64()
	MOVQ(tag, tags)
	BSWAPQ(tags)
	XORQ(tags, f)
	// The reference tag is the low half, so it wraps at 32 bits.
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
	JNZ(LabelRef(nextBlock))
	VZEROUPPER()
	RET()
}

// products is the common part of the two kinds of CRC: a sum of products with constants
// from a table.
type products struct {
	tier       string // "AVX2" for vectors of 128 bits, "VAES" for 256
	table, fix Register
	zero       VecVirtual
	sums       [2]VecVirtual // sums of the products of the first and of the second 8 bytes of a lane
	swap       VecVirtual    // byte shuffle of the data, or nil
}

// vector returns a new register of the tier's width.
func (p *products) vector() VecVirtual {
	if p.tier == "VAES" {
		return YMM()
	}
	return XMM()
}

// width is the size of a vector in bytes.
func (p *products) width() int { return int(p.zero.Size()) }

func (p *products) begin(b *block) {
	p.table = load64(b.run, runTable)
	p.fix = load64(b.run, runFix)
	p.zero = p.vector()
	VPXOR(p.zero, p.zero, p.zero)
	p.sums = [2]VecVirtual{p.vector(), p.vector()}
	VMOVDQA(p.zero, p.sums[0])
	VMOVDQA(p.zero, p.sums[1])
}

func (p *products) add(d, c VecVirtual) {
	if p.swap != nil {
		VPSHUFB(p.swap, d, d)
	}
	even, odd := p.vector(), p.vector()
	VPCLMULQDQ(U8(0x00), c, d, even)
	VPCLMULQDQ(U8(0x11), c, d, odd)
	VPXOR(even, p.sums[0], p.sums[0])
	VPXOR(odd, p.sums[1], p.sums[1])
}

// whole adds 64 bytes.
func (p *products) whole(b *block) {
	for disp := 0; disp < 64; disp += p.width() {
		d, c := p.vector(), p.vector()
		VMOVDQU(idx(b.src, b.off, disp), d)
		if b.copies {
			VMOVDQU(d, idx(b.dst, b.off, disp))
		}
		VMOVDQU(idx(p.table, b.off, disp), c)
		p.add(d, c)
	}
}

// eight adds 8 bytes. The loads clear the other bytes of the vectors.
func (p *products) eight(b *block) {
	d, c := p.vector(), p.vector()
	VMOVQ(idx(b.src, b.off, 0), d.AsX())
	if b.copies {
		VMOVQ(d.AsX(), idx(b.dst, b.off, 0))
	}
	VMOVQ(idx(p.table, b.off, 0), c.AsX())
	p.add(d, c)
}

// total returns the sum of all products, of 128 bits, and clears the sums for the next
// block.
func (p *products) total() VecVirtual {
	s := p.vector()
	VPXOR(p.sums[0], p.sums[1], s)
	VMOVDQA(p.zero, p.sums[0])
	VMOVDQA(p.zero, p.sums[1])
	if p.width() == 16 {
		return s
	}
	upper := XMM()
	VEXTRACTI128(U8(1), s, upper)
	VPXOR(s.AsX(), upper, upper)
	return upper
}

// crcProducts generates every reflected CRC.
func crcProducts(tier string) {
	for _, copies := range []bool{false, true} {
		p := products{tier: tier}
		var inverse, top VecVirtual
		begin := func(b *block) {
			p.begin(b)
			consts := load64(b.run, runConsts)
			// inverse and poly share a register; the second product uses the
			// upper half.
			inverse, top = XMM(), XMM()
			VMOVDQU(mem(consts, crcInverse), inverse)
			VMOVDDUP(mem(consts, crcTop), top)
		}
		field := func(b *block) GPVirtual {
			s, q, qp := p.total(), XMM(), XMM()
			VPCLMULQDQ(U8(0x00), inverse, s, q)
			VPCLMULQDQ(U8(0x10), inverse, q, qp)
			VPXOR(qp, s, s)
			VPSLLDQ(U8(8), q, q)
			VPAND(top, q, q)
			VPXOR(q, s, s)
			f := GP64()
			VPEXTRQ(U8(1), s, f)
			XORQ(p.fix, f)
			return f
		}
		blocks("crc", tier, copies, 64, begin, p.whole, p.eight, field)
	}
}

// crcSwaps generates every CRC with the most significant bit first: see tables.go.
func crcSwaps(tier string) {
	for _, copies := range []bool{false, true} {
		p := products{tier: tier}
		var consts VecVirtual
		begin := func(b *block) {
			p.begin(b)
			// quotient and poly share a register.
			consts = XMM()
			VMOVDQU(mem(load64(b.run, runConsts), swapQuotient), consts)
			p.swap = p.vector()
			if tier == "VAES" {
				VBROADCASTI128(byteSwap(), p.swap)
			} else {
				VMOVDQU(byteSwap(), p.swap)
			}
		}
		field := func(b *block) GPVirtual {
			s, q, qp := p.total(), XMM(), XMM()
			VPCLMULQDQ(U8(0x01), consts, s, q) // upper half of s times quotient
			VPXOR(s, q, q)
			VPCLMULQDQ(U8(0x11), consts, q, qp)
			VPXOR(qp, s, s)
			f := GP64()
			VMOVQ(s, f)
			BSWAPQ(f)
			XORQ(p.fix, f)
			return f
		}
		blocks("crcSwap", tier, copies, 64, begin, p.whole, p.eight, field)
	}
}

// csum256 generates the IP checksum with vectors of 256 bits.
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
			// Fold to 16 bits: by 32, then by 16 three times. The result is
			// zero only if all input is zero.
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
		blocks("csum", "AVX2", copies, 64, begin, whole, eight, field)
	}
}
