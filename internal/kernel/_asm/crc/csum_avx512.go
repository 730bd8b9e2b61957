package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// csum is the IP checksum. Of every 64 bits the whole is added to one sum, modulo
// 2^64, and the upper 32 bits to another; the sum of the lower halves is then the
// first less the second shifted up, so that three instructions a vector count both
// halves without losing a carry. The data is taken as little-endian: a ones'
// complement sum of swapped words is the swapped sum (RFC 1071, 2).
func csum() *algorithm {
	return &algorithm{
		name:  "csum",
		sums:  2,
		setup: tags,
		fold: func(k *kernel, g *group, disp int, data [][]VecVirtual) {
			for _, vectors := range data {
				for i, d := range vectors {
					VPADDQ(d, g.sums[i][0], g.sums[i][0])
					VPSRLQ(U8(32), d, d)
					VPADDQ(d, g.sums[i][1], g.sums[i][1])
				}
			}
		},
		quad: func(sums [][]VecVirtual) VecVirtual {
			for _, s := range sums {
				t := ZMM()
				VPSLLQ(U8(32), s[1], t)
				VPSUBQ(t, s[0], s[0])
				VPADDQ(s[1], s[0], s[0])
			}
			return lanes(unpack(sums[0][0], sums[1][0], add), unpack(sums[2][0], sums[3][0], add), add) // [01 01 23 23]
		},
		fields: func(k *kernel, four [2]Mem) VecVirtual {
			x, y := ZMM(), ZMM()
			VMOVDQA64(four[0], x)
			VMOVDQA64(four[1], y)
			s := lanes(x, y, add)
			VPADDQ(k.fix, s, s) // the first addend

			// Fold to 16 bits. The result is zero only if all was, seed included.
			low32, low16 := ZMM(), ZMM()
			VPTERNLOGQ(U8(0xFF), low32, low32, low32)
			VPSRLQ(U8(48), low32, low16)
			VPSRLQ(U8(32), low32, low32)
			fold := func(bits uint8, mask VecVirtual) {
				t := ZMM()
				VPSRLQ(U8(bits), s, t)
				VPANDQ(mask, s, s)
				VPADDQ(t, s, s)
			}
			fold(32, low32)
			fold(16, low16)
			fold(16, low16)
			fold(16, low16)
			VPANDNQ(low16, s, s)

			t := ZMM()
			VPSHUFB(byteSwap(), k.tag, t)
			VPADDD(k.step, k.tag, k.tag)
			VPXORQ(t, s, s)
			return s
		},
	}
}
