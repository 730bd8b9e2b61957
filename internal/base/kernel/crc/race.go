//go:build race && (amd64 || arm64) && !purego

package crc

import (
	"runtime"
	"unsafe"
)

// raceRead tells the race detector what assembly is going to read, which it cannot
// see by itself.
func raceRead(b []byte, stride, size, n int) {
	for i := range n {
		runtime.RaceReadRange(unsafe.Pointer(&b[i*stride]), size)
	}
}

// raceWrite tells the race detector what assembly is going to write.
func raceWrite(b []byte, stride, size, n int) {
	for i := range n {
		runtime.RaceWriteRange(unsafe.Pointer(&b[i*stride]), size)
	}
}
