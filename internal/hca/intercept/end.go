//go:build linux && (amd64 || arm64)

package intercept

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// grace is the time from SIGTERM to SIGKILL for the processes that outlive the program.
const grace = 2 * time.Second

// endOthers ends the processes that outlive the program or the supervisor: without a
// supervisor their next open would fail. They get SIGTERM, and SIGKILL when wait is over.
//
// The caller is a subreaper, and nobody else waits for its children. It returns when the caller
// has no child left, which is when no process of the tree is left: orphans become children.
func endOthers(wait time.Duration, cgroup string) {
	defer removeCgroup(cgroup)
	deadline := time.Now().Add(wait)
	for tries := 0; !childless(); tries++ {
		if time.Now().Before(deadline) {
			if tries%20 == 0 {
				terminate(descendants(os.Getpid()))
			}
			time.Sleep(time.Millisecond)
			continue
		}
		killCgroup(cgroup)
		// The children of a killed child become this process's, and are killed next. In a chain
		// of processes that fork and exit, one may exit between the list and the signal, so that
		// it takes many tries to kill the chain. The loop pauses only for processes that the
		// kernel does not let die.
		for _, pid := range children(os.Getpid()) {
			syscall.Kill(pid, syscall.SIGKILL) // its number is its own until childless reaps it
		}
		if tries%512 == 511 {
			time.Sleep(time.Millisecond)
		}
	}
}

// childless reaps the children that have ended, and reports whether there are no others.
func childless() bool {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG|unix.WALL, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return true // ECHILD
		case pid == 0:
			return false
		}
	}
}

// terminate sends SIGTERM to processes that were descendants when they were listed. Their numbers
// may belong to other processes by now.
func terminate(listed []int) {
	fds := map[int]int{}
	for _, pid := range listed {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			fds[pid] = fd
		}
	}
	still := descendants(os.Getpid())
	for pid, fd := range fds {
		if slices.Contains(still, pid) {
			unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0)
		}
		unix.Close(fd)
	}
}

// cgroupRoots are the places where systems mount the second version of control groups.
var cgroupRoots = []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}

// cgroupOf returns the control group for the program of a guard, which is in this process's own;
// "" where there are none of the second version.
func cgroupOf(guard int) string {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(own)) {
		path, ok := strings.CutPrefix(line, "0::")
		if !ok {
			continue
		}
		for _, root := range cgroupRoots {
			folder := filepath.Join(root, strings.TrimSpace(path))
			if _, err := os.Stat(filepath.Join(folder, "cgroup.procs")); err == nil {
				return filepath.Join(folder, "softmkey-run-"+strconv.Itoa(guard))
			}
		}
	}
	return ""
}

// makeCgroup makes a control group and opens it; nil if this user may not, or if the kernel
// (before 5.14) cannot kill a group at once.
func makeCgroup(path string) *os.File {
	if path == "" || os.Mkdir(path, 0o755) != nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(path, "cgroup.kill")); err == nil {
		if f, err := os.Open(path); err == nil {
			return f
		}
	}
	os.Remove(path)
	return nil
}

// killCgroup kills all processes of a control group at once, however they fork.
func killCgroup(path string) {
	if path != "" {
		os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0)
	}
}

// removeCgroup removes a control group whose processes have ended. The kernel takes a process out
// of its group a moment after the parent has learned of its end.
func removeCgroup(path string) {
	if path == "" {
		return
	}
	for range 1000 {
		if err := os.Remove(path); err == nil || os.IsNotExist(err) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
