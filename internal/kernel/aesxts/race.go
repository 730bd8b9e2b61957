//go:build race

package aesxts

import (
	"runtime"
	"unsafe"
)

const raceEnabled = true

// readRange tells the race detector what assembly is going to read, which it
// cannot see by itself.
func readRange(b []byte, stride, unit, n int) {
	for i := range n {
		runtime.RaceReadRange(unsafe.Pointer(&b[i*stride]), unit)
	}
}

// writeRange tells the race detector what assembly is going to write.
func writeRange(b []byte, stride, unit, n int) {
	for i := range n {
		runtime.RaceWriteRange(unsafe.Pointer(&b[i*stride]), unit)
	}
}
