package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
	"github.com/mmcloughlin/avo/x86"
)

// The AVX-512 kernels have a common structure. For each group of up to eight blocks, they
//
//	fold     fold one block after the other into algorithm.sums vectors each, and store these on the stack
//	quad     combine the sums of four blocks, a quad, in one vector
//	fields   compute the fields of eight blocks, in one vector, from the vectors of two quads
//	each     store or compare the fields (eachField)
//
// Folding depends on no earlier result, so the processor begins to fold the next group while
// the later stages, which are chains of dependent instructions, still run. With fewer than
// eight blocks, the remaining sums have old values, and result in fields that are not used.

// xor3 is VPTERNLOG's truth table of a ^ b ^ c.
const xor3 = 0x96

// step is the number of bytes of a block that one iteration of the unrolled loop folds.
const step = 512

// algorithm is the part that differs between the kernels.
type algorithm struct {
	name  string
	sums  int // number of vectors into which a block is folded
	setup func(k *kernel)
	// fold adds n vectors of data to the sums; load loads vector v. Its constants are at k.table.
	fold func(k *kernel, sums []VecVirtual, n int, load func(v int) VecVirtual)
	// quad combines the sums of four blocks. sum loads sum v of block b.
	quad func(sum func(b, v int) VecVirtual) VecVirtual
	// fields computes eight fields from the combined sums of two quads.
	fields func(k *kernel, quads [2]VecVirtual) VecVirtual
}

// kernel is the function being generated.
type kernel struct {
	alg    *algorithm
	run    Register
	stack  Register
	copies bool

	table     Register     // constants for the position in the block
	fix       VecVirtual   // tables.fix: the contribution of the seed and the final inversion to every field
	tag, step VecVirtual   // fields with tags: the tags of eight blocks in native byte order, and their increment for the next eight
	constants []VecVirtual // constants of the algorithm, which setup loads
}

func avx512() {
	for _, a := range []*algorithm{t10(), csum(), crcFold("crc", false), crcFold("crcMSB", true)} {
		for _, copies := range []bool{false, true} {
			a.generate(copies)
		}
	}
}

func (a *algorithm) generate(copies bool) {
	name := a.name
	if copies {
		name += "Copy"
	}
	TEXT(name+"AVX512", 0, "func(r *byte)")
	k := &kernel{alg: a, copies: copies, run: Load(Param("r"), GP64()), fix: ZMM()}
	stack := GP64()
	sums := 8 * a.sums * 64 // bytes; the fields of a group follow them
	LEAQ(AllocLocal(sums+64+64), stack)
	ADDQ(U8(63), stack)
	ANDQ(I8(-64), stack)
	k.stack = stack
	VPBROADCASTQ(mem(k.run, runFix), k.fix)
	a.setup(k)

	group, block := label("group"), label("block")
	Label(group)
	left, count, to := load64(k.run, runN), GP64(), GP64()
	MOVQ(U32(8), count)
	CMPQ(left, count)
	CMOVQLT(left, count)
	MOVQ(count, mem(k.run, runCount))
	MOVQ(stack, to)
	Label(block)
	k.foldBlock(to)
	ADDQ(U32(a.sums*64), to)
	DECQ(count)
	JNZ(LabelRef(block))

	var quads [2]VecVirtual
	for half := range quads {
		quads[half] = a.quad(func(b, v int) VecVirtual {
			z := ZMM()
			VMOVDQA64(mem(stack, ((4*half+b)*a.sums+v)*64), z)
			return z
		})
	}
	z := a.fields(k, quads)
	VMOVDQA64(z, mem(stack, sums))
	count = load64(k.run, runCount)
	want := load64(k.run, runWant)
	VMOVDQU64(z, lanes(count), mem(want, 0))
	LEAQ(Mem{Base: want, Index: count, Scale: 8}, want)
	MOVQ(want, mem(k.run, runWant))
	SUBQ(count, mem(k.run, runN))
	values := GP64()
	LEAQ(mem(stack, sums), values)
	eachField(k.run, values, count)
	CMPQ(mem(k.run, runN), U8(0))
	JNE(LabelRef(group))
	VZEROUPPER()
	RET()
}

