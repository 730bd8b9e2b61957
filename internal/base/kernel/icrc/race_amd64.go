//go:build race && !purego

package icrc

import (
	"runtime"
	"unsafe"
)

// raceRead reports to the race detector the memory that assembly reads.
func raceRead(p []byte) {
	runtime.RaceReadRange(unsafe.Pointer(unsafe.SliceData(p)), len(p))
}

// raceWrite reports to the race detector the memory that assembly writes.
func raceWrite(p []byte) {
	runtime.RaceWriteRange(unsafe.Pointer(unsafe.SliceData(p)), len(p))
}
