package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

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
		name:  "csum",
		plain: true,
		woven: true,
		sums:  2,
		setup: func(k *kernel) {
			tags(k)
			for _, mask := range []uint32{0xFFFFFFFF, 0xFFFF} {
				r, z := GP64(), ZMM()
				MOVL(U32(mask), r.As32())
				VPBROADCASTQ(r, z)
				k.constants = append(k.constants, z)
			}
		},
		fold: func(k *kernel, g *foldSet, disp, n int, load func(v, i int) VecVirtual) {
			for i := range g.n {
				for v := range n {
					d := load(v, i)
					VPADDQ(d, g.sums[i][0], g.sums[i][0])
					VPSRLQ(U8(32), d, d)
					VPADDQ(d, g.sums[i][1], g.sums[i][1])
					otherHere()
				}
			}
		},
		quad: func(sum func(b, v int) Op, keep func(v int, z VecVirtual)) {
			var whole [4]VecVirtual
			for b := range whole {
				all, upper, t := sum(b, 0), sum(b, 1), ZMM()
				later(VPSLLQ, U8(32), upper, t)
				later(VPSUBQ, t, all, t)
				later(VPADDQ, upper, t, t)
				whole[b] = t
			}
			keep(0, combineLanes(unpack(whole[0], whole[1], add), unpack(whole[2], whole[3], add), add)) // [01 01 23 23]
		},
		fields: func(k *kernel, four [2]Mem, _ bool) VecVirtual {
			x, y := ZMM(), ZMM()
			later(VMOVDQA64, four[0], x)
			later(VMOVDQA64, four[1], y)
			s := combineLanes(x, y, add)
			later(VPADDQ, k.fix, s, s) // the seed

			// Fold to 16 bits. The result is zero only if all input,
			// including the seed, is zero.
			fold := func(bits uint8, mask VecVirtual) {
				t := ZMM()
				later(VPSRLQ, U8(bits), s, t)
				later(VPANDQ, mask, s, s)
				later(VPADDQ, t, s, s)
			}
			fold(32, k.constants[low32])
			fold(16, k.constants[low16])
			fold(16, k.constants[low16])
			fold(16, k.constants[low16])
			later(VPANDNQ, k.constants[low16], s, s)
			return s
		},
		constantPart: func(k *kernel, s VecVirtual) VecVirtual {
			t := ZMM()
			later(VPSHUFB, byteSwap(), k.tag, t)
			later(VPADDD, k.step, k.tag, k.tag)
			later(VPXORQ, t, s, s)
			return s
		},
	}
}
