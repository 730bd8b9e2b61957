package stdfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// closed reports whether Go has opened f in the place of a closed file: f is the null device,
// open for reading and writing, and its open file is neither another standard file nor
// that of the parent process. Shells open the null device for one of the two; programs that
// open it for both, such as Python and daemons, use one open file for several descriptors or
// have it themselves.
func closed(f *os.File) bool {
	fd := int(f.Fd())
	var stat unix.Stat_t
	if unix.Fstat(fd, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFCHR || stat.Rdev != unix.Mkdev(1, 3) {
		return false
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR {
		return false
	}
	for other := range 3 {
		if other != fd && same(os.Getpid(), other, fd) || same(os.Getppid(), other, fd) {
			return false
		}
	}
	return true
}

// same reports whether a descriptor of a process is of the same open file as one of this process.
func same(pid, theirs, ours int) bool {
	const file = 0 // KCMP_FILE
	order, _, err := unix.Syscall6(unix.SYS_KCMP, uintptr(pid), uintptr(os.Getpid()), file, uintptr(theirs), uintptr(ours), 0)
	return err == 0 && order == 0
}
