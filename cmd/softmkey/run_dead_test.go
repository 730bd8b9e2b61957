//go:build linux && (amd64 || arm64)

package main

import "testing"

// TestRunReusedNumber ends a process with a device while another process holds its descriptor, and
// starts a new process with the same process ID. A peer must not reach the memory of the new one.
func TestRunReusedNumber(t *testing.T) {
	reused := buildC(t, "reused", "reused.c")
	warmUp(t)
	start := measure(t, true)
	l := newLab(t, "--device", ownAddress(5))
	before := l.footprint()
	t.Log(l.must(reused)) // without root the process ID cannot be chosen; TestExecutedProgram of procmem tests the same
	settle(t, "the programs", before, true)
	l.end()
	settle(t, "the run", start, true)
}
