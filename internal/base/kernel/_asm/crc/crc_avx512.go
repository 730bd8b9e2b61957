package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

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
	a := &algorithm{
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
				r, z := GP64(), ZMM()
				MOVQ(U64(bitReverse), r)
				VPBROADCASTQ(r, z)
				k.constants = append(k.constants, z)
			}
		},
		factors: 1,
		unit:    8,
		fold: func(k *kernel, g *foldSet, disp, n int, load func(v, i int) VecVirtual) {
			constants := make([]VecVirtual, n)
			for v := range constants {
				constants[v] = ZMM()
				VMOVDQU64(mem(g.table, disp+64*v), constants[v])
			}
			for i := range g.n {
				for v, constant := range constants {
					d, even, odd := load(v, i), ZMM(), ZMM()
					if msb {
						VGF2P8AFFINEQB(U8(0), k.constants[reverse], d, d)
					}
					VPCLMULQDQ(U8(0x00), constant, d, even)
					VPCLMULQDQ(U8(0x11), constant, d, odd)
					VPTERNLOGQ(U8(xor3), even, odd, g.sums[i][0])
					otherHere()
				}
			}
		},
		// Shuffles can use only the port that the multiplications occupy, masked
		// moves one of two ports. So swapAdd moves the lanes that keep their place
		// under a mask, and shuffles only the others.
		quad: func(sum func(b, v int) Op, keep func(v int, z VecVirtual)) {
			upper, odd := mask(0xF0), mask(0xCC)
			swapAdd := func(x, y Op, take Register, swap uint8) VecVirtual {
				// stays has the lanes that keep their place: those of x outside
				// of the mask take, and those of y inside. moves has the others.
				stays, moves := ZMM(), ZMM()
				later(VMOVDQA64, x, stays)
				later(VMOVDQA64, y, take, stays)
				later(VMOVDQA64, y, moves)
				later(VMOVDQA64, x, take, moves)
				later(VSHUFI64X2, U8(swap), moves, moves, moves)
				later(VPXORQ, moves, stays, stays)
				return stays
			}
			x := swapAdd(sum(0, 0), sum(2, 0), upper, 0x4E) // [0 0 2 2] in lanes of 128 bits
			y := swapAdd(sum(1, 0), sum(3, 0), upper, 0x4E) // [1 1 3 3]
			keep(0, swapAdd(x, y, odd, 0xB1))               // [0 1 2 3]
		},
		fields: func(k *kernel, four [2]Mem, ordered bool) VecVirtual {
			var crc [2]VecVirtual
			for h := range crc {
				// The multiple of the polynomial that clears the low 64
				// bits: see tables.go.
				s, q, qp, qtop := ZMM(), ZMM(), ZMM(), ZMM()
				later(VMOVDQA64, four[h], s)
				VPCLMULQDQ(U8(0x00), k.constants[inverse], s, q)
				yieldToMain()
				VPCLMULQDQ(U8(0x00), k.constants[poly], q, qp)
				yieldToMain()
				VPSLLDQ(U8(8), q, qtop)
				yieldToMain()
				later(VPANDQ, k.constants[top], qtop, qtop)
				later(VPTERNLOGQ, U8(xor3), qp, qtop, s)
				crc[h] = s
			}
			z := ZMM()
			later(VPUNPCKHQDQ, crc[1], crc[0], z) // blocks 0 4 1 5 2 6 3 7
			if ordered {
				order := ZMM()
				later(VMOVDQU64, vectorOfWords("interleaved", 0, 2, 4, 6, 1, 3, 5, 7), order)
				later(VPERMQ, z, order, z)
			}
			if msb {
				later(VGF2P8AFFINEQB, U8(0), k.constants[reverse], z, z)
			}
			return z
		},
		constantPart: func(k *kernel, z VecVirtual) VecVirtual {
			later(VPXORQ, k.fix, z, z)
			return z
		},
	}
	if msb {
		a.unit = 4
		a.reverseBits = func(k *kernel, z VecVirtual) { VGF2P8AFFINEQB(U8(0), k.constants[reverse], z, z) }
	}
	return a
}

// mask returns a mask register with the given bits.
func mask(bits uint32) Register {
	r, m := GP64(), K()
	MOVL(U32(bits), r.As32())
	KMOVW(r.As32(), m)
	return m
}
