//go:build race && (amd64 || arm64) && !purego

package crc

import (
	"runtime"
	"unsafe"
)

// raceRead announces to the race detector the memory that assembly reads, which it cannot
// see by itself.
func raceRead(b []byte, stride, size, n int) {
	for i := range n {
		runtime.RaceReadRange(unsafe.Pointer(&b[i*stride]), size)
	}
}

// raceWrite announces the memory that assembly writes.
func raceWrite(b []byte, stride, size, n int) {
	for i := range n {
		runtime.RaceWriteRange(unsafe.Pointer(&b[i*stride]), size)
	}
}
