//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"path/filepath"
	"testing"
)

// TestRunWaits lets a request wait for a page for as long as another program takes to open the
// device, transfer and close it. Then the request succeeds.
func TestRunWaits(t *testing.T) {
	waits, neighbour := buildC(t, "waits", "waits.c"), buildC(t, "neighbour", "neighbour.c")
	warmUp(t)
	start := measure(t, true)
	l := newLab(t, "--device", ownAddress(7))
	l.must("true")
	before := measure(t, true)
	for _, mode := range []string{"source", "target", "read"} {
		t.Run(mode, func(t *testing.T) {
			l.t = t
			file := filepath.Join(t.TempDir(), "waits")
			out, status := l.do(fmt.Sprintf(`(%[1]s %[2]s %[3]s & while [ ! -e %[3]s.started ] && kill -0 $!; do sleep 0.01; done; `+
				`timeout 60 %[4]s 50; other=$?; touch %[3]s.go; wait $! || exit $?; exit $other)`, waits, mode, file, neighbour))
			if status == 77 {
				t.Skip(out)
			}
			if status != 0 {
				t.Errorf("exit status %d: %s", status, out)
			}
			settle(t, mode, before, true)
		})
	}
	l.t = t
	l.end()
	settle(t, "the run", start, true)
}
