package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/tool/bench"
)

func TestWritable(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"", dir} {
		if err := writable(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := writable(filepath.Join(dir, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestFileName(t *testing.T) {
	for cpu, want := range map[string]string{
		"Intel(R) Xeon(R) Processor (family 6, model 167, stepping 1)": "intel-xeon-family-6-model-167",
		"AMD EPYC (family 25, model 1, stepping 1)":                    "amd-epyc-family-25-model-1",
		"Intel(R) Core(TM) i7-1185G7 CPU @ 3.00GHz":                    "intel-core-i7-1185g7",
		"Neoverse-V2": "neoverse-v2",
	} {
		if got := fileName(&bench.Machine{CPU: cpu}); got != want {
			t.Errorf("%s: %q, want %q", cpu, got, want)
		}
	}
}

// TestWriteKeepsOthers writes the reports of two processors, one of them twice.
func TestWriteKeepsOthers(t *testing.T) {
	dir := t.TempDir()
	for _, p := range []processor{
		{Report: bench.Report{Machine: bench.Machine{CPU: "one"}, Date: "2001-01-01"}},
		{Report: bench.Report{Machine: bench.Machine{CPU: "two"}, Date: "2002-02-02"}, Note: "On a busy machine."},
		{Report: bench.Report{Machine: bench.Machine{CPU: "one"}, Date: "2003-03-03"}},
	} {
		fatal.If(t, write(dir, &p))
	}
	page, err := os.ReadFile(filepath.Join(dir, "benchmarks.md"))
	fatal.If(t, err)
	for _, want := range []string{"## one\n", "## two\n", "2002-02-02", "2003-03-03", "On a busy machine.", "(benchmarks/two.json)"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(string(page), "2001-01-01") {
		t.Error("the page has the earlier run of the same processor")
	}
}

// Text that is added to the page itself, and not to a file of its parts, would be lost with the next run.
func TestPageIsRendered(t *testing.T) {
	dir := t.TempDir()
	const docs = "../../../docs"
	fatal.If(t, os.CopyFS(filepath.Join(dir, "benchmarks"), os.DirFS(filepath.Join(docs, "benchmarks"))))
	fatal.If(t, render(dir))
	got, err := os.ReadFile(filepath.Join(dir, "benchmarks.md"))
	fatal.If(t, err)
	want, err := os.ReadFile(filepath.Join(docs, "benchmarks.md"))
	fatal.If(t, err)
	if !bytes.Equal(got, want) {
		t.Error("docs/benchmarks.md is not what the files of docs/benchmarks give")
	}
}

// TestParseResults reads a result of each kind of program.
func TestParseResults(t *testing.T) {
	for text, want := range map[string]float64{
		" #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n 65536      8000             1623.62            641.48             0.010264\n---\n": 0.010264,
		" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n 8       5000          26.07          2036.12      64.36              63.01 \n":    64.36,
	} {
		if f, err := figures([]byte(text)); err != nil || f[4] != want {
			t.Errorf("%q: %v, %v, want %v", text, f, err, want)
		}
	}
	if _, err := figures([]byte("Couldn't connect to 127.0.0.1:18515\n")); err == nil {
		t.Error("a message is taken for a result")
	}
}
