// Command aesxts generates the amd64 assembly of internal/base/kernel/aesxts. Run it by
// "go generate" in that folder.
package main

import (
	"flag"
	"fmt"
	"os"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Offsets in Go's type schedule.
const (
	offEnc1   = 0
	offDec1   = 15 * 16
	offEnc2   = 30 * 16
	offRounds = 45 * 16
	offWide   = 48 * 16
)

// Offsets in Go's type run.
const (
	runDst       = 0
	runSrc       = 8
	runDstStride = 16
	runSrcStride = 24
	runUnit      = 32
	runN         = 40
	runLo        = 48
	runHi        = 56
)

func main() {
	tier := flag.String("tier", "", "avx512, vaes, avx2, or limit for the loops of roundlimit")
	// avo defines -out and -pkg. The declarations are written by hand, as their types
	// are the package's and must be there before this program has run.
	flag.Parse()
	ConstraintExpr("!purego")
	switch *tier {
	case "avx512":
		avx512()
	case "vaes":
		vaes()
	case "avx2":
		avx2()
	case "limit":
		limit()
	default:
		fmt.Fprintln(os.Stderr, "aesxts: -tier must be avx512, vaes, avx2 or limit")
		os.Exit(2)
	}
	Generate()
}

// mem is shorthand for a memory operand.
func mem(base Register, disp int) Mem { return Mem{Base: base, Disp: disp} }

// xor3 is VPTERNLOG's truth table of a ^ b ^ c.
const xor3 = 0x96

// kernelName names a kernel after its direction, key size and instructions.
func kernelName(rounds int, decrypt bool, tier string) string {
	dir := "encrypt"
	if decrypt {
		dir = "decrypt"
	}
	return fmt.Sprintf("%s%d%s", dir, map[int]int{10: 128, 14: 256}[rounds], tier)
}

func aesRound(decrypt bool, key, s Op) {
	if decrypt {
		VAESDEC(key, s, s)
	} else {
		VAESENC(key, s, s)
	}
}

func aesLast(decrypt bool, key, s Op) {
	if decrypt {
		VAESDECLAST(key, s, s)
	} else {
		VAESENCLAST(key, s, s)
	}
}

// A stream is a row of instructions that is emitted later, by itself or in shares
// between others.

// run emits a whole stream.
func run(stream []func()) {
	for _, f := range stream {
		f()
	}
}

// share emits the part of a stream that is due in slot i.
func share(stream []func(), i, slots int) {
	run(stream[i*len(stream)/slots : (i+1)*len(stream)/slots])
}
