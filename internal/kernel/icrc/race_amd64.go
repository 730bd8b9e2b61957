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
