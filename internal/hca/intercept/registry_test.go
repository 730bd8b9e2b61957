//go:build linux && (amd64 || arm64)

package intercept

import (
	"os"
	"path/filepath"
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
