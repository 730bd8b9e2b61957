//go:build race

package race

import (
	"runtime"
	"unsafe"
)

// Enabled reports whether the race detector is in use.
const Enabled = true

// Read tells the race detector that n pieces of size bytes in b, stride bytes apart, are read.
func Read(b []byte, stride, size, n int) { each(runtime.RaceReadRange, b, stride, size, n) }

// Write tells the race detector that n such pieces are written.
func Write(b []byte, stride, size, n int) { each(runtime.RaceWriteRange, b, stride, size, n) }

// each excludes the gaps, which other goroutines may use.
func each(f func(unsafe.Pointer, int), b []byte, stride, size, n int) {
	if stride == size {
		size, n = n*size, 1
	}
	for i := range n {
		f(unsafe.Pointer(&b[i*stride]), size)
	}
}
