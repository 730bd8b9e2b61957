//go:build linux && (amd64 || arm64)

package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// lab is a run whose supervisor is this process, so that a test sees the
// supervisor's goroutines, descriptors and memory. Its program is a shell that
// executes one line after the other.
type lab struct {
	t     *testing.T
	in    *os.File
	out   *bufio.Reader
	ended chan error
}

// newLab starts a run with flags as the command line has them.
func newLab(t *testing.T, flags ...string) *lab {
	t.Helper()
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		return r, w
	}
	stdin, in := pipe()
	out, stdout := pipe()
	c, f := newRunFlags()
	if err := c.ParseFlags(flags); err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, in: in, out: bufio.NewReader(out), ended: make(chan error, 1)}
	go func() {
		const shell = `while IFS= read -r line; do eval "$line" </dev/null; printf '\nstatus %d\n' $?; done`
		l.ended <- f.run([]string{"bash", "-c", shell}, [3]*os.File{stdin, stdout, os.Stderr})
		stdout.Close()
	}()
	t.Cleanup(func() { in.Close() })
	return l
}

// do executes a line of shell and returns its output and its exit status.
func (l *lab) do(line string) (string, int) {
	l.t.Helper()
	if _, err := io.WriteString(l.in, line+"\n"); err != nil {
		l.t.Fatal(err)
	}
	var printed strings.Builder
	for {
		text, err := l.out.ReadString('\n')
		if err != nil {
			l.t.Fatalf("%s: the run has ended: %v\n%s", line, err, printed.String())
		}
		if n, ok := strings.CutPrefix(text, "status "); ok {
			status, err := strconv.Atoi(strings.TrimSpace(n))
			if err != nil {
				l.t.Fatal(err)
			}
			return printed.String(), status
		}
		printed.WriteString(text)
	}
}

// must executes a line that has to succeed.
func (l *lab) must(line string) string {
	l.t.Helper()
	out, status := l.do(line)
	if status != 0 {
		l.t.Fatalf("%s: exit status %d: %s", line, status, out)
	}
	return out
}

// end ends the shell and the run.
func (l *lab) end() {
	l.t.Helper()
	l.in.Close()
	var status programStatus
	if err := <-l.ended; err != nil && !errors.As(err, &status) {
		l.t.Error(err)
	}
}

// footprint is the goroutines, descriptors and memory of a supervisor.
type footprint struct {
	goroutines, descriptors int
	heap, resident          uint64
}

func measure(t *testing.T) footprint {
	t.Helper()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, _ := strconv.ParseUint(strings.Fields(string(statm))[1], 10, 64)
	return footprint{runtime.NumGoroutine(), len(fds), m.HeapAlloc, pages * uint64(os.Getpagesize())}
}

// settle waits until the supervisor holds no more goroutines and descriptors than
// before: the end of a process reaches it a little later. The slack is for the
// runtime's own and for watchpoints.
func settle(t *testing.T, what string, before footprint) {
	t.Helper()
	const slack = 12
	var now footprint
	for range 500 {
		now = measure(t)
		if now.goroutines <= before.goroutines+slack && now.descriptors <= before.descriptors+slack {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	stacks := make([]byte, 1<<20)
	t.Errorf("after %s: %d goroutines and %d descriptors, before %d and %d\n%s", what,
		now.goroutines, now.descriptors, before.goroutines, before.descriptors, stacks[:runtime.Stack(stacks, true)])
}

// buildC builds a C program of testdata with pair.c of the examples.
func buildC(t *testing.T, name string, sources ...string) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skipf("NOT RUN: %v", err)
	}
	examples := filepath.Join("..", "..", "examples", "c")
	program := filepath.Join(t.TempDir(), name)
	args := []string{"-Wall", "-O1", "-D_GNU_SOURCE", "-I", examples, "-o", program, filepath.Join(examples, "pair.c")}
	for _, s := range sources {
		args = append(args, filepath.Join("testdata", "hostile", s))
	}
	if out, err := exec.Command("gcc", append(args, "-libverbs", "-lmlx5", "-lrdmacm", "-lpthread")...).CombinedOutput(); err != nil {
		t.Skipf("NOT RUN: %s does not build here (libibverbs-dev, librdmacm-dev): %s", name, out)
	}
	return program
}
