//go:build unix

package outfile

import (
	"errors"
	"os"
	"syscall"
)

// keepOwner gives f the owner of the file that it will replace, as far as the user
// may do that.
func keepOwner(f *os.File, old os.FileInfo) {
	if s, ok := old.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(s.Uid), int(s.Gid))
	}
}

// sameDevice reports whether two device nodes are of one device.
func sameDevice(a, b os.FileInfo) bool {
	sa, aok := a.Sys().(*syscall.Stat_t)
	sb, bok := b.Sys().(*syscall.Stat_t)
	return aok && bok && sa.Rdev == sb.Rdev
}

// syncDirectory flushes the entries of a directory to the disk.
func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if errors.Is(err, os.ErrPermission) {
		return nil // a directory that may not be read cannot be opened to flush it
	}
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}
