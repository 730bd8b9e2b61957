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

// isHole reports whether the n bytes from off lie in a hole of the file: they are zeros and
// need not be read. It moves the file's own offset, which the pipeline does not use.
func isHole(f *os.File, off, n int64) bool {
	data, err := f.Seek(off, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		// There is no data from off on: a hole at the end, or the file became shorter.
		// In the second case the read that follows fails.
		data, err = f.Seek(0, io.SeekEnd)
	}
	return err == nil && data >= off+n
}
