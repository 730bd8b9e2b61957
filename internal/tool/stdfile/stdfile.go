// Package stdfile finds out that a standard file was closed when the program began, as by
// the shell's <&- or >&-. Go opens the null device in the place of such a file: data that is
// read from there is an empty stream, and data that is written there is lost, both without an
// error.
package stdfile

import (
	"fmt"
	"os"
	"syscall"
)

// Check returns an error if f, one of os.Stdin and os.Stdout, was closed.
func Check(f *os.File) error {
	if !closed(f) {
		return nil
	}
	if f == os.Stdin {
		return fmt.Errorf("standard input is closed: %w", syscall.EBADF)
	}
	return fmt.Errorf("standard output is closed (to discard the output, name /dev/null): %w", syscall.EBADF)
}

// CheckName is Check for a name of the system that stands for one of the two files.
func CheckName(name string) error {
	switch name {
	case "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0":
		return Check(os.Stdin)
	case "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1":
		return Check(os.Stdout)
	}
	return nil
}
