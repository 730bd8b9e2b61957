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
	runIn       = 128 // five vectors: tags and step of the input's fields, of the output's fields, and the mask
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
	for _, shifts := range []*Mem{nil, ShiftConstants()} {
		for _, rounds := range []int{10, 14} {
			for _, k := range []kernel{
				{name: "seal", sealed: true, generate: true},
				{name: "checkSeal", sealed: true, check: true, generate: true},
				{name: "open", XTS: XTS{Decrypt: true}, sealed: true, check: true},
				{name: "openSign", XTS: XTS{Decrypt: true}, sealed: true, check: true, generate: true},
				{name: "checkEncrypt", check: true},
				{name: "encryptSign", generate: true},
				{name: "checkDecrypt", XTS: XTS{Decrypt: true}, check: true},
				{name: "decryptSign", XTS: XTS{Decrypt: true}, generate: true},
			} {
				k.Rounds, k.Shifts = rounds, shifts
				k.Poly = func() Mem { return constant(cPoly) }
				k.Power = func(j int) Mem { return constant(cPowers + 64*j) }
				k.build()
			}
		}
	}
	Generate()
}
