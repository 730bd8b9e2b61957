package perf

import (
	"fmt"
	"os"
	"runtime"
)

// gomaxprocs in the environment is a decision of the user, which Share respects.
const gomaxprocs = "GOMAXPROCS"

// all is how many processors the process may use.
var all = runtime.GOMAXPROCS(0)

// half is the number of processors for each of two processes on one machine.
var half = max(1, all/2)

// Share limits this process to half of its processors, at least one, because the other
// side is a process on the same machine; back undoes that. With more processors the
// threads of the two processes migrate and lose their caches: on two processors that
// costs a quarter of the bandwidth.
func Share() (back func()) { return procs(half) }

// ShareEnv returns the environment in which the other process does the same.
func ShareEnv() []string {
	if decided() {
		return os.Environ()
	}
	return append(os.Environ(), fmt.Sprintf("%s=%d", gomaxprocs, half))
}

// whole gives this process all processors while both sides are in it.
func whole() (back func()) { return procs(all) }

// decided reports whether the environment says how many processors to use.
func decided() bool { return os.Getenv(gomaxprocs) != "" }

func procs(n int) (back func()) {
	if decided() {
		return func() {}
	}
	before := runtime.GOMAXPROCS(n)
	return func() { runtime.GOMAXPROCS(before) }
}
