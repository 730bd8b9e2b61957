// Command icrc generates the amd64 assembly of internal/kernel/icrc. Run it by "go
// generate" in that folder.
package main

import (
	"flag"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// xor3 is VPTERNLOG's truth table of a ^ b ^ c.
const xor3 = 0x96

// Offsets in Go's type folds: pairs of constants, 16 bytes each, by distance.
const (
	off256   = 0
	off192   = 16
	off128   = 32
	off64    = 48
	offLanes = 64 // 48, 32 and 16 bytes, and none: for the lanes of one register
	off16    = 96
)

func main() {
	flag.Parse()
	ConstraintExpr("!purego")
	fold()
	Generate()
}

// fold reduces a message to 16 bytes that leave the same remainder. Four registers
// walk over chunks of 256 bytes side by side, then fold into the last one, which goes
// on by 64 bytes; its lanes fold into its last lane, and that goes on by 16.
func fold() {
	TEXT("foldAVX512", NOSPLIT, "func(residue *[16]byte, p *byte, n uint64, register uint32, k *[16]uint64)")
	Doc("foldAVX512 reduces n bytes at p, a multiple of 16 and at least 256, behind a CRC register, to a residue.")
	p, n, k := RSI, RCX, RDX
	Load(Param("p"), p)
	Load(Param("n"), n)
	Load(Param("k"), k)
	Load(Param("register"), EAX)
	z := []VecPhysical{Z0, Z1, Z2, Z3}
	for i, r := range z {
		VMOVDQU64(Mem{Base: p, Disp: 64 * i}, r)
	}
	VMOVD(EAX, X4)
	VPXORQ(Z4, Z0, Z0)
	VBROADCASTI32X4(Mem{Base: k, Disp: off256}, Z5)
	ADDQ(U32(256), p)
	SUBQ(U32(256), n)
	CMPQ(n, U32(256))
	JB(LabelRef("merge"))

	Label("by256")
	for i, r := range z {
		t := []VecPhysical{Z6, Z7, Z8, Z9}[i]
		VPCLMULQDQ(U8(0x00), Z5, r, t)
		VPCLMULQDQ(U8(0x11), Z5, r, r)
		VPTERNLOGQ(U8(xor3), Mem{Base: p, Disp: 64 * i}, t, r)
	}
	ADDQ(U32(256), p)
	SUBQ(U32(256), n)
	CMPQ(n, U32(256))
	JAE(LabelRef("by256"))

	Label("merge")
	for i, off := range []int{off192, off128, off64} {
		VBROADCASTI32X4(Mem{Base: k, Disp: off}, Z5)
		VPCLMULQDQ(U8(0x00), Z5, z[i], Z6)
		VPCLMULQDQ(U8(0x11), Z5, z[i], Z7)
		VPTERNLOGQ(U8(xor3), Z6, Z7, Z3)
	}
	CMPQ(n, U32(64))
	JB(LabelRef("lanes"))
	Label("by64")
	VPCLMULQDQ(U8(0x00), Z5, Z3, Z6) // Z5 has the constants for 64
	VPCLMULQDQ(U8(0x11), Z5, Z3, Z3)
	VPTERNLOGQ(U8(xor3), Mem{Base: p}, Z6, Z3)
	ADDQ(U32(64), p)
	SUBQ(U32(64), n)
	CMPQ(n, U32(64))
	JAE(LabelRef("by64"))

	Label("lanes")
	VMOVDQU64(Mem{Base: k, Disp: offLanes}, Z5)
	VPCLMULQDQ(U8(0x00), Z5, Z3, Z6)
	VPCLMULQDQ(U8(0x11), Z5, Z3, Z7)
	VPXORQ(Z6, Z7, Z7) // the last lane's constants are zero
	VEXTRACTI32X4(U8(3), Z3, X3)
	VEXTRACTI64X4(U8(1), Z7, Y6)
	VPXORQ(Y6, Y7, Y7)
	VEXTRACTI32X4(U8(1), Y7, X6)
	VPTERNLOGQ(U8(xor3), X6, X7, X3)
	TESTQ(n, n)
	JZ(LabelRef("done"))
	VMOVDQU(Mem{Base: k, Disp: off16}, X5)
	Label("by16")
	VPCLMULQDQ(U8(0x00), X5, X3, X6)
	VPCLMULQDQ(U8(0x11), X5, X3, X3)
	VPTERNLOGQ(U8(xor3), Mem{Base: p}, X6, X3)
	ADDQ(U8(16), p)
	SUBQ(U8(16), n)
	JNZ(LabelRef("by16"))

	Label("done")
	Load(Param("residue"), RDI)
	VMOVDQU64(X3, Mem{Base: RDI})
	VZEROUPPER()
	RET()
}
