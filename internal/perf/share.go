package perf

import (
	"fmt"
	"os"
	"runtime"
)

// gomaxprocs in the environment is somebody's decision and stands.
const gomaxprocs = "GOMAXPROCS"

// all is how many processors the process may use.
var all = runtime.GOMAXPROCS(0)

// Share limits this process to half of its processors, and at least one,
// because the other side is a process on the same machine; back takes that back. With
// more, the threads of the two get into each other's way, and carry their caches from
// one processor to another: on two processors that costs a quarter of the bandwidth.
// Env is the environment in which the other process does the same.
func Share() (env []string, back func()) {
	env = os.Environ()
	if os.Getenv(gomaxprocs) != "" {
		return env, func() {}
	}
	half := max(1, all/2)
	return append(env, fmt.Sprintf("%s=%d", gomaxprocs, half)), procs(half)
}

// whole gives this process all processors for as long as both sides are in it.
func whole() (back func()) {
	if os.Getenv(gomaxprocs) != "" {
		return func() {}
	}
	return procs(all)
}

func procs(n int) (back func()) {
	before := runtime.GOMAXPROCS(n)
	return func() { runtime.GOMAXPROCS(before) }
}
