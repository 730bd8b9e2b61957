package filelock

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// inherited are the files that Inherited has opened. They stay open until the process ends.
var inherited []*os.File

// Inherited locks a file that the process has inherited, such as standard input, until the
// process ends. It locks through a new open file: a lock on f itself would stay with the
// parent process, which shares it.
func Inherited(f *os.File, shared bool) error {
	info, err := f.Stat()
	if err != nil || !lockable(info) {
		return err
	}
	again, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return nil // no permission to read it, or no /proc
	}
	if err := lock(again, shared); err != nil {
		again.Close()
		if held, ok := err.(*HeldError); ok {
			held.Name = f.Name()
		}
		return err
	}
	inherited = append(inherited, again)
	return nil
}

// exclusive matches a lock in fdinfo.
var exclusive = regexp.MustCompile(`(?m)^lock:.*FLOCK +ADVISORY +WRITE`)

// ownLock reports whether one of the process's own descriptors has an exclusive lock on the
// file.
func ownLock(file os.FileInfo) bool {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return false
	}
	for _, fd := range fds {
		other, err := os.Stat(filepath.Join("/proc/self/fd", fd.Name()))
		if err != nil || !os.SameFile(other, file) {
			continue
		}
		about, err := os.ReadFile(filepath.Join("/proc/self/fdinfo", fd.Name()))
		if err == nil && exclusive.Match(about) {
			return true
		}
	}
	return false
}

// holder returns the program that has a lock on the file, as /proc/locks shows it, or "".
func holder(file os.FileInfo) string {
	stat, ok := file.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return ""
	}
	// A line is "1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF": the process and the file's
	// device and inode. The device of some file systems differs from that of stat.
	for line := range strings.Lines(string(locks)) {
		words := strings.Fields(line)
		if len(words) < 6 || words[1] != "FLOCK" || !strings.HasSuffix(words[5], fmt.Sprintf(":%d", stat.Ino)) {
			continue
		}
		if pid, err := strconv.Atoi(words[4]); err == nil && pid > 0 {
			return program(pid)
		}
	}
	return ""
}

// program returns the name and the number of a process: that of softmkey has its command.
func program(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	words := strings.Split(string(line), "\x00")
	name := filepath.Base(words[0])
	if name == "softmkey" && len(words) > 1 {
		name += " " + words[1]
	}
	if words[0] == "" {
		return fmt.Sprintf("process %d", pid)
	}
	if strings.ContainsFunc(name, func(r rune) bool { return !strconv.IsPrint(r) }) {
		name = strconv.Quote(name)
	}
	return fmt.Sprintf("%s (process %d)", name, pid)
}
