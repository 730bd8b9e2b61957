package main

// #include "memory.h"
import "C"

import (
	"unsafe"

	"github.com/softmkey/softmkey/bench/isal"
	"github.com/softmkey/softmkey/internal/tool/bench"
)

// memcpy returns the case that copies b, of DataSize bytes, with the C library.
func memcpy(b []byte) bench.Case {
	dst := make([]byte, len(b))
	return bench.Case{Name: "memcpy", Work: bench.DataSize, Run: func(times int) {
		isal.RepeatCopy(dst, b, times)
	}}
}

// reading returns the case that only reads b, of DataSize bytes.
func reading(b []byte) bench.Case {
	return bench.Case{Name: "reading", Work: bench.DataSize, Run: func(times int) {
		C.read_repeat((*C.uint8_t)(unsafe.SliceData(b)), C.size_t(len(b)), C.size_t(times))
	}}
}
