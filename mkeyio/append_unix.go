//go:build unix

package mkeyio

import (
	"os"

	"golang.org/x/sys/unix"
)

// appends reports whether a file is in append mode. On Linux, writes with an offset then
// ignore the offset and append to the file.
func appends(f *os.File) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	var flags int
	if raw.Control(func(fd uintptr) { flags, err = unix.FcntlInt(fd, unix.F_GETFL, 0) }) != nil {
		return false
	}
	return err == nil && flags&unix.O_APPEND != 0
}
