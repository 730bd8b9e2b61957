//go:build linux && (amd64 || arm64)

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// lab is a run whose supervisor is this process, so that a test sees the
// supervisor's goroutines, descriptors and memory. Its program is a shell that
// executes one line after the other.
type lab struct {
	t     *testing.T
	in    *os.File
	out   *bufio.Reader
	pipes []*os.File
	ended chan error
}

// newLab starts a run with flags as the command line has them.
func newLab(t *testing.T, flags ...string) *lab {
	t.Helper()
	l := &lab{t: t, ended: make(chan error, 1)}
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		fatal.If(t, err)
		l.pipes = append(l.pipes, r, w)
		return r, w
	}
	t.Cleanup(l.closePipes)
	stdin, in := pipe()
	out, stdout := pipe()
	c, f := newRunFlags()
	fatal.If(t, c.ParseFlags(append(wireFlags(), flags...)))
	l.in, l.out = in, bufio.NewReader(out)
	go func() {
		const shell = `while IFS= read -r line; do eval "$line" </dev/null; printf '\nstatus %d\n' $?; done`
		l.ended <- f.run([]string{"bash", "-c", shell}, [3]*os.File{stdin, stdout, os.Stderr})
		stdout.Close()
	}()
	return l
}

func (l *lab) closePipes() {
	for _, p := range l.pipes {
		p.Close()
	}
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
			fatal.If(l.t, err)
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

// footprint returns the footprint of the supervisor while only its shell runs. The shell may answer
// before the run has started all of its goroutines, so footprint waits for these.
func (l *lab) footprint() footprint {
	l.t.Helper()
	l.must("true")
	for !strings.Contains(allStacks(), "intercept.(*Supervisor).Wait(") {
		time.Sleep(time.Millisecond)
	}
	return measure(l.t, true)
}

// end ends the shell and the run.
func (l *lab) end() {
	l.t.Helper()
	l.in.Close()
	var status programStatus
	if err := <-l.ended; err != nil && !errors.As(err, &status) {
		l.t.Error(err)
	}
	l.closePipes()
}

// footprint is what a supervisor holds: goroutines by the function that started them,
// descriptors by the kind of their file, and mappings of files that are made for programs.
type footprint struct {
	held           map[string]int
	heap, resident uint64
}

// measure returns the footprint of this process, without the tests' own goroutines. The watchpoints
// of living threads count only if watchpoints is set, because the number of those of a running
// program changes all the time.
func measure(t *testing.T, watchpoints bool) footprint {
	t.Helper()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	f := footprint{held: map[string]int{}, heap: m.HeapAlloc}
	for _, stack := range strings.Split(allStacks(), "\n\n") {
		_, by, ok := strings.Cut(stack, "\ncreated by ")
		by, _, _ = strings.Cut(by, " in goroutine")
		helper := strings.Contains(stack, "pump.(*helpers)") // begins with the first program that spins
		if ok && !helper && !strings.HasPrefix(by, "testing.") && !strings.HasPrefix(by, "runtime.") {
			f.held["goroutine of "+by]++
		}
	}
	fds, err := os.ReadDir("/proc/self/fd")
	fatal.If(t, err)
	for _, d := range fds {
		file, err := os.Readlink("/proc/self/fd/" + d.Name())
		if err != nil {
			continue // the descriptor of ReadDir itself
		}
		kind, _, _ := strings.Cut(file, ":[") // without the inode
		if file == "anon_inode:[perf_event]" {
			if kind = "watchpoint of a thread that lives"; threadEnded(t, d.Name()) {
				kind = "watchpoint of a thread that has ended"
			} else if !watchpoints {
				continue
			}
		}
		f.held["descriptor of "+kind]++
	}
	for line := range strings.Lines(string(readFile(t, "/proc/self/maps"))) {
		if i := strings.Index(line, "/memfd:"); i >= 0 {
			f.held["mapping of "+strings.TrimSpace(line[i:])]++
		}
	}
	pages, _ := strconv.ParseUint(strings.Fields(string(readFile(t, "/proc/self/statm")))[1], 10, 64)
	f.resident = pages * uint64(os.Getpagesize())
	return f
}

// threadEnded reports whether the thread of a watchpoint has ended. Then poll(2) reports POLLHUP for
// the watchpoint's descriptor.
func threadEnded(t *testing.T, fd string) bool {
	t.Helper()
	n, err := strconv.Atoi(fd)
	fatal.If(t, err)
	p := []unix.PollFd{{Fd: int32(n)}}
	unix.Poll(p, 0)
	return p[0].Revents&unix.POLLHUP != 0
}

func allStacks() string {
	stacks := make([]byte, 1<<20)
	return string(stacks[:runtime.Stack(stacks, true)])
}

// more returns a line for each kind of which now has more than before.
func (before footprint) more(now footprint) (more []string) {
	for kind, n := range now.held {
		if n > before.held[kind] {
			more = append(more, fmt.Sprintf("%d more than %d: %s", n-before.held[kind], before.held[kind], kind))
		}
	}
	slices.Sort(more)
	return more
}

// warmUp makes the Go runtime create what it keeps until the end of the process: the poller, the
// goroutine for signals, and what it needs to find out whether the system has pidfds. It also makes
// udptest open the socket that reserves this process's loopback addresses.
func warmUp(t *testing.T) {
	t.Helper()
	ownAddress(1)
	r, w, err := os.Pipe()
	fatal.If(t, err)
	r.Close()
	w.Close()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGCONT)
	signal.Stop(signals)
	fatal.If(t, exec.Command("true").Run())
}

// settle waits until the supervisor holds nothing that it did not hold before, because it learns of
// the end of a process a little later. See measure for watchpoints.
func settle(t *testing.T, what string, before footprint, watchpoints bool) {
	t.Helper()
	var more []string
	for range 1500 {
		if more = before.more(measure(t, watchpoints)); len(more) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%s left\n%s\n%s", what, strings.Join(more, "\n"), allStacks())
}

// steady waits until a program that was started has made its objects, and returns the footprint
// with it.
func steady(t *testing.T, before footprint) footprint {
	t.Helper()
	last, same := before, 0
	for range 1500 {
		now := measure(t, false)
		if same++; !maps.Equal(now.held, last.held) {
			same = 0
		}
		if last = now; same == 10 && len(before.more(now)) > 0 {
			return now
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("the program makes no objects: %v", last.held)
	return last
}

// buildC builds a C program from sources, whose paths begin at testdata/hostile, and pair.c of the examples.
func buildC(t *testing.T, name string, sources ...string) string {
	t.Helper()
	examples := filepath.Join("..", "..", "examples", "c")
	program := filepath.Join(t.TempDir(), name)
	args := []string{"-Wall", "-O1", "-D_GNU_SOURCE", "-I", examples, "-o", program, filepath.Join(examples, "pair.c")}
	for _, s := range sources {
		args = append(args, filepath.Join("testdata", "hostile", s))
	}
	compile(t, "libibverbs-dev, librdmacm-dev", "gcc", append(args, "-libverbs", "-lmlx5", "-lrdmacm", "-lpthread")...)
	return program
}