// foldBlock folds the next block, stores its sums at to, and moves the run to the block after it.
func (k *kernel) foldBlock(to Register) {
	src, left := load64(k.run, runSrc), load64(k.run, runSize)
	var dst Register
	if k.copies {
		dst = load64(k.run, runDst)
	}
	k.table = load64(k.run, runTable)
	sums := make([]VecVirtual, k.alg.sums)
	for i := range sums {
		sums[i] = ZMM()
		zero(sums[i])
	}
	load := func(v int) VecVirtual {
		z := ZMM()
		VMOVDQU64(mem(src, 64*v), z)
		if k.copies {
			VMOVDQU64(z, mem(dst, 64*v))
		}
		return z
	}
	advance := func(n int) {
		ADDQ(U32(n), src)
		ADDQ(U32(n), k.table)
		if k.copies {
			ADDQ(U32(n), dst)
		}
		SUBQ(U32(n), left)
	}
	long, short, single, tail, end := label("long"), label("short"), label("vector"), label("tail"), label("end")
	SUBQ(U32(step), left)
	JLT(LabelRef(short))
	Label(long)
	k.alg.fold(k, sums, step/64, load)
	advance(step)
	JGE(LabelRef(long))

	Label(short)
	ADDQ(U32(step-64), left)
	JLT(LabelRef(tail))
	Label(single)
	k.alg.fold(k, sums, 1, load)
	advance(64)
	JGE(LabelRef(single))

	// The remainder of less than a vector is a multiple of 8 bytes. Lanes after it
	// are masked off and count as zeros, which do not change the sum.
	Label(tail)
	ADDQ(U8(64), left)
	JZ(LabelRef(end))
	SHRQ(U8(3), left)
	mask := lanes(left)
	k.alg.fold(k, sums, 1, func(int) VecVirtual {
		z := ZMM()
		VMOVDQU64_Z(mem(src, 0), mask, z)
		if k.copies {
			VMOVDQU64(z, mask, mem(dst, 0))
		}
		return z
	})

	Label(end)
	for v, sum := range sums {
		VMOVDQA64(sum, mem(to, 64*v))
	}
	next := func(at, stride int) {
		s := load64(k.run, stride)
		ADDQ(s, mem(k.run, at))
	}
	next(runSrc, runSrcStride)
	if k.copies {
		next(runDst, runDstStride)
	}
}

// lanes returns a mask with ones for the first n lanes.
func lanes(n Register) Register {
	ones, m := GP64(), K()
	MOVL(U32(0xFF), ones.As32())
	BZHIQ(n, ones, ones)
	KMOVW(ones.As32(), m)
	return m
}

// broadcast returns a vector of which every lane is v.
func broadcast(v uint64) VecVirtual {
	r, z := GP64(), ZMM()
	MOVQ(U64(v), r)
	VPBROADCASTQ(r, z)
	return z
}

// mask returns a mask register with the given bits.
func mask(bits uint32) Register {
	r, m := GP64(), K()
	MOVL(U32(bits), r.As32())
	KMOVW(r.As32(), m)
	return m
}

// zero sets a register to zero. avo takes VPXORQ for an instruction that reads z, which
// would reserve z from the start of the function.
func zero(z VecVirtual) {
	i, err := x86.VPXORQ(z, z, z)
	if err != nil {
		panic(err)
	}
	i.CancellingInputs = true
	Instruction(i)
}

func xor(x, y, z Op) { VPXORQ(x, y, z) }
func add(x, y, z Op) { VPADDQ(x, y, z) }

// unpack combines the even with the odd lanes of 64 bits: [x0+x1, y0+y1, x2+x3, ...].
func unpack(x, y VecVirtual, combine func(x, y, z Op)) VecVirtual {
	even, odd := ZMM(), ZMM()
	VPUNPCKLQDQ(y, x, even)
	VPUNPCKHQDQ(y, x, odd)
	combine(even, odd, even)
	return even
}

// combineLanes combines the even with the odd lanes of 128 bits: [x0+x1, x2+x3, y0+y1, y2+y3].
func combineLanes(x, y VecVirtual, combine func(x, y, z Op)) VecVirtual {
	even, odd := ZMM(), ZMM()
	VSHUFI64X2(U8(0x88), y, x, even)
	VSHUFI64X2(U8(0xDD), y, x, odd)
	combine(even, odd, even)
	return even
}

