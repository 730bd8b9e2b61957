//go:build linux && (amd64 || arm64)

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// TestRunExercises runs the exercises of docs/course.md, and looks for the sentence that the page has for each.
func TestRunExercises(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "course.md"))
	if err != nil {
		t.Fatal(err)
	}
	answers := regexp.MustCompile("(?m)^\\| ([0-9]) \\| `([^`]*)` \\|").FindAllSubmatch(page, -1)
	if len(answers) != 6 {
		t.Fatalf("the page has %d answers", len(answers))
	}
	program, exercises := builtProgram(t), buildExample(t, "exercises")
	for _, a := range answers {
		number, sentence := string(a[1]), strings.ReplaceAll(string(a[2]), `\|`, "|")
		out, err := exec.Command(program, "run", "--device", ownAddress(11), "-v", "--", exercises, number).CombinedOutput()
		if err == nil || !strings.Contains(string(out), sentence) {
			t.Errorf("exercise %s: %v, no %q in\n%s", number, err, sentence, out)
		}
	}
}
