//go:build race

package aesxts

import (
	"runtime"
	"unsafe"
)

const raceEnabled = true

// readRange reports to the race detector the memory that assembly reads.
func readRange(b []byte, stride, unit, n int) {
	eachRange(runtime.RaceReadRange, b, stride, unit, n)
}

// writeRange reports to the race detector the memory that assembly writes.
func writeRange(b []byte, stride, unit, n int) {
	eachRange(runtime.RaceWriteRange, b, stride, unit, n)
}

// eachRange excludes the gaps, which other goroutines may use.
func eachRange(f func(unsafe.Pointer, int), b []byte, stride, unit, n int) {
	if stride == unit {
		unit, n = n*unit, 1
	}
	for i := range n {
		f(unsafe.Pointer(&b[i*stride]), unit)
	}
}