// Tags

// tags initialises the registers of withTags.
func tags(k *kernel) {
	tag, step, count := ZMM(), ZMM(), ZMM()
	low := mask(0x5555) // only the low 32 bits of each 64, the reference tag, are incremented
	VPBROADCASTQ(mem(k.run, runTag), tag)
	VPBROADCASTD_Z(mem(k.run, runStep), low, step)
	VMOVDQU64(vectorOfWords("counting", 0, 1, 2, 3, 4, 5, 6, 7), count)
	VPMULLD(step, count, count)
	VPADDD(count, tag, tag)
	VPSLLD(U8(3), step, step)
	k.tag, k.step = tag, step
}

// withTags adds the tags of eight blocks to their guards, and increments the tags.
func withTags(k *kernel, guards VecVirtual) VecVirtual {
	t := ZMM()
	VPSHUFB(byteSwap(), k.tag, t)
	VPADDD(k.step, k.tag, k.tag)
	VPXORQ(t, guards, guards)
	return guards
}

// Carry-less multiplication

// Offsets in the Go type crcConsts.
const (
	crcInverse = 0
	crcPoly    = 8
	crcTop     = 16
)

// Offset in the Go type swapConsts.
const swapQuotient = 0

// bitReverse is the matrix with which GF2P8AFFINEQB reverses the bits of a byte.
const bitReverse = 0x8040201008040201

// crcFold generates every reflected CRC of up to 64 bits, by carry-less multiplication.
// Every 64 bits of data are multiplied by the constant for their distance from the
// block's end, so that all products can be added and reduced once. With msb, the bits of
// every byte are reversed first, which makes a CRC with the most significant bit first a
// reflected one.
func crcFold(name string, msb bool) *algorithm {
	const (
		inverse = iota
		poly
		top
		reverse
	)
	return &algorithm{
		name: name,
		sums: 1,
		setup: func(k *kernel) {
			consts := load64(k.run, runConsts)
			for _, off := range []int{crcInverse, crcPoly, crcTop} {
				z := ZMM()
				VPBROADCASTQ(mem(consts, off), z)
				k.constants = append(k.constants, z)
			}
			if msb {
				k.constants = append(k.constants, broadcast(bitReverse))
			}
		},
		fold: func(k *kernel, sums []VecVirtual, n int, load func(v int) VecVirtual) {
			for v := range n {
				d, constant, even, odd := load(v), ZMM(), ZMM(), ZMM()
				VMOVDQU64(mem(k.table, 64*v), constant)
				if msb {
					VGF2P8AFFINEQB(U8(0), k.constants[reverse], d, d)
				}
				VPCLMULQDQ(U8(0x00), constant, d, even)
				VPCLMULQDQ(U8(0x11), constant, d, odd)
				VPTERNLOGQ(U8(xor3), even, odd, sums[0])
			}
		},
		// Shuffles can use only the port that the multiplications occupy, masked
		// moves one of two ports. So swapAdd moves the lanes that keep their place
		// under a mask, and shuffles only the others.
		quad: func(sum func(b, v int) VecVirtual) VecVirtual {
			upper, odd := mask(0xF0), mask(0xCC)
			swapAdd := func(x, y VecVirtual, take Register, swap uint8) VecVirtual {
				// stays has the lanes that keep their place: those of x outside
				// of the mask take, and those of y inside. moves has the others.
				stays, moves := ZMM(), ZMM()
				VMOVDQA64(x, stays)
				VMOVDQA64(y, take, stays)
				VMOVDQA64(y, moves)
				VMOVDQA64(x, take, moves)
				VSHUFI64X2(U8(swap), moves, moves, moves)
				VPXORQ(moves, stays, stays)
				return stays
			}
			x := swapAdd(sum(0, 0), sum(2, 0), upper, 0x4E) // [0 0 2 2] in lanes of 128 bits
			y := swapAdd(sum(1, 0), sum(3, 0), upper, 0x4E) // [1 1 3 3]
			return swapAdd(x, y, odd, 0xB1)                 // [0 1 2 3]
		},
		fields: func(k *kernel, quads [2]VecVirtual) VecVirtual {
			for _, s := range quads {
				// The multiple of the polynomial that clears the low 64
				// bits: see tables.go.
				q, qp, qtop := ZMM(), ZMM(), ZMM()
				VPCLMULQDQ(U8(0x00), k.constants[inverse], s, q)
				VPCLMULQDQ(U8(0x00), k.constants[poly], q, qp)
				VPSLLDQ(U8(8), q, qtop)
				VPANDQ(k.constants[top], qtop, qtop)
				VPTERNLOGQ(U8(xor3), qp, qtop, s)
			}
			z, order := ZMM(), ZMM()
			VPUNPCKHQDQ(quads[1], quads[0], z) // blocks 0 4 1 5 2 6 3 7
			VMOVDQU64(vectorOfWords("interleaved", 0, 2, 4, 6, 1, 3, 5, 7), order)
			VPERMQ(z, order, z)
			if msb {
				VGF2P8AFFINEQB(U8(0), k.constants[reverse], z, z)
			}
			VPXORQ(k.fix, z, z)
			return z
		},
	}
}

