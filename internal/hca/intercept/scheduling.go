//go:build linux && (amd64 || arm64)

package intercept

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/hca/pump"
)

// supervisorSlice is the time slice that the supervisor's threads ask for, in ns: the
// kernel's least.
const supervisorSlice = 100_000

// ShortSlices asks the scheduler for short time slices for this process. Programs
// that poll for completions keep every processor busy. Among equals, the kernel's
// scheduler (Linux 6.12 and newer) puts a thread that wakes up with a short slice in
// front of those with long ones; the share of the processor stays the same. It needs
// no privilege. Older kernels ignore it.
func ShortSlices() {
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		if id, err := strconv.Atoi(t.Name()); err == nil {
			setSlice(id, supervisorSlice)
		}
	}
}

// setSlice sets the time slice of a thread that is under the ordinary scheduler; 0 is
// the default.
func setSlice(thread int, ns uint64) {
	attr, err := unix.SchedGetAttr(thread, 0)
	if err != nil || attr.Policy != unix.SCHED_NORMAL {
		return
	}
	attr.Runtime = ns
	unix.SchedSetAttr(thread, attr, 0)
}

// lowered is by how much giveWay lowers the program's priority. A device's thread then gets three times as
// much of a processor that both want.
const lowered = 5

// giveWay lowers the priority of the calling thread, which the program inherits, if this process may
// not raise that of a device's thread. With equal priorities a thread and a program that spins on the same
// processor get equal times of it. A thread that has had its part waits for the kernel's next tick,
// up to 4 ms, while the program spins and waits for the thread.
func giveWay() {
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil || attr.Policy != unix.SCHED_NORMAL {
		return
	}
	own := attr.Nice
	if attr.Nice = pump.Priority(own); attr.Nice < own && unix.SchedSetAttr(0, attr, 0) == nil {
		attr.Nice = own
	} else {
		attr.Nice = min(own+lowered, 19)
	}
	unix.SchedSetAttr(0, attr, 0)
}

// OwnSession makes this process the leader of a new session, if that gives it a fair part
// of the processors, and reports whether it did. Processes that exist keep the session that
// they have. A process whose priority somebody has lowered stays in its session.
//
// Where the kernel groups processes by their session (autogroup), each session gets the same
// part of a processor, however many of its processes spin, and priorities count within a
// session only. The supervisor then has as much as all of its programs together, instead of as
// much as one of them. With CAP_SYS_NICE it also raises its session's priority. The leader of a
// process group cannot make a session: an interactive shell makes every command a leader, so
// that this works in scripts only.
func OwnSession() bool {
	grouped, _ := os.ReadFile("/proc/sys/kernel/sched_autogroup_enabled")
	attr, err := unix.SchedGetAttr(0, 0)
	if string(bytes.TrimSpace(grouped)) != "1" || err != nil || attr.Nice > 0 {
		return false
	}
	if _, err := unix.Setsid(); err != nil {
		return false
	}
	os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(pump.Nice)), 0) // refused without CAP_SYS_NICE
	return true
}
