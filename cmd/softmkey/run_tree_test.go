//go:build linux && (amd64 || arm64)

package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// TestRunKilled kills a supervisor. Its programs must end, and its files must be removed.
func TestRunKilled(t *testing.T) {
	killRun(t, "sleep 1000 & echo started; exec sleep 1000")
	for range 10 {
		// This shell ends by itself, because it can no longer open files: between the end of the
		// run's listener and that of its socket, or later.
		killRun(t, "echo started; while : </dev/null; do :; done")
	}
}

func killRun(t *testing.T, script string) {
	t.Helper()
	c := exec.Command(builtProgram(t), "run", "--device", ownAddress(4), "--", "sh", "-c", script)
	out, err := c.StdoutPipe()
	fatal.If(t, err)
	fatal.If(t, c.Start())
	buf := make([]byte, 4096)
	var text string
	for !strings.Contains(text, "\n") {
		n, err := out.Read(buf)
		if err != nil {
			t.Skipf("NOT RUN: no device here: %v: %s", err, text)
		}
		text += string(buf[:n])
	}
	mine := treesOf(t, c.Process.Pid)
	if len(mine) != 1 {
		t.Fatalf("the run has the folders %v", mine)
	}
	c.Process.Signal(syscall.SIGKILL)
	for { // the pipe ends when the last process of the run has ended
		if _, err := out.Read(buf); err != nil {
			break
		}
	}
	c.Wait()
	for range 6000 {
		if _, err := os.Stat(mine[0]); errors.Is(err, fs.ErrNotExist) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%s is left", mine[0])
}

// treesOf returns the folders of runs that a process has open.
func treesOf(t *testing.T, pid int) []string {
	t.Helper()
	var found []string
	links, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "fd", "*"))
	fatal.If(t, err)
	for _, l := range links {
		to, _ := os.Readlink(l)
		if ok, _ := filepath.Match("softmkey-run-*", filepath.Base(to)); ok && (len(found) == 0 || found[0] != to) {
			found = append(found, to)
		}
	}
	return found
}
