// Package xtsgen is the common part of the generators of package aesxts: the
// layout of a schedule, the rounds of AES, and the tweaks of the AVX-512 kernels.
package xtsgen

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Offsets in the type schedule of package aesxts.
const (
	OffEnc1   = 0
	OffDec1   = 15 * 16
	OffEnc2   = 30 * 16
	OffRounds = 45 * 16
	OffWide   = 48 * 16
)

// Offsets in the wide constants of one direction, and their size.
const (
	WideFirst = 0   // c: the first round key ^ the last
	WideLast  = 64  // the last round key L
	WideStep  = 128 // L*x^8m ^ L for m = 1 to 4
	WideSize  = 384
)

// Xor3 is VPTERNLOG's truth table of a ^ b ^ c.
const Xor3 = 0x96

// Ptr is shorthand for a memory operand.
func Ptr(base Register, disp int) Mem { return Mem{Base: base, Disp: disp} }

// A stream is a sequence of instructions that is generated later

// Run emits a whole stream.
func Run(stream []func()) {
	for _, f := range stream {
		f()
	}
}

// Share emits the part of a stream that is due in slot i.
func Share(stream []func(), i, slots int) {
	Run(stream[i*len(stream)/slots : (i+1)*len(stream)/slots])
}

// KernelName names a kernel after its direction, key size and instructions.
func KernelName(rounds int, decrypt bool, tier string) string {
	dir := "encrypt"
	if decrypt {
		dir = "decrypt"
	}
	return fmt.Sprintf("%s%d%s", dir, map[int]int{10: 128, 14: 256}[rounds], tier)
}

// Round is a round of AES but the last.
func Round(decrypt bool, key, s Op) {
	if decrypt {
		VAESDEC(key, s, s)
	} else {
		VAESENC(key, s, s)
	}
}

// LastRound is the last round of AES.
func LastRound(decrypt bool, key, s Op) {
	if decrypt {
		VAESDECLAST(key, s, s)
	} else {
		VAESENCLAST(key, s, s)
	}
}
