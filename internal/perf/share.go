package perf

import (
	"fmt"
	"os"
	"runtime"
)

// Share limits this process to half of the machine's processors, and at least one,
// because the other side is a process on the same machine; back takes that back. With
// more, the threads of the two get into each other's way, and carry their caches from
// one processor to another: on two processors that costs a quarter of the bandwidth.
// Env is the environment in which the other process does the same.
//
// GOMAXPROCS in the environment is somebody's decision and stands.
func Share() (env []string, back func()) {
	const name = "GOMAXPROCS"
	if os.Getenv(name) != "" {
		return os.Environ(), func() {}
	}
	half := max(1, runtime.NumCPU()/2)
	before := runtime.GOMAXPROCS(half)
	return append(os.Environ(), fmt.Sprintf("%s=%d", name, half)), func() { runtime.GOMAXPROCS(before) }
}

// whole gives this process all processors for as long as both sides are in it.
func whole() (back func()) {
	before := runtime.GOMAXPROCS(runtime.NumCPU())
	return func() { runtime.GOMAXPROCS(before) }
}
