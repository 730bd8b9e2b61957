// Command crc generates the amd64 assembly of internal/kernel/crc. Run it by
// "go generate" in that folder. The constants that the code multiplies by are
// computed there too, in Go: see tables.go.
package main

import (
	"flag"
	"fmt"
	"os"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Offsets in Go's type run, checked there by a test.
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
)

// Values of Go's type action: what is done with the fields.
const (
	actNone     = 0
	actStore8   = 1
	actStore4   = 2
	actCompare8 = 3
	actCompare4 = 4
)

func main() {
	tier := flag.String("tier", "", "avx512 or avx2")
	// avo defines -out and -pkg. The declarations are written by hand, as their types
	// are the package's and must be there before this program has run.
	flag.Parse()
	ConstraintExpr("!purego")
	switch *tier {
	case "avx512":
		avx512()
	case "avx2":
		avx2()
	default:
		fmt.Fprintln(os.Stderr, "crc: -tier must be avx512 or avx2")
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

// labels makes label names unique within a function, which is all they must be.
var labelCount int

func label(name string) string {
	labelCount++
	return fmt.Sprintf("%s%d", name, labelCount)
}

// eachField emits the loop that stores or compares the fields of count blocks,
// whose values stand at want. The registers that only it needs live in the run, which
// belongs to the call: the folding loops have no register to spare. It destroys
// count.
func eachField(run, count Register) {
	done, store4, compare8, compare4 := label("done"), label("store4"), label("compare8"), label("compare4")
	action, want := load64(run, runAction), load64(run, runWant)
	end := GP64()
	LEAQ(Mem{Base: want, Index: count, Scale: 8}, end)
	MOVQ(end, mem(run, runWant))
	fields, stride := load64(run, runFields), load64(run, runFieldStride)

	loop := func(name string, body func(x GPVirtual)) {
		l := label(name)
		Label(l)
		body(GP64())
		ADDQ(stride, fields)
		ADDQ(U8(8), want)
		DECQ(count)
		JNZ(LabelRef(l))
	}
	stores := func(name string, body func(x GPVirtual)) {
		loop(name, body)
		MOVQ(fields, mem(run, runFields))
	}
	compares := func(name string, body func(x, diff GPVirtual)) {
		diff := load64(run, runDiff)
		loop(name, func(x GPVirtual) { body(x, diff) })
		MOVQ(diff, mem(run, runDiff))
		MOVQ(fields, mem(run, runFields))
	}

	CMPQ(action, U8(actCompare8))
	JE(LabelRef(compare8))
	CMPQ(action, U8(actStore8))
	JB(LabelRef(done))
	JA(LabelRef(store4))
	stores("store8s", func(x GPVirtual) {
		MOVQ(mem(want, 0), x)
		MOVQ(x, mem(fields, 0))
	})
	JMP(LabelRef(done))
	Label(compare8)
	compares("compare8s", func(x, diff GPVirtual) {
		MOVQ(mem(want, 0), x)
		XORQ(mem(fields, 0), x)
		ORQ(x, diff)
	})
	JMP(LabelRef(done))
	Label(store4)
	CMPQ(action, U8(actCompare4))
	JE(LabelRef(compare4))
	stores("store4s", func(x GPVirtual) {
		MOVL(mem(want, 0), x.As32())
		MOVL(x.As32(), mem(fields, 0))
	})
	JMP(LabelRef(done))
	Label(compare4)
	compares("compare4s", func(x, diff GPVirtual) {
		MOVL(mem(want, 0), x.As32())
		XORL(mem(fields, 0), x.As32())
		ORQ(x, diff)
	})
	Label(done)
}
