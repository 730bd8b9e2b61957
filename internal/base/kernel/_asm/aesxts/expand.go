package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "github.com/softmkey/softmkey/internal/base/kernel/_asm/xtsgen"
)

// rcon holds the round constants of FIPS 197 (5.2).
var rcon = []uint64{0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x1b, 0x36}

// expand generates the key expansion (FIPS 197, 5.2) with AES instructions, whose time
// does not depend on the key, unlike that of table lookups.
func expand() {
	key, enc := RAX, RBX

	TEXT("expand128AESNI", NOSPLIT, "func(key, enc *byte)")
	Load(Param("key"), key)
	Load(Param("enc"), enc)
	VMOVDQU(Ptr(key, 0), X0)
	VMOVDQU(X0, Ptr(enc, 0))
	for i, c := range rcon {
		VAESKEYGENASSIST(Imm(c), X0, X2)
		VPSHUFD(Imm(0xff), X2, X2)
		expandWords(X0, X2)
		VMOVDQU(X0, Ptr(enc, 16*(i+1)))
	}
	wipeRegisters()
	RET()

	TEXT("expand256AESNI", NOSPLIT, "func(key, enc *byte)")
	Load(Param("key"), key)
	Load(Param("enc"), enc)
	VMOVDQU(Ptr(key, 0), X0)
	VMOVDQU(Ptr(key, 16), X3)
	VMOVDQU(X0, Ptr(enc, 0))
	VMOVDQU(X3, Ptr(enc, 16))
	for i := 2; i <= 14; i += 2 {
		VAESKEYGENASSIST(Imm(rcon[i/2-1]), X3, X2)
		VPSHUFD(Imm(0xff), X2, X2)
		expandWords(X0, X2)
		VMOVDQU(X0, Ptr(enc, 16*i))
		if i == 14 {
			break
		}
		Comment("The odd round keys have no rotation and no constant.")
		VAESKEYGENASSIST(Imm(0), X0, X2)
		VPSHUFD(Imm(0xaa), X2, X2)
		expandWords(X3, X2)
		VMOVDQU(X3, Ptr(enc, 16*(i+1)))
	}
	wipeRegisters()
	RET()

	TEXT("invertAESNI", NOSPLIT, "func(enc, dec *byte, rounds uint64)")
	dec, n := RCX, RDX
	Load(Param("enc"), enc)
	Load(Param("dec"), dec)
	Load(Param("rounds"), n)
	MOVQ(n, RSI)
	SHLQ(Imm(4), RSI)
	ADDQ(RSI, enc)
	VMOVDQU(Ptr(enc, 0), X0)
	VMOVDQU(X0, Ptr(dec, 0))
	DECQ(n)
	Label("middle")
	SUBQ(Imm(16), enc)
	ADDQ(Imm(16), dec)
	VAESIMC(Ptr(enc, 0), X0)
	VMOVDQU(X0, Ptr(dec, 0))
	DECQ(n)
	JNZ(LabelRef("middle"))
	VMOVDQU(Ptr(enc, -16), X0)
	VMOVDQU(X0, Ptr(dec, 16))
	wipeRegisters()
	RET()
}

// blocks generates AES of single blocks, for key wrap.
func blocks() {
	keys, rounds, block := RAX, RCX, RBX
	for _, decrypt := range []bool{false, true} {
		name := "encryptBlockAESNI"
		if decrypt {
			name = "decryptBlockAESNI"
		}
		TEXT(name, NOSPLIT, "func(keys *byte, rounds uint64, b *byte)")
		Load(Param("keys"), keys)
		Load(Param("rounds"), rounds)
		Load(Param("b"), block)
		VMOVDQU(Ptr(block, 0), X0)
		VPXOR(Ptr(keys, 0), X0, X0)
		DECQ(rounds)
		Label("round")
		ADDQ(Imm(16), keys)
		Round(decrypt, Ptr(keys, 0), X0)
		DECQ(rounds)
		JNZ(LabelRef("round"))
		LastRound(decrypt, Ptr(keys, 16), X0)
		VMOVDQU(X0, Ptr(block, 0))
		wipeRegisters()
		RET()
	}
}

// expandWords sets each word of x to the exclusive or of all words up to it and of t.
func expandWords(x, t VecPhysical) {
	VPSLLDQ(Imm(4), x, X1)
	VPXOR(X1, x, x)
	VPSLLDQ(Imm(8), x, X1)
	VPXOR(X1, x, x)
	VPXOR(t, x, x)
}

func wipeRegisters() { VZEROALL() }
