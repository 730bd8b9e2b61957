//go:build linux && (amd64 || arm64)

package intercept

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// siginfoPID returns si_pid, which follows the three ints and the alignment of
// siginfo_t on 64-bit systems.
func siginfoPID(info *unix.Siginfo) int {
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(info), 16)))
}

// descendants returns the living processes below pid.
func descendants(pid int) []int {
	var all []int
	queue := []int{pid}
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		for _, child := range children(p) {
			if !zombie(child) {
				all, queue = append(all, child), append(queue, child)
			}
		}
	}
	return all
}

// children returns the children of a process, with those that have ended.
func children(pid int) (all []int) {
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, t := range tasks {
		list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
		for _, f := range strings.Fields(string(list)) {
			if child, err := strconv.Atoi(f); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// zombie reports whether a process, all of its threads, has ended and waits for its parent.
func zombie(pid int) bool { return living(pid) == 0 }

// living returns the number of a thread of a process that has not ended, 0 if there is none. It is
// the process's own number, unless its first thread has ended (pthread_exit in main): then /proc
// lists the open files and the mappings of the process under its other threads only.
func living(pid int) int {
	if !ended(fmt.Sprintf("/proc/%d/stat", pid)) {
		return pid
	}
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, t := range tasks {
		if thread, err := strconv.Atoi(t.Name()); err == nil && thread != pid && !ended(fmt.Sprintf("/proc/%d/task/%d/stat", pid, thread)) {
			return thread
		}
	}
	return 0
}

// ended reports whether a file /proc/PID/stat is that of a thread that has ended.
func ended(file string) bool {
	stat, err := os.ReadFile(file)
	if err != nil {
		return true
	}
	i := bytes.LastIndexByte(stat, ')')
	return i < 0 || i+2 >= len(stat) || stat[i+2] == 'Z' || stat[i+2] == 'X'
}

// processes remembers the processes of threads that have called lately. To read a process from /proc takes as long as
// the whole of a short call.
type processes [64]atomic.Uint64 // a thread, and its process in the lower half; indexed with the thread modulo the length

// of returns the process that a thread belongs to.
func (p *processes) of(thread int) int {
	slot := &p[uint(thread)%uint(len(p))]
	// The number may be that of another thread meanwhile: tgkill finds a thread in its own process only.
	if v := slot.Load(); int(v>>32) == thread && unix.Tgkill(int(uint32(v)), thread, 0) == nil {
		return int(uint32(v))
	}
	process := processOf(thread)
	slot.Store(uint64(thread)<<32 | uint64(uint32(process)))
	return process
}

// processOf returns the process that a thread belongs to.
func processOf(thread int) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", thread))
	if err != nil {
		return thread
	}
	if pid, err := strconv.Atoi(field(status, "Tgid:")); err == nil {
		return pid
	}
	return thread
}

// field returns the value of a line of /proc/PID/status.
func field(status []byte, name string) string {
	i := bytes.Index(status, []byte("\n"+name))
	if i < 0 {
		return ""
	}
	rest := status[i+1+len(name):]
	if j := bytes.IndexByte(rest, '\n'); j >= 0 {
		rest = rest[:j]
	}
	return strings.TrimSpace(string(rest))
}

// signalled reports whether a signal is pending for the thread that is neither blocked nor
// ignored.
func signalled(thread int) bool {
	own, shared, _ := pending(thread)
	return own || shared
}

// pending reports whether a signal that the thread neither blocks nor ignores is pending for the thread
// itself, or for its process, and whether the process has no other thread. A thread that has ended
// counts as one with a signal.
func pending(thread int) (own, shared, sole bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", thread))
	if err != nil {
		return true, false, false
	}
	mask := func(name string) uint64 {
		n, _ := strconv.ParseUint(field(status, name), 16, 64)
		return n
	}
	kept := mask("SigBlk:") | mask("SigIgn:")
	return mask("SigPnd:")&^kept != 0, mask("ShdPnd:")&^kept != 0, field(status, "Threads:") == "1"
}