// Affine maps

// planeTable is the distance between the tables of the matrices for two planes: the size
// of the Go type matrices.
const planeTable = (520 + 8) * 8

// t10 generates CRC-16/T10-DIF by affine maps, with the tags of its fields. A CRC is linear
// over GF(2): an 8 by 8 bit matrix maps a byte to 8 bits of its remainder at its distance
// from the block's end, in words of 8 bytes. GF2P8AFFINEQB applies a matrix to the 8 bytes
// of a lane. A vector therefore takes one instruction for each of the two bytes of the
// remainder, a plane, and no change of byte or bit order, which the matrices absorb. The
// position of a byte in its word is corrected at the end, for eight blocks at once.
func t10() *algorithm {
	return &algorithm{
		name:  "t10",
		sums:  2,
		setup: tags,
		fold: func(k *kernel, sums []VecVirtual, n int, load func(v int) VecVirtual) {
			data := make([]VecVirtual, n)
			for v := range data {
				data[v] = load(v)
			}
			for plane, sum := range sums {
				product := func(v int) VecVirtual {
					x := ZMM()
					VGF2P8AFFINEQB(U8(0), mem(k.table, plane*planeTable+64*v), data[v], x)
					return x
				}
				if n == 1 {
					VPXORQ(product(0), sum, sum)
				}
				for v := 0; v+1 < n; v += 2 {
					VPTERNLOGQ(U8(xor3), product(v), product(v+1), sum)
				}
			}
		},
		quad: func(sum func(b, v int) VecVirtual) VecVirtual {
			var planes [2]VecVirtual
			for v := range planes {
				planes[v] = combineLanes(unpack(sum(0, v), sum(1, v), xor), unpack(sum(2, v), sum(3, v), xor), xor)
			}
			return combineLanes(planes[0], planes[1], xor) // plane 0 of 0 1 2 3, plane 1 of 0 1 2 3
		},
		fields: func(k *kernel, quads [2]VecVirtual) VecVirtual {
			low, high, order := ZMM(), ZMM(), ZMM()
			VSHUFI64X2(U8(0x44), quads[1], quads[0], low)
			VSHUFI64X2(U8(0xEE), quads[1], quads[0], high)
			// A lane holds one plane of one block's remainders for the eight
			// positions. Transpose them, so that a lane holds those of eight
			// blocks at one position, and apply the matrices of each position.
			VMOVDQU64(transposition(), order)
			VPERMB(low, order, low)
			VPERMB(high, order, high)
			consts := load64(k.run, runConsts)
			corrected := func(to int) VecVirtual {
				x, y := ZMM(), ZMM()
				VGF2P8AFFINEQB(U8(0), mem(consts, 64*to), low, x)
				VGF2P8AFFINEQB(U8(0), mem(consts, 64*(2+to)), high, y)
				VPXORQ(x, y, x)
				return x
			}
			// Add up the positions. Every 128 bits then hold the low and the high
			// bytes of all eight remainders.
			s, t := unpack(corrected(0), corrected(1), xor), ZMM()
			VSHUFI64X2(U8(0x4E), s, s, t)
			VPXORQ(t, s, s)
			VSHUFI64X2(U8(0xB1), s, s, t)
			VPXORQ(t, s, s)
			VPSHUFB(t10Spread(), s, s)
			VPXORQ(k.fix, s, s)
			return withTags(k, s)
		},
	}
}

