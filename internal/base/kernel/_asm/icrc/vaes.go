package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Offsets in the constants of the VAES tier, which are pairs of 16 bytes.
const (
	vaes128   = 0
	vaes96    = 16
	vaes64    = 32
	vaes32    = 48
	vaesLanes = 64 // 16 and 0 bytes: for the lanes of one register
	vaes16    = 64
	vaes8     = 96
)

// foldVAES is fold with registers of 256 bits and chunks of 128 bytes.
func foldVAES(name string, copying bool) {
	begin(name, "foldVAES", copying, 16, 128)
	// step folds acc by the constants c onto the bytes at disp. t and data are scratch.
	step := func(disp int, c, acc, t, data VecPhysical) {
		m := Mem{Base: p, Disp: disp}
		VMOVDQU(m, data)
		if copying {
			VMOVDQU(data, Mem{Base: dst, Disp: disp})
		}
		VPCLMULQDQ(U8(0x00), c, acc, t)
		VPCLMULQDQ(U8(0x11), c, acc, acc)
		VPXOR(data, t, t)
		VPXOR(t, acc, acc)
	}
	advance := func(by int) {
		// 128 does not fit a signed byte; -128 does.
		ADDQ(I32(by), p)
		if copying {
			ADDQ(I32(by), dst)
		}
		SUBQ(I32(by), n)
	}

	y := []VecPhysical{Y0, Y1, Y2, Y3}
	for i, r := range y {
		VMOVDQU(Mem{Base: p, Disp: 32 * i}, r)
		if copying {
			VMOVDQU(r, Mem{Base: dst, Disp: 32 * i})
		}
	}
	VMOVD(EAX, X4)
	if copying {
		Load(Param("front"), RBX)
		VMOVDQU(Mem{Base: RBX}, X5)
		VMOVDQU(Mem{Base: k, Disp: vaes16}, X6)
		VPCLMULQDQ(U8(0x00), X6, X5, X7)
		VPCLMULQDQ(U8(0x11), X6, X5, X5)
		VPXOR(X7, X5, X5)
		VPXOR(X5, X4, X4)
	}
	VPXOR(Y4, Y0, Y0)
	VBROADCASTI128(Mem{Base: k, Disp: vaes128}, Y5)
	advance(128)
	CMPQ(n, U32(128))
	JB(LabelRef("merge"))

	Label("by128")
	for i, r := range y {
		step(32*i, Y5, r, []VecPhysical{Y6, Y7, Y8, Y9}[i], []VecPhysical{Y10, Y11, Y12, Y13}[i])
	}
	advance(128)
	CMPQ(n, U32(128))
	JAE(LabelRef("by128"))

	Label("merge")
	for i, off := range []int{vaes96, vaes64, vaes32} {
		VBROADCASTI128(Mem{Base: k, Disp: off}, Y5)
		VPCLMULQDQ(U8(0x00), Y5, y[i], Y6)
		VPCLMULQDQ(U8(0x11), Y5, y[i], Y7)
		VPXOR(Y6, Y7, Y7)
		VPXOR(Y7, Y3, Y3)
	}
	CMPQ(n, U8(32))
	JB(LabelRef("lanes"))
	Label("by32")
	step(0, Y5, Y3, Y6, Y10) // Y5 holds the constants for 32 bytes
	advance(32)
	CMPQ(n, U8(32))
	JAE(LabelRef("by32"))

	Label("lanes")
	VMOVDQU(Mem{Base: k, Disp: vaesLanes}, Y5)
	VPCLMULQDQ(U8(0x00), Y5, Y3, Y6)
	VPCLMULQDQ(U8(0x11), Y5, Y3, Y7)
	VPXOR(Y6, Y7, Y7) // the constants of the last lane are zero
	VEXTRACTI128(U8(1), Y3, X3)
	VPXOR(X7, X3, X3)
	TESTQ(n, n)
	JZ(LabelRef("reduce"))
	step(0, X5, X3, X6, X10) // X5 holds the constants for 16 bytes

	reduce(k, vaes8)
}
