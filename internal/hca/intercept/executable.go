//go:build linux && (amd64 || arm64)

package intercept

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// An ExecError says why a program cannot be executed.
type ExecError struct {
	Path   string
	Errno  syscall.Errno
	Reason string
}

func (e *ExecError) Error() string { return e.Path + ": " + e.Reason }

// Is reports whether target is the errno of e.
func (e *ExecError) Is(target error) bool { return target == e.Errno }

// Status returns the exit status that a shell has for the program: 127 if it was not found,
// otherwise 126.
func (e *ExecError) Status() int {
	if e.Errno == unix.ENOENT || e.Errno == unix.ENOTDIR {
		return 127
	}
	return 126
}

// LookPath finds the program as execvp does. A file that cannot be executed, or whose system
// calls would not be seen, is an *ExecError.
func LookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	var missing *exec.Error
	switch {
	case err == nil, errors.Is(err, exec.ErrDot): // PATH names the current folder
	case errors.Is(err, exec.ErrNotFound):
		return "", &ExecError{quoted(name), unix.ENOENT, "no folder of PATH has this program"}
	case errors.As(err, &missing):
		errno := failure.Errno(missing.Err, syscall.EIO)
		if errno == unix.EIO { // an error of package os that has no errno
			errno = unix.EACCES
		}
		return "", &ExecError{quoted(name), errno, errno.Error()}
	default:
		return "", &ExecError{quoted(name), unix.EACCES, err.Error()}
	}
	if is32Bit(path) {
		return "", &ExecError{path, unix.ENOEXEC, "a 32-bit program: only the system calls of 64-bit programs are intercepted"}
	}
	return path, nil
}

// quoted returns a name that can be seen in a message.
func quoted(name string) string {
	if name == "" || strings.ContainsAny(name, " \n\t") {
		return fmt.Sprintf("%q", name)
	}
	return name
}

// LosesPrivilege reports why executing a program file would give a privilege that the kernel
// withholds under a filter: it "is setuid", "is setgid" or "has capabilities"; "" if it gives
// none.
func LosesPrivilege(path string) string {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return ""
	}
	size, err := unix.Getxattr(path, "security.capability", nil)
	switch {
	case st.Mode&unix.S_ISUID != 0 && int(st.Uid) != os.Geteuid():
		return "is setuid"
	case st.Mode&unix.S_ISGID != 0 && st.Mode&unix.S_IXGRP != 0 && int(st.Gid) != os.Getegid():
		return "is setgid"
	case err == nil && size > 0 && os.Geteuid() != 0:
		return "has capabilities"
	}
	return ""
}

// head returns the first bytes of a file. A file that may be executed but not read has none.
func head(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, 256)
	n, _ := f.Read(b)
	return b[:n]
}

// is32Bit reports whether a file is a program for the 32-bit system calls of this kernel.
// Programs of other processors, which binfmt_misc starts in an emulator, are not.
func is32Bit(path string) bool {
	b := head(path)
	if len(b) < 20 || string(b[:4]) != elf.ELFMAG || elf.Class(b[elf.EI_CLASS]) != elf.ELFCLASS32 {
		return false
	}
	switch elf.Machine(uint16(b[18]) | uint16(b[19])<<8) {
	case elf.EM_386, elf.EM_X86_64:
		return auditArch == unix.AUDIT_ARCH_X86_64
	case elf.EM_ARM:
		return auditArch == unix.AUDIT_ARCH_AARCH64
	}
	return false
}

// isScript reports whether a file that the kernel refused to execute is a text, which execvp
// gives to the shell.
func isScript(path string) bool {
	b := head(path)
	line, _, _ := bytes.Cut(b, []byte("\n"))
	return !bytes.HasPrefix(b, []byte(elf.ELFMAG)) && bytes.IndexByte(line, 0) < 0
}

// execError explains an errno of execve.
func execError(path string, errno syscall.Errno) error {
	e := &ExecError{path, errno, errno.Error()}
	switch errno {
	case unix.ENOENT: // of the program, or of the program that runs it
		if name := interpreter(path); name != "" {
			e.Reason = fmt.Sprintf("it needs %s, which does not exist", name)
		}
	case unix.ENOEXEC:
		e.Reason = "no program for this kernel and processor"
	}
	return e
}

// interpreter returns the program that runs a program: that of a script's first line, or the
// dynamic loader.
func interpreter(path string) string {
	if rest, ok := bytes.CutPrefix(head(path), []byte("#!")); ok {
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		if words := strings.Fields(string(line)); len(words) > 0 {
			return words[0]
		}
		return ""
	}
	f, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP && p.Filesz < unix.PathMax {
			b := make([]byte, p.Filesz)
			if _, err := p.ReadAt(b, 0); err == nil {
				return unix.ByteSliceToString(b)
			}
		}
	}
	return ""
}
