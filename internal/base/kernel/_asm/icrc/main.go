// Command icrc generates the amd64 assembly of internal/base/kernel/icrc. "go generate"
// runs it in that folder.
package main

import (
	"flag"
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// xor3 is VPTERNLOG's truth table of a ^ b ^ c.
const xor3 = 0x96

// Offsets in the Go array constants, which has pairs of 16 bytes.
const (
	off256   = 0
	off192   = 16
	off128   = 32
	off64    = 48
	offLanes = 64 // 48, 32, 16 and 0 bytes: for the lanes of one register
	off16    = 96
	off8     = 128 // 8 bytes and 4 bytes, followed by the quotient and the polynomial
)

// Distances in bytes at which copies prefetch. Packets lie in buffers that do not fit the
// first-level cache, and application memory often lies outside of the second. A store to a
// line outside of the first-level cache waits for the line, and stores complete in order.
const (
	aheadSrc = 2048
	aheadDst = 512
)

func main() {
	flag.Parse()
	ConstraintExpr("!purego")
	for _, copying := range []bool{false, true} {
		fold(copying)
	}
	foldVAES("foldVAES", false)
	foldVAES("copyVAES", true)
	Generate()
}

// The registers of a fold: the message, the number of its bytes that are left, the constants
// and, when copying, the destination.
var p, n, k, dst = RSI, RCX, RDX, RDI

// begin opens a function that folds a message, and loads its parameters. least is the smallest
// length of the message, and words the length of the table of constants. plain is the name of the
// function that does not copy.
func begin(name, plain string, copying bool, words, least int) {
	args := fmt.Sprintf("p *byte, n uint64, register uint32, k *[%d]uint64", words)
	if copying {
		args = "dst *byte, " + args + ", front *[16]byte"
	}
	TEXT(name, NOSPLIT, "func("+args+") uint32")
	Load(Param("p"), p)
	Load(Param("n"), n)
	Load(Param("k"), k)
	Load(Param("register"), EAX)
	if copying {
		Doc(name + " is " + plain + " for the 16 bytes at front followed by the n bytes at p, and copies the latter to dst.")
		Load(Param("dst"), dst)
	} else {
		Doc(fmt.Sprintf("%s adds n bytes at p to a CRC register; n is a multiple of 16 and at least %d.", name, least))
	}
}

// fold generates the reduction of a message to a remainder. Four registers process chunks
// of 256 bytes side by side. They are folded into the last one, which continues in steps
// of 64 bytes. Its lanes are folded into its last lane, which continues in steps of 16
// bytes. The result is reduced to 64 bits and then by Barrett's method.
//
// When copying, each loaded register is stored before the folding changes it.
func fold(copying bool) {
	name := "fold"
	if copying {
		name = "copy"
	}
	begin(name+"AVX512", "foldAVX512", copying, 20, 256)
	// load loads the bytes at disp and copies them.
	load := func(disp int, data VecPhysical) {
		VMOVDQU64(Mem{Base: p, Disp: disp}, data)
		if copying {
			VMOVDQU64(data, Mem{Base: dst, Disp: disp})
		}
	}
	prefetch := func(disp int) {
		if copying {
			PREFETCHT0(Mem{Base: p, Disp: disp + aheadSrc})
			PREFETCHT0(Mem{Base: dst, Disp: disp + aheadDst})
		}
	}
	// next adds the next bytes of the message and t to acc: acc and t are the two halves of a
	// product.
	next := func(disp int, t, acc, data VecPhysical) {
		if !copying {
			VPTERNLOGQ(U8(xor3), Mem{Base: p, Disp: disp}, t, acc)
			return
		}
		load(disp, data)
		VPTERNLOGQ(U8(xor3), data, t, acc)
	}
	advance := func(by int) {
		imm := Op(U32(by))
		if by < 128 {
			imm = U8(by)
		}
		ADDQ(imm, p)
		if copying {
			ADDQ(imm, dst)
		}
		SUBQ(imm, n)
	}

	VMOVD(EAX, X4)
	if copying {
		Load(Param("front"), RBX)
		VMOVDQU(Mem{Base: RBX}, X5)
		VMOVDQU(Mem{Base: k, Disp: off16}, X6)
		VPCLMULQDQ(U8(0x00), X6, X5, X7)
		VPCLMULQDQ(U8(0x11), X6, X5, X5)
		VPTERNLOGQ(U8(xor3), X7, X5, X4)
	}
	z := []VecPhysical{Z0, Z1, Z2, Z3}
	for i, r := range z {
		load(64*i, r)
	}
	VPXORQ(Z4, Z0, Z0)
	VBROADCASTI32X4(Mem{Base: k, Disp: off256}, Z5)
	advance(256)
	CMPQ(n, U32(256))
	JB(LabelRef("merge"))

	Label("by256")
	for i, r := range z {
		t := []VecPhysical{Z6, Z7, Z8, Z9}[i]
		VPCLMULQDQ(U8(0x00), Z5, r, t)
		VPCLMULQDQ(U8(0x11), Z5, r, r)
		next(64*i, t, r, []VecPhysical{Z10, Z11, Z12, Z13}[i])
		prefetch(64 * i)
	}
	advance(256)
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
	VPCLMULQDQ(U8(0x00), Z5, Z3, Z6) // Z5 holds the constants for 64 bytes
	VPCLMULQDQ(U8(0x11), Z5, Z3, Z3)
	next(0, Z6, Z3, Z10)
	advance(64)
	CMPQ(n, U32(64))
	JAE(LabelRef("by64"))

	Label("lanes")
	VMOVDQU64(Mem{Base: k, Disp: offLanes}, Z5)
	VPCLMULQDQ(U8(0x00), Z5, Z3, Z6)
	VPCLMULQDQ(U8(0x11), Z5, Z3, Z7)
	VPXORQ(Z6, Z7, Z7) // the constants of the last lane are zero
	VEXTRACTI32X4(U8(3), Z3, X3)
	VEXTRACTI64X4(U8(1), Z7, Y6)
	VPXORQ(Y6, Y7, Y7)
	VEXTRACTI32X4(U8(1), Y7, X6)
	VPTERNLOGQ(U8(xor3), X6, X7, X3)
	TESTQ(n, n)
	JZ(LabelRef("reduce"))
	VMOVDQU(Mem{Base: k, Disp: off16}, X5)
	Label("by16")
	VPCLMULQDQ(U8(0x00), X5, X3, X6)
	VPCLMULQDQ(U8(0x11), X5, X3, X3)
	next(0, X6, X3, X10)
	advance(16)
	JNZ(LabelRef("by16"))

	reduce(k, off8)
}

// reduce generates the end of a kernel: it reduces the 16 bytes in X3 with the constants
// at off8.
func reduce(k Register, off8 int) {
	Label("reduce")
	VMOVDQU(Mem{Base: k, Disp: off8}, X5)
	VPCLMULQDQ(U8(0x00), X5, X3, X6) // first 8 bytes, moved to the last
	VPSRLDQ(U8(8), X3, X3)
	VPXOR(X6, X3, X3)
	VPSLLQ(U8(32), X3, X6) // first 4 bytes of the result
	VPSRLQ(U8(32), X6, X6)
	VPCLMULQDQ(U8(0x10), X5, X6, X6)
	VPSRLDQ(U8(4), X3, X3)
	VPXOR(X6, X3, X3)
	VMOVDQU(Mem{Base: k, Disp: off8 + 16}, X5)
	VMOVD(X3, EAX)
	VMOVD(EAX, X6)
	VPCLMULQDQ(U8(0x00), X5, X6, X6)
	VMOVD(X6, EAX)
	VMOVD(EAX, X6)
	VPCLMULQDQ(U8(0x10), X5, X6, X6)
	VPXOR(X6, X3, X3)
	VPEXTRD(U8(1), X3, EAX)
	Store(EAX, ReturnIndex(0))
	VZEROUPPER()
	RET()
}
