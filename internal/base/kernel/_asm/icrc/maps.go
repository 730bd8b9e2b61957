package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Folding by affine maps, for AMD's processors from Zen 5 on.
//
// There a carry-less multiplication of 512 bits takes two cycles, and a line of 64 bytes
// needs two. An affine map (GF2P8AFFINEQB) takes half a cycle. It applies a matrix of 8 by 8
// bits to each byte. A remainder has 32 bits, so moving a byte to a later place in the
// message takes four maps: a byte is replaced by four bytes, at the same position of four
// lines. Four lines are thus moved together, by sixteen maps, which take eight cycles.
//
// The remainder of a byte is a sum of some of the 32 bits at these four places, if the bits
// are linearly independent. For four adjacent lines they are not, but for lines 0, 1, 6 and 7
// they are. Group i therefore has the lines 4i, 4i+1, 4i+6 and 4i+7: every line belongs to one
// group. A group is moved by eight lines, onto the group after the next one, so that two
// groups are in flight. The Go package computes the matrices (newMaps).
//
//	group -1    2 3
//	group 0   0 1         6 7
//	group 1           4 5         10 11
//	group 2                 8 9           14 15
//
// Two of the lines of group -1 are before the message, and zero.

const (
	groupSize = 4       // lines
	mapsLeast = 8 * 64  // length of the first two groups
	mapsAhead = 12 * 64 // from the first line of a group to the end of the next one
)

// groupLines are the lines of a group, from its first one.
var groupLines = [groupSize]int{0, 1, 6, 7}

// foldByMaps folds the message, of at least mapsLeast bytes, until less than mapsAhead are left
// behind the first line of the next group. It leaves the result in Z0 to Z3, as if these were
// the 256 bytes before p. The first bytes of the message are added to Z4.
func foldByMaps(load func(disp int, data VecPhysical), prefetch func(disp int), advance func(by int)) {
	older := [groupSize]VecPhysical{Z0, Z1, Z2, Z3}
	newer := [groupSize]VecPhysical{Z4, Z5, Z6, Z7}
	// maps[j][k] maps a byte of line j to its part in line k.
	maps := [groupSize][groupSize]VecPhysical{{Z8, Z9, Z10, Z11}, {Z12, Z13, Z14, Z15}, {Z16, Z17, Z18, Z19}, {Z20, Z21, Z22, Z23}}
	data := [groupSize]VecPhysical{Z24, Z25, Z26, Z27}
	product := [2]VecPhysical{Z28, Z29}

	Load(Param("m"), RBX)
	for j := range groupSize {
		for k := range groupSize {
			VPBROADCASTQ(Mem{Base: RBX, Disp: 8 * (groupSize*j + k)}, maps[j][k])
		}
	}
	VMOVDQA64(Z4, data[0])
	for i := range 2 {
		load(64*i, newer[i])
		load(64*(2+i), older[2+i])
		load(64*(6+i), newer[2+i])
		VPXORQ(older[i], older[i], older[i])
	}
	VPXORQ(data[0], newer[0], newer[0])
	advance(256)
	CMPQ(n, U32(mapsAhead))
	JB(LabelRef("moved"))

	Label("move")
	for i, group := range [][groupSize]VecPhysical{older, newer} {
		for k, d := range data {
			disp := 64 * (groupSize*i + groupLines[k])
			load(disp, d)
			prefetch(disp)
			for j := 0; j < groupSize; j += 2 {
				for i, p := range product {
					VGF2P8AFFINEQB(U8(0), maps[j+i][k], group[j+i], p)
				}
				VPTERNLOGQ(U8(xor3), product[0], product[1], d)
			}
		}
		for k, d := range data {
			VMOVDQA64(d, group[k])
		}
	}
	advance(512)
	CMPQ(n, U32(mapsAhead))
	JAE(LabelRef("move"))

	Comment("The lines of both groups, in order: older 0 and 1, two that were moved, newer 0 and 1, older 2 and 3, the next two of the message, newer 2 and 3.")
	Label("moved")
	for i, d := range data[:2] {
		load(64*i, d)
	}
	advance(256)
	VBROADCASTI32X4(Mem{Base: k, Disp: off256}, Z8)
	by256 := func(from, to VecPhysical) {
		VPCLMULQDQ(U8(0x00), Z8, from, Z9)
		VPCLMULQDQ(U8(0x11), Z8, from, from)
		VPTERNLOGQ(U8(xor3), from, Z9, to)
	}
	for i := range 2 {
		by256(older[i], newer[i])
		by256(newer[i], data[i])
		by256(older[2+i], newer[2+i])
	}
	for i, z := range []VecPhysical{data[0], data[1], newer[2], newer[3]} {
		VMOVDQA64(z, older[i])
	}
}
