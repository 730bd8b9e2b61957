package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
	"github.com/mmcloughlin/avo/x86"
)

// planeTable is the distance between the tables of the matrices for two planes: the size
// of the Go type matrices.
const planeTable = (520 + 8) * 8

// byMaps generates a CRC by affine maps. A CRC is linear over GF(2): an 8 by 8 bit matrix
// maps a byte to 8 bits of its remainder at its distance from the block's end, in words of
// 8 bytes. GF2P8AFFINEQB applies a matrix to the 8 bytes of a lane. A vector therefore
// takes one instruction for each byte of the remainder, a plane, and no change of byte or
// bit order, which the matrices absorb. The position of a byte in its word is corrected at
// the end, for eight blocks at once.
//
// For the 2 planes of T10-DIF this is faster than multiplication, which takes a shuffle and
// two products on one port. With 4 planes it is faster only where a product takes as long as
// four maps, as on AMD's Zen 5. There the time is that of the ports for maps and shuffles:
// two cycles a vector for folding, and half as much again for the later stages of blocks of
// 512 bytes. A load across two lines costs nothing then, and a kernel by cache lines is slower
// than this one: it combines head and tail in addition.
func byMaps(name string, planes int) *algorithm {
	a := &algorithm{
		name:       name,
		sums:       planes,
		factors:    planes,
		spillsSums: planes > 2,
		woven:      true,
	}
	a.fold = func(k *kernel, g *foldSet, disp, n int, load func(v, i int) VecVirtual) {
		matrices := make([][]Op, planes) // [plane][vector]
		for plane := range matrices {
			for v := range n {
				at := mem(g.table, plane*g.plane+disp+64*v)
				if a.spillsSums && g.n == 1 {
					matrices[plane] = append(matrices[plane], at)
					continue
				}
				m := ZMM()
				VMOVDQU64(at, m)
				matrices[plane] = append(matrices[plane], m)
			}
		}
		for i := range g.n {
			var d []VecVirtual
			for v := range n {
				d = append(d, load(v, i))
			}
			for plane, m := range matrices {
				sum := g.sums[i][plane]
				x := ZMM()
				VGF2P8AFFINEQB(U8(0), m[0], d[0], x)
				if a.spillsSums {
					otherHere()
				}
				if n == 2 {
					y := ZMM()
					VGF2P8AFFINEQB(U8(0), m[1], d[1], y)
					VPTERNLOGQ(U8(xor3), x, y, sum)
				} else {
					VPXORQ(x, sum, sum)
				}
				otherHere()
			}
		}
	}
	// Add up the lanes. On processors with a port for multiplications, it is idle here,
	// so shuffles cost nothing.
	a.quad = func(sum func(b, v int) Op, keep func(v int, z VecVirtual)) {
		for pair := range planes / 2 {
			var half [2]VecVirtual
			for h := range half {
				v := 2*pair + h
				x := unpack(inRegister(sum(0, v)), sum(1, v), xor)
				half[h] = combineLanes(x, unpack(inRegister(sum(2, v)), sum(3, v), xor), xor)
			}
			keep(pair, combineLanes(half[0], half[1], xor)) // plane 2*pair of 0 1 2 3, plane 2*pair+1 of 0 1 2 3
		}
	}
	a.fields = func(k *kernel, four [2]Mem, ordered bool) VecVirtual {
		// A 64-bit lane holds one plane of one block's remainders for the eight
		// positions. Combine the planes in two words per block, low and high.
		z, low, high := ZMM(), ZMM(), ZMM()
		later(VMOVDQA64, four[0], z)
		later(VMOVDQA64, four[1], high)
		later(VSHUFI64X2, U8(0x44), high, z, low)
		later(VSHUFI64X2, U8(0xEE), high, z, high)
		if planes > 2 {
			// Plane 1 has the weight of plane 0 at the position before, and
			// so on. Plane p is therefore shifted by p bytes and added to
			// plane 0. The bytes shifted out are the high word, whose weight
			// is x^64. Two words need half as many maps as four planes.
			first := high
			high = ZMM()
			later(VPSLLQ, U8(64-8), first, high)
			later(VPSRLQ, U8(8), first, first)
			later(VPXORQ, first, low, low)
			for plane, order := range []uint8{2: 0x44, 3: 0xEE} {
				if plane < 2 {
					continue
				}
				z, out := ZMM(), ZMM()
				later(VMOVDQA64, four[0].Offset(64), z)
				later(VSHUFI64X2, U8(order), four[1].Offset(64), z, z)
				later(VPSLLQ, U8(64-8*plane), z, out)
				later(VPXORQ, out, high, high)
				later(VPSRLQ, U8(8*plane), z, z)
				later(VPXORQ, z, low, low)
			}
		}
		// Transpose the words, so that a lane holds the bytes of eight blocks at one position.
		order := ZMM()
		later(VMOVDQU64, transposition(), order)
		later(VPERMB, low, order, low)
		later(VPERMB, high, order, high)
		if a.spillsSums {
			later(VMOVDQA64, low, four[0])
			later(VMOVDQA64, high, four[1])
		}
		consts := load64(k.run, runConsts)
		// Apply the matrices of each position.
		corrected := func(to int) VecVirtual {
			x, y := low, high
			if a.spillsSums {
				x, y = inRegister(four[0]), inRegister(four[1])
			}
			sum, t := ZMM(), ZMM()
			later(VGF2P8AFFINEQB, U8(0), mem(consts, 64*to), x, sum)
			later(VGF2P8AFFINEQB, U8(0), mem(consts, 64*(planes+to)), y, t)
			later(VPXORQ, t, sum, sum)
			return sum
		}
		// Add up the positions. For 2 planes, every 128 bits then hold the low and
		// the high bytes of all eight remainders; for 4, these are in the lower 256
		// bits and the other two planes in the upper ones.
		first := corrected(0)
		s, t := unpack(first, corrected(1), xor), ZMM()
		if planes > 2 {
			third := corrected(2)
			s = combineLanes(s, unpack(third, corrected(3), xor), xor)
		} else {
			later(VSHUFI64X2, U8(0x4E), s, s, t)
			later(VPXORQ, t, s, s)
		}
		later(VSHUFI64X2, U8(0xB1), s, s, t)
		later(VPXORQ, t, s, s)
		if planes > 2 {
			order := ZMM()
			later(VMOVDQU64, spread4(ordered), order)
			VPERMB_Z(s, order, k.low, s)
			yieldToMain()
		} else {
			later(VPSHUFB, t10Spread(ordered), s, s)
		}
		return s
	}
	return a
}

