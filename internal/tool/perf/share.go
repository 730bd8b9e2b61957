package perf

import (
	"fmt"
	"os"
	"runtime"
)

// gomaxprocs is the environment variable by which a user sets the number of processors. If it
// is set, Share does nothing.
const gomaxprocs = "GOMAXPROCS"

// half is the number of processors for each of two processes on one machine.
var half = max(1, runtime.GOMAXPROCS(0)/2)

// Share limits this process to half of its processors, at least one, because the other
// side is a process on the same machine; back removes the limit. Without the limit, the
// threads of the two processes move between processors and lose their caches, which costs
// a quarter of the bandwidth on a machine with two processors.
func Share() (back func()) {
	if decided() {
		return func() {}
	}
	before := runtime.GOMAXPROCS(half)
	return func() { runtime.GOMAXPROCS(before) }
}

// ShareEnv returns the environment for the other process, which limits it to half of the
// processors, too.
func ShareEnv() []string {
	if decided() {
		return os.Environ()
	}
	return append(os.Environ(), fmt.Sprintf("%s=%d", gomaxprocs, half))
}

// decided reports whether the user has set the number of processors.
func decided() bool { return os.Getenv(gomaxprocs) != "" }
