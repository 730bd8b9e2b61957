//go:build linux && (amd64 || arm64)

package main

import (
	"strings"
	"testing"
)

// TestRunExamples runs the C examples, which compare every byte with a reference.
func TestRunExamples(t *testing.T) {
	program := builtProgram(t)
	for _, e := range []struct {
		name  string
		ok    int      // lines of comparisons
		shows []string // parts of the output
	}{
		{name: "signature", ok: 5, shows: []string{"domain=wire block=2 offset=8208"}},
		{name: "crypto", ok: 5, shows: []string{"domain=wire block=3 offset=1560"}},
		{name: "accel", ok: 6},
		{name: "layout", ok: 20},
		{name: "blocks", ok: 5},
		{name: "absent", shows: []string{"absent: device memory for flow steering: EOPNOTSUPP", "absent: another object by DEVX: EREMOTEIO"}},
		{name: "completions", ok: 5},
		{name: "objects", ok: 7},
		{name: "domains", ok: 2, shows: []string{"domain=wire block=0 offset=0"}},
		{name: "pipelining", ok: 6, shows: []string{"domain=wire block=5 offset=2600"}},
	} {
		t.Run(e.name, func(t *testing.T) {
			out := runUnder(t, program, buildExample(t, e.name))
			if n := strings.Count(out, "ok: "); n != e.ok {
				t.Errorf("%d comparisons, want %d: %s", n, e.ok, out)
			}
			for _, part := range e.shows {
				if !strings.Contains(out, part) {
					t.Errorf("no %q: %s", part, out)
				}
			}
		})
	}
}
