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
	runLines       = 96
	runTag         = 104
	runStep        = 112
	runAction      = 120
	runDiff        = 128
	runValues      = 136
	runCount       = 144
	runGroups      = 152
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

// eachField generates the code that stores or compares the fields of blocks: count blocks
// whose values are at values or, if values is nil, eight blocks in the run's want. Its
// variables are in the run, because the folding loops have no free registers. It destroys
// values and count.
func eachField(run, values, count Register) {
	eight := values == nil
	if eight {
		v := load64(run, runValues)
		ADDQ(U8(64), mem(run, runValues))
		values = v
	}
	fields, stride, action, diff := load64(run, runFields), load64(run, runFieldStride), load64(run, runAction), GP64()
	done := label("done")
	CMPQ(action, U8(actNone))
	JE(LabelRef(done))
	XORQ(diff, diff)

	actions := []struct {
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
	}
	var stride3, fields4 GPVirtual
	if eight {
		stride3, fields4 = GP64(), GP64()
		LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, stride3)
		LEAQ(Mem{Base: fields, Index: stride, Scale: 4}, fields4)
	}
	for i, a := range actions {
		next := label("not" + a.name)
		if i < len(actions)-1 {
			CMPQ(action, U8(a.code))
			JNE(LabelRef(next))
		}
		if eight {
			for i := range 8 {
				base := fields
				if i >= 4 {
					base = fields4
				}
				at := mem(base, 0)
				switch i % 4 {
				case 1, 2:
					at = Mem{Base: base, Index: stride, Scale: uint8(i % 4)}
				case 3:
					at = Mem{Base: base, Index: stride3, Scale: 1}
				}
				a.body(mem(values, i*8), at)
			}
			LEAQ(Mem{Base: fields4, Index: stride, Scale: 4}, fields)
		} else {
			l := label(a.name)
			Label(l)
			a.body(mem(values, 0), mem(fields, 0))
			ADDQ(stride, fields)
			ADDQ(U8(8), values)
			DECQ(count)
			JNZ(LabelRef(l))
		}
		ORQ(diff, mem(run, runDiff))
		MOVQ(fields, mem(run, runFields))
		if i < len(actions)-1 {
			JMP(LabelRef(done))
			Label(next)
		}
	}
	Label(done)
}
