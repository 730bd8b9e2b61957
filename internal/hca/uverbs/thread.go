//go:build linux

package uverbs

import (
	"bytes"
	"math/rand/v2"
	"os"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// thread controls the scheduling of a device's thread by the kernel. Programs with RDMA
// spin while they wait, so all processors are busy. The kernel then neither wakes the
// thread in time nor moves it away from a processor that it shares with another device's
// thread. All settings are hints; if the kernel refuses one, nothing changes.
type thread struct {
	allowed unix.CPUSet
	stat    *os.File // its schedstat; nil: it stays where the kernel puts it
	moves   int      // to another processor, ever
	checked time.Time
	waited  time.Duration // for a processor, ever
}

const (
	// shortSlice is the time slice that the thread asks for, in nanoseconds: the shortest
	// that Linux gives. Kernels before 6.12 ignore it.
	shortSlice = 100_000
	// niceness is the priority that the thread asks for, which needs CAP_SYS_NICE.
	niceness = -15
	// checkEvery is the time between two looks at how long the thread waits.
	checkEvery = 10 * time.Millisecond
	// mostWaiting is the part of the time, as a divisor, that it may wait for a processor.
	mostWaiting = 5
)

// newThread makes the calling thread the thread of a device. The caller's goroutine is
// locked to it.
func newThread() *thread {
	name := []byte("softmkey-device\x00")
	unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0)
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	if attr, err := unix.SchedGetAttr(0, 0); err == nil && attr.Policy == unix.SCHED_NORMAL {
		own := attr.Nice
		attr.Runtime, attr.Nice = shortSlice, min(own, niceness)
		if unix.SchedSetAttr(0, attr, 0) != nil {
			attr.Nice = own
			unix.SchedSetAttr(0, attr, 0)
		}
	}
	t := &thread{}
	if unix.SchedGetaffinity(0, &t.allowed) != nil {
		return t
	}
	if t.allowed.Count() > 1 {
		t.stat, _ = os.Open("/proc/thread-self/schedstat")
	}
	return t
}

// active is called while the device is busy, and moves the thread to another processor if
// it waits for its own too long. In half of the cases it stays, because the other thread on
// its processor may move, too. It is not bound to the new processor: when it wakes up, the
// kernel may place it on one that is idle.
func (t *thread) active(now time.Time) {
	if t.stat == nil || now.Sub(t.checked) < checkEvery {
		return
	}
	waited, ok := t.waiting()
	past := now.Sub(t.checked)
	moved := waited - t.waited
	t.checked, t.waited = now, waited
	if !ok || past > 2*checkEvery || moved < past/mostWaiting || rand.IntN(2) == 0 {
		return
	}
	others := t.allowed
	others.Clear(processor())
	if unix.SchedSetaffinity(0, &others) == nil {
		t.moves++
	}
	unix.SchedSetaffinity(0, &t.allowed)
}

// processor returns the number of the processor that the thread runs on.
func processor() int {
	var cpu uint32
	unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0)
	return int(cpu)
}

// waiting returns how long the thread has waited for a processor, which is the second number
// of schedstat.
func (t *thread) waiting() (time.Duration, bool) {
	var b [96]byte
	n, err := t.stat.ReadAt(b[:], 0)
	f := bytes.Fields(b[:n])
	if n == 0 && err != nil || len(f) < 2 {
		return 0, false
	}
	ns, err := strconv.ParseInt(string(f[1]), 10, 64)
	return time.Duration(ns), err == nil
}

func (t *thread) close() {
	if t.stat != nil {
		t.stat.Close()
	}
}

// rawPoll is ppoll as a raw system call, of which the Go scheduler is not notified.
func rawPoll(fds []unix.PollFd, timeout *unix.Timespec) {
	unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])), uintptr(len(fds)), uintptr(unsafe.Pointer(timeout)), 0, 0, 0)
}
