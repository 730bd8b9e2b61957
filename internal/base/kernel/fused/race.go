//go:build race

package fused

import (
	"runtime"
	"unsafe"
)

// readSide reports to the race detector the memory that assembly reads.
func readSide(s side, n, size int) { s.each(n, size, runtime.RaceReadRange) }

// writeSide reports to the race detector the memory that assembly writes.
func writeSide(s side, n, size int) { s.each(n, size, runtime.RaceWriteRange) }

func (s side) each(n, size int, f func(unsafe.Pointer, int)) {
	if s.base != nil {
		f(unsafe.Pointer(s.base), n*size)
		return
	}
	for _, p := range (*[MaxUnits]*byte)(s.table)[:n] {
		f(unsafe.Pointer(p), size)
	}
}

// accessSplits reports the pieces of splits.
func accessSplits(splits []split, write bool) {
	f := runtime.RaceReadRange
	if write {
		f = runtime.RaceWriteRange
	}
	for i := range splits {
		for k, p := range splits[i].pieces {
			f(unsafe.Pointer(p), int(splits[i].lengths[k]))
		}
	}
}
