// Command crc generates the assembly of internal/base/kernel/crc. "go generate" runs it
// in that folder. The constants are computed in the Go package: see tables.go.
package main

import (
	"flag"
	"fmt"
	"os"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Offsets in the Go type run. A test of the package checks them.
const (
	runWant        = 0
	runSrc         = 8
	runDst         = 16
	runFields      = 24
	runSrcStride   = 32
	runDstStride   = 40
	runFieldStride = 48
	runN           = 56
	runSize        = 64
	runTable       = 72
	runConsts      = 80
	runFix         = 88
	runTag         = 96
	runStep        = 104
	runAction      = 112
	runDiff        = 120
	runCount       = 128
)

// Values of the Go type action: the use of the fields.
const (
	actNone     = 0
	actStore8   = 1
	actStore4   = 2
	actCompare8 = 3
	actCompare4 = 4
)

func main() {
	tier := flag.String("tier", "", "avx512, vaes, avx2 or neon")
	// avo defines -out and -pkg. The declarations are written by hand: they use types
	// of the package and must exist before this program runs.
	flag.Parse()
	ConstraintExpr("!purego")
	switch *tier {
	case "neon":
		neon()
		return
	case "avx512":
		avx512()
	case "vaes":
		vaes()
	case "avx2":
		avx2()
	default:
		fmt.Fprintln(os.Stderr, "crc: -tier must be avx512, vaes, avx2 or neon")
		os.Exit(2)
	}
	Generate()
}

// mem is shorthand for a memory operand.
func mem(base Register, disp int) Mem { return Mem{Base: base, Disp: disp} }

// idx is shorthand for a memory operand with an index register.
func idx(base, index Register, disp int) Mem {
	return Mem{Base: base, Index: index, Scale: 1, Disp: disp}
}

// load64 returns a register that holds a field of the run.
func load64(run Register, off int) GPVirtual {
	r := GP64()
	MOVQ(mem(run, off), r)
	return r
}

// labels makes label names unique within a function, as the assembler requires.
var labelCount int

func label(name string) string {
	labelCount++
	return fmt.Sprintf("%s%d", name, labelCount)
}

// eachField generates the code that stores or compares the fields of count blocks, whose
// values are at values. It destroys values and count.
func eachField(run, values, count Register) {
	fields, stride, action, diff := load64(run, runFields), load64(run, runFieldStride), load64(run, runAction), GP64()
	done, stored := label("done"), label("stored")
	CMPQ(action, U8(actNone))
	JE(LabelRef(done))
	XORQ(diff, diff)

	for i, a := range []struct {
		name string
		code int
		body func(value, field Mem)
	}{
		{"compare8", actCompare8, func(value, field Mem) {
			x := GP64()
			MOVQ(value, x)
			XORQ(field, x)
			ORQ(x, diff)
		}},
		{"store8", actStore8, func(value, field Mem) {
			x := GP64()
			MOVQ(value, x)
			MOVQ(x, field)
		}},
		{"compare4", actCompare4, func(value, field Mem) {
			x := GP64()
			MOVL(value, x.As32())
			XORL(field, x.As32())
			ORQ(x, diff)
		}},
		{"store4", actStore4, func(value, field Mem) {
			x := GP64()
			MOVL(value, x.As32())
			MOVL(x.As32(), field)
		}},
	} {
		next, each, last := label("not"+a.name), label(a.name), i == 3
		if !last {
			CMPQ(action, U8(a.code))
			JNE(LabelRef(next))
		}
		Label(each)
		a.body(mem(values, 0), mem(fields, 0))
		ADDQ(stride, fields)
		ADDQ(U8(8), values)
		DECQ(count)
		JNZ(LabelRef(each))
		if !last {
			JMP(LabelRef(stored))
			Label(next)
		}
	}
	Label(stored)
	ORQ(diff, mem(run, runDiff))
	MOVQ(fields, mem(run, runFields))
	Label(done)
}
