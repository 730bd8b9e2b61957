// Command aesxts generates the amd64 assembly of internal/base/kernel/aesxts. "go
// generate" runs it in that folder.
package main

import (
	"flag"
	"fmt"
	"os"

	. "github.com/mmcloughlin/avo/build"
)

// Offsets in the Go type run.
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
	tier := flag.String("tier", "", "avx512, vaes or avx2")
	// avo defines -out and -pkg. The declarations are written by hand: they use types
	// of the package and must exist before this program runs.
	flag.Parse()
	ConstraintExpr("!purego")
	switch *tier {
	case "avx512":
		avx512()
	case "vaes":
		vaes()
	case "avx2":
		avx2()
	default:
		fmt.Fprintln(os.Stderr, "aesxts: -tier must be avx512, vaes or avx2")
		os.Exit(2)
	}
	Generate()
}
