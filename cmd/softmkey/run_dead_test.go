//go:build linux && (amd64 || arm64)

package main

import "testing"

// TestRunReusedNumber lets a process with a device end while another one holds its descriptor, and
// starts a process with its number: a peer does not reach the memory of the new one.
func TestRunReusedNumber(t *testing.T) {
	reused := buildC(t, "reused", "reused.c")
	warmUp(t)
	start := measure(t, true)
	l := newLab(t, "--device", ownAddress(5))
	before := l.footprint()
	t.Log(l.must(reused)) // without root the number is not used again: TestExecuted of procmem needs none
	settle(t, "the programs", before, true)
	l.end()
	settle(t, "the run", start, true)
}
