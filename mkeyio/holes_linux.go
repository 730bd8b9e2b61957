package mkeyio

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// hasHoles reports whether a file has fewer blocks than its length needs.
func hasHoles(info os.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode().IsRegular() && s.Blocks*512 < s.Size
}

// isHole reports whether the n bytes from off lie in a hole of the file, so that
// they need not be read to be known. It moves the file's own offset, which nobody
// uses.
func isHole(f *os.File, off, n int64) bool {
	data, err := f.Seek(off, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		// No data from here on: a hole at the end, unless the file has become
		// shorter, which reading will tell.
		data, err = f.Seek(0, io.SeekEnd)
	}
	return err == nil && data >= off+n
}
