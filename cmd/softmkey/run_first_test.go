//go:build linux && (amd64 || arm64)

package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFirstKey compiles the program of docs/first-key.md. Its output must be that of the page, and
// the mistakes that the page describes must have the outcomes that it names.
func TestFirstKey(t *testing.T) {
	page := readFile(t, filepath.Join("..", "..", "docs", "first-key.md"))
	block := func(kind string) string {
		_, rest, _ := strings.Cut(string(page), "\n```"+kind+"\n")
		text, _, found := strings.Cut(rest, "\n```\n")
		if !found {
			t.Fatalf("the page has no block of kind %s", kind)
		}
		return text + "\n"
	}
	source := block("c")
	_, shown, _ := strings.Cut(block("console"), "$ softmkey run -- ./first\n")
	program := builtProgram(t)

	for _, test := range []struct {
		name, old, new string
		want           string // a part of the output, or all of it
	}{
		{name: "as it stands", want: shown},
		{"not inline", "qpx->wr_flags = IBV_SEND_INLINE;", "qpx->wr_flags = 0;", "ibv_wr_complete: error 95\n"},
		{"too few setters", "key, 3, &conf", "key, 2, &conf", "ibv_wr_complete: error 22\n"},
		{"too many setters", "key, 3, &conf", "key, 4, &conf", "is free: it must be configured before it is used"},
		{"no room", ".max_inline_data = 256", ".max_inline_data = 0", "ibv_wr_complete: error 12\n"},
		{"no signatures", " | MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE", "", "ibv_wr_complete: error 22\n"},
		{"not polled", "wait_for(near_cq, \"read\");", "", "field 3: guard f958 app 5678 ref 00000067\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.old != "" && testing.Short() {
				t.Skip("one run is enough for the short form: SOFTMKEY_LONG=1 makes every mistake")
			}
			changed := strings.Replace(source, test.old, test.new, 1)
			if test.old != "" && changed == source {
				t.Fatalf("the page has no %q", test.old)
			}
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, "first.c"), []byte(changed), 0o666)
			build := exec.Command("gcc", "-Wall", "-o", "first", "first.c", "-libverbs", "-lmlx5")
			build.Dir = dir
			if out, err := build.CombinedOutput(); err != nil {
				t.Skipf("NOT RUN: the page's program does not build here (gcc, libibverbs-dev): %s", out)
			} else if len(out) > 0 {
				t.Errorf("the compiler warns: %s", out)
			}
			// The exit status is ignored, because that of the mistakes is 1.
			out := runUnder(t, program, filepath.Join(dir, "first")+" 2>&1 || true")
			if !strings.Contains(out, test.want) || test.name == "not polled" && strings.Contains(out, "bad guard in") {
				t.Errorf("%s\nwant %s", out, test.want)
			}
		})
	}
}
