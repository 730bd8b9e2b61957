package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/softmkey/softmkey/internal/tool/bench"
)

// folder is a folder with the softmkey command, built from this checkout.
type folder struct {
	parent string // the folder that it is in; empty: that for temporary files
	dir    string // empty until it is made
}

// build makes the folder, with the command, on the first call.
func (f *folder) build() {
	if f.dir == "" {
		f.dir = must(os.MkdirTemp(f.parent, "softmkey-bench-"))
		buildCommand(f.path("softmkey"))
	}
}

func (f *folder) path(name string) string { return filepath.Join(f.dir, name) }

// remove removes the folder if it exists.
func (f *folder) remove() {
	if f.dir != "" {
		os.RemoveAll(f.dir)
		f.dir = ""
	}
}

// files is a folder with a file to copy, sign and encrypt.
type files struct {
	folder
	size int
}

// make makes the folder and its files on the first call.
func (f *files) make() {
	if f.dir != "" {
		return
	}
	err := attempt(func() {
		f.build()
		f.fill()
		f.softmkey("dek", "generate", f.path("key"))
	})
	if err != nil {
		f.remove()
	}
	check(err)
}

// cacheDir returns a directory in memory if the system has one, because the system's delayed
// writes to a disk would disturb later measurements.
func cacheDir() string {
	const shm = "/dev/shm"
	if info, err := os.Stat(shm); err == nil && info.IsDir() {
		return shm
	}
	return os.TempDir()
}

// fill writes the input. It is random, because zeros would become holes.
func (f *files) fill() {
	in := must(os.Create(f.path("in")))
	_, err := io.CopyN(in, rand.NewChaCha8([32]byte{1}), int64(f.size))
	check(errors.Join(err, in.Close()))
}

func (f *files) softmkey(args ...string) { program(exec.Command(f.path("softmkey"), args...)) }

// program runs a program. The error for a failed one includes its output.
func program(c *exec.Cmd) {
	if out, err := c.CombinedOutput(); err != nil {
		check(fmt.Errorf("%s: %w: %s", strings.Join(append([]string{filepath.Base(c.Path)}, c.Args[1:]...), " "), err, bytes.TrimSpace(out)))
	}
}

// buildCommand builds the command, and the library of run beside it, from the main module of this checkout.
func buildCommand(to string) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/softmkey/softmkey").Output()
	if err != nil {
		check(fmt.Errorf("looking for the module (run this in its folder bench): %w", err))
	}
	for _, args := range [][]string{{"go", "build", "-o", to, "./cmd/softmkey"}, {"scripts/library.sh", filepath.Dir(to)}} {
		c := exec.Command(args[0], args[1:]...)
		c.Dir = strings.TrimSpace(string(root))
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		program(c)
	}
}

// fileJobs holds the commands on the file, and their inverses.
var fileJobs = []struct {
	operation string
	do, undo  []string
}{
	{
		"protect, T10-DIF",
		[]string{"protect", "--sig", "t10dif"},
		[]string{"strip", "--sig", "t10dif"},
	},
	{
		"tx, T10-DIF on the wire",
		[]string{"tx", "--wire", "t10dif"},
		[]string{"rx", "--wire", "t10dif"},
	},
	{
		"tx, row C",
		[]string{"tx", "--wire", "t10dif", "--crypto", "encrypt", "--order", "before", "--unit", "520"},
		[]string{"rx", "--wire", "t10dif", "--crypto", "encrypt", "--order", "before", "--unit", "520"},
	},
}

// rows returns rows that compare the command with cp.
func (f *files) rows() []bench.Row {
	cp := f.sampled("cp", func(out string) { program(exec.Command("cp", f.path("in"), out)) })
	var rows []bench.Row
	for _, j := range fileJobs {
		run := func(args []string, in, out string) {
			if j.operation == "tx, row C" {
				args = append(args[:len(args):len(args)], "--dek", f.path("key"))
			}
			f.softmkey(append(args[:len(args):len(args)], in, out)...)
		}
		rows = append(rows, bench.Row{
			Group: "files", Operation: j.operation, Size: f.size, Unit: bench.GBps,
			Ours:   f.sampled("softmkey", func(out string) { run(j.do, f.path("in"), out) }),
			Peer:   &cp,
			Target: 0.8,
			Check: func() error {
				return attempt(func() {
					f.make()
					defer os.Remove(f.path("out"))
					defer os.Remove(f.path("back"))
					run(j.do, f.path("in"), f.path("out"))
					run(j.undo, f.path("out"), f.path("back"))
					program(exec.Command("cmp", f.path("in"), f.path("back")))
				})
			},
		})
	}
	return rows
}

// sampled returns the case of a program that creates a file.
func (f *files) sampled(name string, run func(out string)) bench.Case {
	return sampled(name, func(time.Duration) float64 {
		out := f.path("out")
		defer os.Remove(out)
		start := time.Now()
		run(out)
		return float64(f.size) / float64(time.Since(start).Nanoseconds())
	})
}
