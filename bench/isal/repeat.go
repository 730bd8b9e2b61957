package isal

// #include "repeat.h"
import "C"

import "fmt"

// Op is an operation on interleaved blocks and fields.
type Op uint8

// The operations, in the order of enum dif_op. The first two work in place.
const (
	OpGenerate Op = iota
	OpVerify
	OpGenerateCopy
	OpVerifyCopy
)

// Repeat executes an operation on n blocks, as often as times says. It returns the number
// of the first bad block, or n.
func (d DIF) Repeat(op Op, dst, src []byte, n, times int) int {
	c := d.context()
	return int(C.dif_repeat(uint32(op), pointer(dst), pointer(src), C.uint32_t(n), &c, C.size_t(times)))
}

// Repeat runs the loop as often as times says. It returns the OR of all values, so that no call can be optimised away.
func (s Sum) Repeat(b []byte, stride, size, n, times int) uint64 {
	return uint64(C.sum_repeat(C.int(s), pointer(b), C.size_t(stride), C.size_t(size), C.size_t(n), C.size_t(times)))
}

// RepeatCopy calls the C library's memcpy, the limit of all copying operations, as often as times says.
func RepeatCopy(dst, src []byte, times int) {
	C.copy_repeat(pointer(dst), pointer(src), C.size_t(len(src)), C.size_t(times))
}

// Version returns the version of ISA-L at compile time.
func Version() string {
	return fmt.Sprintf("%d.%d.%d", C.ISAL_MAJOR_VERSION, C.ISAL_MINOR_VERSION, C.ISAL_PATCH_VERSION)
}
