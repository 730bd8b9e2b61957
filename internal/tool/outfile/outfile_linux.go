package outfile

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openUnnamed opens a file without a name in the directory of name, the file that it will
// become. Errors of the file mention name. File systems without O_TMPFILE (NFS, vfat,
// overlayfs before Linux 6.3) return an error, and so does a system without /proc, which
// linkUnnamed needs to find the file.
func openUnnamed(name string, mode os.FileMode) (*os.File, error) {
	fd, err := unix.Open(filepath.Dir(name), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, uint32(mode.Perm()))
	if err != nil {
		return nil, err
	}
	if err := unix.Access(descriptor(uintptr(fd)), unix.F_OK); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// linkUnnamed gives the file its first name, which must be free.
func linkUnnamed(f *os.File, name string) error {
	return unix.Linkat(unix.AT_FDCWD, descriptor(f.Fd()), unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW)
}

func descriptor(fd uintptr) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }
