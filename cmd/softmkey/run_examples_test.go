//go:build linux && (amd64 || arm64)

package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRunExamples runs the C examples, which compare every byte with a reference.
func TestRunExamples(t *testing.T) {
	need(t, "gcc")
	dir, program := t.TempDir(), builtProgram(t)
	for _, e := range []struct {
		name  string
		libs  []string
		ok    int      // lines of comparisons
		shows []string // parts of the output
	}{
		{name: "signature", ok: 5, shows: []string{"domain=wire block=2 offset=8208"}},
		{name: "crypto", libs: []string{"-lcrypto"}, ok: 5, shows: []string{"domain=wire block=3 offset=1560"}},
		{name: "accel", libs: []string{"-lcrypto"}, ok: 6},
		{name: "layout", ok: 20},
		{name: "blocks", ok: 5},
		{name: "absent", shows: []string{"absent: device memory for flow steering: EOPNOTSUPP", "absent: another object by DEVX: EREMOTEIO"}},
		{name: "completions", ok: 5},
		{name: "objects", ok: 7},
		{name: "domains", ok: 2, shows: []string{"domain=wire block=0 offset=0"}},
		{name: "pipelining", ok: 6, shows: []string{"domain=wire block=5 offset=2600"}},
	} {
		t.Run(e.name, func(t *testing.T) {
			example := filepath.Join(dir, e.name)
			build := exec.Command("gcc", append([]string{"-Wall", "-O1", "-o", example, e.name + ".c", "pair.c", "-libverbs", "-lmlx5"}, e.libs...)...)
			build.Dir = filepath.Join("..", "..", "examples", "c")
			if out, err := build.CombinedOutput(); err != nil {
				t.Skipf("NOT RUN: the example does not build here (libibverbs-dev, libssl-dev): %s", out)
			}
			out := runUnder(t, program, example)
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
