// Command fused generates the amd64 assembly of internal/base/kernel/fused. Run it by "go
// generate" in that folder.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Offsets in type schedule of package aesxts.
const (
	offEnc1 = 0
	offDec1 = 15 * 16
	offEnc2 = 30 * 16
	offWide = 48 * 16

	wideFirst = 0   // the first round key ^ the last
	wideLast  = 64  // the last round key L
	wideStep  = 128 // L*x^8m ^ L for m = 1 to 4
	wideSize  = 384 // of one direction
)

// Offsets in Go's type run.
const (
	runSrc      = 0
	runSrcTable = 8
	runDst      = 16
	runDstTable = 24
	runConsts   = 32
	runN        = 40
	runLo       = 48
	runHi       = 56
	runFields   = 64
	runDiff     = 72
	runSplits   = 80
	runScatter  = 88
	runTags     = 128 // from here on vectors
	runStep     = 192
	runMask     = 256
)

// Offsets in Go's type split.
const (
	splitAt      = 0
	splitPlace   = 16
	splitPieces  = 24 // two
	splitLengths = 40 // theirs
	splitSize    = 56
)

const blockSize = 512

func main() {
	ConstraintExpr("!purego")
	for _, rounds := range []int{10, 14} {
		for _, decrypt := range []bool{false, true} {
			k := kernel{rounds: rounds, decrypt: decrypt, keys: offEnc1, wide: offWide}
			if decrypt {
				k.keys, k.wide = offDec1, offWide+wideSize
			}
			k.generate()
		}
	}
	Generate()
}

// mem is shorthand for a memory operand.
func mem(base Register, disp int) Mem { return Mem{Base: base, Disp: disp} }

// xor3 is VPTERNLOG's truth table of a ^ b ^ c.
const xor3 = 0x96

// run emits a stream of instructions that stands by itself.
func run(stream []func()) {
	for _, f := range stream {
		f()
	}
}

// share emits the part of a stream that is due in slot n.
func share(stream []func(), n, slots int) {
	run(stream[n*len(stream)/slots : (n+1)*len(stream)/slots])
}
