//go:build linux && (amd64 || arm64)

package intercept

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestClosedMeanwhile uses a file's descriptor while another goroutine closes the file, as
// happens to the queues of a process that is killed in the middle of mmap.
func TestClosedMeanwhile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queue")
	for range 100 {
		d, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		go d.Close()
		var st unix.Stat_t
		for err == nil {
			err = withFD(d, func(fd int) error { return unix.Fstat(fd, &st) })
		}
		if err != unix.EBADF {
			t.Fatalf("a closed file: %v, want EBADF", err)
		}
	}
}

// TestWithoutInotify runs the tests of released files for a user who has no inotify instance left.
// A user namespace has a limit of its own.
func TestWithoutInotify(t *testing.T) {
	if out, err := exec.Command("unshare", "-Ur", "true").CombinedOutput(); err != nil {
		t.Skipf("NOT RUN: no user namespace here: %v: %s", err, out)
	}
	c := exec.Command("unshare", "-Ur", "sh", "-c", `echo 0 >/proc/sys/user/max_inotify_instances || exit 77; exec "$0" -test.v -test.run '^(TestDevice|TestReleased.*)$'`, os.Args[0])
	out, err := c.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) || c.ProcessState.ExitCode() == 77 {
		t.Skipf("NOT RUN: no user namespace with a limit: %v: %s", err, out)
	}
	if err != nil || strings.Count(string(out), "--- PASS") != 3 {
		t.Errorf("%v: %s", err, out)
	}
}
