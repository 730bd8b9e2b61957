//go:build race

package fused

import (
	"runtime"
	"unsafe"
)

// readRun tells the race detector what assembly is going to read, which it cannot see by
// itself.
func readRun(b *[MaxUnits]*byte, n, size int) {
	for _, p := range b[:n] {
		runtime.RaceReadRange(unsafe.Pointer(p), size)
	}
}

// writeRun tells the race detector what assembly is going to write.
func writeRun(b *[MaxUnits]*byte, n, size int) {
	for _, p := range b[:n] {
		runtime.RaceWriteRange(unsafe.Pointer(p), size)
	}
}
