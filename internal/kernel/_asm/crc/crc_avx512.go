package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Offsets in Go's type crcConsts.
const (
	crcInverse = 0
	crcPoly    = 8
	crcTop     = 16
)

// bitReverse is the matrix by which GF2P8AFFINEQB turns a byte around.
const bitReverse = 0x8040201008040201

// crcFold is every reflected CRC of up to 64 bits by carry-less multiplication. Each
// 64 bits of data are multiplied by the constant of their distance from the block's
// end, so that all products can be added up and reduced once. With msb the bits of
// every byte are turned around first, which makes a CRC with the most significant
// bit first a reflected one.
func crcFold(name string, msb bool) *algorithm {
	const (
		inverse = iota
		poly
		top
		reverse
	)
	return &algorithm{
		name:  name,
		acc:   1,
		slots: 1,
		group: 2,
		setup: func(k *kernel) {
			consts := load64(k.run, runConsts)
			for _, off := range []int{crcInverse, crcPoly, crcTop} {
				z := ZMM()
				VPBROADCASTQ(mem(consts, off), z)
				k.own = append(k.own, z)
			}
			if msb {
				r, z := GP64(), ZMM()
				MOVQ(U64(bitReverse), r)
				VPBROADCASTQ(r, z)
				k.own = append(k.own, z)
			}
		},
		fold: func(k *kernel, g *group, off Register, disp int, data [][]VecVirtual) {
			for v, vectors := range data {
				constant := ZMM()
				VMOVDQU64(idx(k.table, off, disp+64*v), constant)
				for i, d := range vectors {
					if msb {
						VGF2P8AFFINEQB(U8(0), k.own[reverse], d, d)
					}
					even, odd := ZMM(), ZMM()
					VPCLMULQDQ(U8(0x00), constant, d, even)
					VPCLMULQDQ(U8(0x11), constant, d, odd)
					VPTERNLOGQ(U8(xor3), even, odd, g.sums[i][0])
				}
			}
		},
		reduce: func(k *kernel) VecVirtual {
			slot := func(i int) func(int) Mem {
				return func(disp int) Mem { return k.alg.slot(k, i, 0, disp) }
			}
			var four [2]VecVirtual // sums of 128 bits, of four blocks each
			for h := range four {
				a := halves(slot(4*h+0), slot(4*h+1), xor)
				b := halves(slot(4*h+2), slot(4*h+3), xor)
				s := lanes(a, b, xor)
				// The multiple of the polynomial that clears the low 64 bits: see tables.go.
				q, qp, qtop := ZMM(), ZMM(), ZMM()
				VPCLMULQDQ(U8(0x00), k.own[inverse], s, q)
				VPCLMULQDQ(U8(0x00), k.own[poly], q, qp)
				VPSLLDQ(U8(8), q, qtop)
				VPANDQ(k.own[top], qtop, qtop)
				VPTERNLOGQ(U8(xor3), qp, qtop, s)
				four[h] = s
			}
			z := ZMM()
			VPUNPCKHQDQ(four[1], four[0], z) // blocks 0 4 1 5 2 6 3 7
			order := ZMM()
			VMOVDQU64(vectorOfQuads("interleaved", 0, 2, 4, 6, 1, 3, 5, 7), order)
			VPERMQ(z, order, z)
			if msb {
				VGF2P8AFFINEQB(U8(0), k.own[reverse], z, z)
			}
			VPXORQ(k.fix, z, z)
			return z
		},
	}
}
