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

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// TestClosedMeanwhile uses a file's descriptor while another goroutine closes the file, as
// happens to the queues of a process that is killed in the middle of mmap.
func TestClosedMeanwhile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queue")
	for range 100 {
		d, err := os.Create(path)
		fatal.If(t, err)
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

// TestLostEvents loses the event that the last copy of a file was closed, as when more come than inotify keeps.
func TestLostEvents(t *testing.T) {
	d, err := os.Create(filepath.Join(t.TempDir(), "queue"))
	fatal.If(t, err)
	defer d.Close()
	var r registry
	fatal.If(t, r.open())
	defer r.close()
	gone := make(chan bool, 1)
	copied, err := r.track(d, nil, func() { gone <- true })
	fatal.If(t, err)
	r.addCopy(copied)
	r.copyArrived(copied) // and its program has closed it
	r.event(-1, unix.IN_Q_OVERFLOW)
	if r.find(copied.ino) != nil {
		t.Fatal("the file is still tracked")
	}
	<-gone
}
