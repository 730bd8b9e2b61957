package transport

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/pci/guestmem"
)

// TestMapFile maps files as a guest's memory. Files on which an access could wait for ever are refused,
// and so are bytes that the file does not have.
func TestMapFile(t *testing.T) {
	memfd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	fatal.If(t, err)
	defer unix.Close(memfd)
	fatal.If(t, unix.Ftruncate(memfd, 0x4000))
	open := func(name string) int {
		f, err := os.Open(name)
		fatal.If(t, err)
		t.Cleanup(func() { f.Close() })
		return int(f.Fd())
	}
	pipe, other, err := os.Pipe()
	fatal.If(t, err)
	defer pipe.Close()
	defer other.Close()
	var m guestmem.Map
	defer m.Clear()
	for _, test := range []struct {
		name         string
		fd           int
		offset, size uint64
		want         string // of the error; empty: none
	}{
		{"memfd", memfd, 0x1000, 0x3000, ""},
		{"procfs, as a file system that does not answer", open("/proc/self/stat"), 0, 0x1000, "file system of type 0x9fa0"},
		{"folder", open(filepath.Dir(t.TempDir())), 0, 0x1000, "regular file"},
		{"pipe", int(pipe.Fd()), 0, 0x1000, "regular file"},
		{"beyond the end", memfd, 0x1000, 0x4000, "0x4000 bytes at 0x1000"},
		{"more bytes than a process has", memfd, 0, math.MaxUint64 &^ 0xfff, "of a file with 0x4000"},
		{"no bytes", memfd, 0, 0, "0x0 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := MapFile(&m, test.fd, test.offset, 0x100000, test.size, false)
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (!errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), test.want)):
				t.Errorf("%v, want EINVAL with %q", err, test.want)
			}
		})
	}
	// A guest whose IOMMU translates has a range for each page.
	for i := 1; i < guestmem.MaxRanges; i++ {
		fatal.If(t, MapFile(&m, memfd, 0, uint64(i)<<32, 0x1000, false))
	}
	if err := MapFile(&m, memfd, 0, 1<<60, 0x1000, false); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("one range more: %v, want ENOSPC", err)
	}
}
