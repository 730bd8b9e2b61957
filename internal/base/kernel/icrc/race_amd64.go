//go:build race && !purego

package icrc

import (
	"runtime"
	"unsafe"
)

// raceRead tells the race detector what assembly reads.
func raceRead(p []byte) {
	runtime.RaceReadRange(unsafe.Pointer(unsafe.SliceData(p)), len(p))
}

// raceWrite tells the race detector what assembly writes.
func raceWrite(p []byte) {
	runtime.RaceWriteRange(unsafe.Pointer(unsafe.SliceData(p)), len(p))
}
