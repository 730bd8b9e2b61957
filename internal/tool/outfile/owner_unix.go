//go:build unix

package outfile

import (
	"errors"
	"os"
	"syscall"
)

// keepRights gives f the owner, the mode, the ACL and the extended attributes of the file that
// it will replace, as far as the user may do that. Nobody gets rights that the old file did not
// give.
func keepRights(f, old *os.File, info os.FileInfo) error {
	mode := info.Mode().Perm()
	was, known := info.Sys().(*syscall.Stat_t)
	if known {
		if f.Chown(int(was.Uid), int(was.Gid)) != nil {
			_ = f.Chown(-1, int(was.Gid)) // an owner may give a file to a group of theirs
		}
	}
	now, err := f.Stat()
	if err != nil {
		return err
	}
	// The rights of another group, or the mask of an ACL, would become those of the file's group.
	if is, ok := now.Sys().(*syscall.Stat_t); !known || !ok || is.Gid != was.Gid {
		mode &^= 0o070
	}
	if hasACL(old) {
		mode &^= 0o070 // keepAttributes restores them with the ACL
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	keepAttributes(f, old)
	return nil
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
