//go:build race && (amd64 || arm64) && !purego

package crc

import (
	"runtime"
	"unsafe"
)

// raceRead reports to the race detector the memory that assembly reads.
func raceRead(b []byte, stride, size, n int) {
	for i := range n {
		runtime.RaceReadRange(unsafe.Pointer(&b[i*stride]), size)
	}
}

// raceWrite reports to the race detector the memory that assembly writes.
func raceWrite(b []byte, stride, size, n int) {
	for i := range n {
		runtime.RaceWriteRange(unsafe.Pointer(&b[i*stride]), size)
	}
}
