//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

// hostileModes are the modes of testdata/hostile with the rounds of the short
// form. The long form, SOFTMKEY_LONG=1, has 50 times as many.
var hostileModes = []struct {
	name   string
	rounds int
}{
	{"ioctls", 1}, {"changed_ioctls", 2}, {"cm_writes", 1}, {"maps", 1}, {"paths", 1}, {"descriptors", 1},
	{"wqes", 2}, {"bad_receives", 2}, {"unmapped", 6}, {"unread", 1},
	{"killed", 4}, {"stopped", 2}, {"forks", 1}, {"becomes_another", 1}, {"passed", 2}, {"closed", 2}, {"waits", 2}, {"hoard", 1},
}

// TestRunHostile runs hostile programs next to a program that transfers and checks bytes,
// which must not be affected.
func TestRunHostile(t *testing.T) {
	hostile := buildC(t, "hostile", "main.c", "calls.c", "queues.c", "processes.c")
	neighbour := buildC(t, "neighbour", "neighbour.c")
	factor, seed := 1, 1
	if os.Getenv("SOFTMKEY_LONG") != "" {
		factor, seed = 50, os.Getpid()
	}
	warmUp(t)
	start := measure(t, true)
	l := newLab(t, "--device", ownAddress(2))
	before := l.footprint()
	l.must(neighbour + " 1")
	settle(t, "the first program", before, true)
	l.must(neighbour + " & neighbour=$!")
	before = steady(t, before)
	for _, m := range hostileModes {
		t.Run(m.name, func(t *testing.T) {
			l.t = t
			start := time.Now()
			out := l.must(fmt.Sprintf("%s %s %d %d", hostile, m.name, seed, m.rounds*factor))
			settle(t, m.name, before, false)
			after := measure(t, false)
			t.Logf("%v, seed %d: heap %d, resident %d: %s", time.Since(start).Round(time.Millisecond), seed, after.heap, after.resident, out)
			if after.heap > before.heap+32<<20 {
				t.Errorf("the heap grew from %d to %d bytes", before.heap, after.heap)
			}
			if _, status := l.do("kill -0 $neighbour"); status != 0 {
				out, status := l.do("wait $neighbour")
				t.Fatalf("the neighbour ended with %d: %s", status, out)
			}
		})
	}
	l.t = t
	t.Logf("before: %+v", before)
	l.must("kill -TERM $neighbour; wait $neighbour")
	l.end()
	settle(t, "the run", start, true)
}

// TestRunMany runs many programs at once, all of which spin. The supervisor needs a higher
// priority than they have to get processor time.
func TestRunMany(t *testing.T) {
	neighbour := buildC(t, "neighbour", "neighbour.c")
	programs := 10
	if os.Getenv("SOFTMKEY_LONG") != "" {
		programs = 200
	}
	warmUp(t)
	start := measure(t, true)
	l := newLab(t, "--device", ownAddress(3))
	before := l.footprint()
	l.must(neighbour + " 1")
	settle(t, "the first program", before, true)
	l.must(`all=; for i in $(seq ` + strconv.Itoa(programs) + `); do nice -n 19 ` + neighbour + ` 10 >/dev/null & all="$all $!"; done; bad=0; for p in $all; do wait $p || bad=1; done; (exit $bad)`)
	settle(t, "the programs", before, true)
	l.end()
	settle(t, "the run", start, true)
}

// TestRunStarts runs programs whose hundred threads begin librdmacm while it asks for AF_IB.
func TestRunStarts(t *testing.T) {
	starts, device := buildC(t, "starts", "starts.c"), ownAddress(62)
	l := newLab(t, "--device", device)
	for step := 300; step < 700; step += 80 {
		l.must(fmt.Sprintf("%s %s %d", starts, device, step))
	}
	l.end()
}
