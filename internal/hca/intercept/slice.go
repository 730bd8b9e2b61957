//go:build linux && (amd64 || arm64)

package intercept

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
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