// crcMaps generates every CRC of 32 bits.
func crcMaps() *algorithm {
	a := byMaps("crcMaps", 4)
	a.setup = func(k *kernel) {
		r := GP64()
		k.low = K()
		MOVQ(U64(0x0F0F0F0F0F0F0F0F), r)
		KMOVQ(r, k.low)
	}
	a.constantPart = func(k *kernel, z VecVirtual) VecVirtual {
		later(VPXORQ_BCST, mem(k.run, runFix), z, z)
		return z
	}
	return a
}

// inRegister loads z, unless it is in a register.
func inRegister(z Op) VecVirtual {
	if r, ok := z.(VecVirtual); ok {
		return r
	}
	r := ZMM()
	later(VMOVDQA64, z, r)
	return r
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
// high and then the low byte of block i, and zeros for its tags. If the blocks are not to
// be in order, those of the same position in each four are adjacent.
func t10Spread(ordered bool) Mem {
	var b [64]byte
	for i := range b {
		b[i] = 0x80
	}
	for lane := range 8 {
		b[lane*8] = byte(8 + spreadBlock(lane, ordered))
		b[lane*8+1] = byte(spreadBlock(lane, ordered))
	}
	return data(fmt.Sprintf("t10Spread%t", ordered), b[:])
}

// spread4 returns the byte permutation that distributes remainders of 32 bits over lanes,
// as t10Spread does: the planes from 3 to 0.
func spread4(ordered bool) Mem {
	var b [64]byte
	for lane := range 8 {
		for i, plane := range []int{40, 32, 8, 0} {
			b[lane*8+i] = byte(plane + spreadBlock(lane, ordered))
		}
	}
	return data(fmt.Sprintf("spread4%t", ordered), b[:])
}

// spreadBlock returns the block whose field is in a lane.
func spreadBlock(lane int, ordered bool) int {
	if ordered {
		return lane
	}
	return lane%2*4 + lane/2
}
