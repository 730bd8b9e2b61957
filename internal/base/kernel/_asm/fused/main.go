// Command fused generates the amd64 assembly of internal/base/kernel/fused. "go generate"
// runs it in that folder.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"

	. "github.com/softmkey/softmkey/internal/base/kernel/_asm/xtsgen"
)

// Offsets in the Go type run.
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
	runTags     = 128 // vectors from here on
	runStep     = 192
	runMask     = 256
)

// Offsets in the Go type split.
const (
	splitAt      = 0
	splitPlace   = 16
	splitPieces  = 24 // two pointers
	splitLengths = 40 // two lengths
	splitSize    = 56
)

const blockSize = 512

func main() {
	ConstraintExpr("!purego")
	for _, rounds := range []int{10, 14} {
		for _, decrypt := range []bool{false, true} {
			k := kernel{XTS{
				Rounds: rounds, Decrypt: decrypt,
				Poly:  func() Mem { return constant(cPoly) },
				Power: func(j int) Mem { return constant(cPowers + 64*j) },
			}}
			k.generate()
		}
	}
	Generate()
}