// transposition returns the byte permutation that exchanges the lane of a byte with its
// position in the lane.
func transposition() Mem {
	var b [64]byte
	for i := range b {
		b[i] = byte(i%8*8 + i/8)
	}
	return data("transposition", b[:])
}

// t10Spread returns the byte shuffle that distributes guards over lanes: lane i gets the
// high and then the low byte of block i, and zeros for its tags.
func t10Spread() Mem {
	var b [64]byte
	for i := range b {
		b[i] = 0x80
	}
	for lane := range 8 {
		b[lane*8], b[lane*8+1] = byte(8+lane), byte(lane)
	}
	return data("t10Spread", b[:])
}

// csum generates the IP checksum. Every 64 bits are added to one sum, modulo 2^64, and
// their upper 32 bits to a second sum. The sum of the lower halves is then the first sum
// minus the second one shifted left by 32. Three instructions per vector thus add both
// halves without losing a carry. The data is read as little-endian: the ones' complement
// sum of byte-swapped words is the byte-swapped sum (RFC 1071, 2).
func csum() *algorithm {
	const (
		low32 = iota
		low16
	)
	return &algorithm{
		name: "csum",
		sums: 2,
		setup: func(k *kernel) {
			tags(k)
			k.constants = append(k.constants, broadcast(0xFFFFFFFF), broadcast(0xFFFF))
		},
		fold: func(k *kernel, sums []VecVirtual, n int, load func(v int) VecVirtual) {
			for v := range n {
				d := load(v)
				VPADDQ(d, sums[0], sums[0])
				VPSRLQ(U8(32), d, d)
				VPADDQ(d, sums[1], sums[1])
			}
		},
		quad: func(sum func(b, v int) VecVirtual) VecVirtual {
			var whole [4]VecVirtual
			for b := range whole {
				all, upper, t := sum(b, 0), sum(b, 1), ZMM()
				VPSLLQ(U8(32), upper, t)
				VPSUBQ(t, all, t)
				VPADDQ(upper, t, t)
				whole[b] = t
			}
			return combineLanes(unpack(whole[0], whole[1], add), unpack(whole[2], whole[3], add), add) // [01 01 23 23]
		},
		fields: func(k *kernel, quads [2]VecVirtual) VecVirtual {
			s := combineLanes(quads[0], quads[1], add)
			VPADDQ(k.fix, s, s) // the seed

			// Fold to 16 bits. The result is zero only if all input,
			// including the seed, is zero.
			for _, f := range []struct {
				bits uint8
				mask int
			}{{32, low32}, {16, low16}, {16, low16}, {16, low16}} {
				t := ZMM()
				VPSRLQ(U8(f.bits), s, t)
				VPANDQ(k.constants[f.mask], s, s)
				VPADDQ(t, s, s)
			}
			VPANDNQ(k.constants[low16], s, s)
			return withTags(k, s)
		},
	}
}

// byteSwap returns the byte shuffle that reverses the bytes of every 64 bits.
func byteSwap() Mem {
	var b [64]byte
	for i := range b {
		b[i] = byte(i&8 | 7 - i&7)
	}
	return data("byteSwap", b[:])
}

func vectorOfWords(name string, q ...uint64) Mem {
	var b [64]byte
	for i, v := range q {
		b[i*8] = byte(v)
	}
	return data(name, b[:])
}

var datas = map[string]Mem{}

// data returns a global with the given bytes. Each global is created once.
func data(name string, b []byte) Mem {
	if m, ok := datas[name]; ok {
		return m
	}
	m := GLOBL(name, RODATA|NOPTR)
	for i := 0; i < len(b); i += 8 {
		var v uint64
		for j := 7; j >= 0; j-- {
			v = v<<8 | uint64(b[i+j])
		}
		DATA(i, U64(v))
	}
	datas[name] = m
	return m
}
