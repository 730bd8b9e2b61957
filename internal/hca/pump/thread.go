//go:build linux

package pump

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/assist"
)

// thread controls the scheduling of a device's thread by the kernel. Programs with RDMA
// spin while they wait, so all processors are busy. The kernel then neither wakes the
// thread in time nor moves it away from a processor that it shares with another device's
// thread. All settings are hints; if the kernel refuses one, nothing changes.
type thread struct {
	allowed unix.CPUSet     // processors that the thread may run on
	normal  *unix.SchedAttr // its scheduling while it moves no stream; nil: unknown
	bytes   func() uint64   // returns how many bytes the device has moved in total
	pids    func() []int    // returns the processes of the programs that had work lately
	stat    *os.File        // the thread's schedstat; nil: the thread is never moved
	moves   int             // how often the thread was moved to another processor
	bound   bool            // the thread is bound to some of the allowed processors
	beside  bool            // it runs on a processor that its programs do not use

	moving  bool      // the device moves a stream: streamBytes or more between the last two checks
	stream  bool      // the thread is scheduled in real time
	refused bool      // the system does not allow real time
	rests   int       // how often the thread gave up its processor
	rested  time.Time // time of the last rest

	// The programs that ran during the last call of observe, by process number.
	waits map[int]waits // how long they have waited for a processor
	where map[int]int   // the processors that they ran on

	// The following are totals at the time of the last check.
	checked time.Time     // time of that check
	moved   uint64        // result of bytes
	ran     time.Duration // time that the thread ran
	waited  time.Duration // time that the thread was runnable and had no processor

}

// Nice is the priority that a device's thread asks for, which needs CAP_SYS_NICE. A process with a
// higher one keeps its own.
const Nice = -15

const (
	// shortSlice is the time slice that the thread asks for, in nanoseconds: the shortest
	// that Linux gives. Kernels before 6.12 ignore the setting.
	shortSlice = 100_000
	// checkEvery is the time between two looks at how long the thread ran and waited.
	checkEvery = 10 * time.Millisecond
	// mostWaiting is the part of the time, as a divisor, that it may wait for a processor.
	mostWaiting = 5
	// streamBytes is how many bytes between two looks are a stream.
	streamBytes = 2 << 20
	// A thread in real time gives up its processor for restTime in every restEvery. The
	// program that the stream belongs to, other programs, and threads of this one that hold a
	// lock, need it.
	restEvery = 2 * time.Millisecond
	restTime  = 100 * time.Microsecond
	// mostRunning is the part of the time, as a divisor, that it may run without being bound.
	mostRunning = 2
)

// newThread makes the calling thread the thread of a device. The caller's goroutine is
// locked to it. bytes returns how many bytes the device has moved, and pids the processes of the
// programs that had work lately.
func newThread(bytes func() uint64, pids func() []int) *thread {
	t := &thread{bytes: bytes, pids: pids, normal: schedule("softmkey-device")}
	if unix.SchedGetaffinity(0, &t.allowed) != nil {
		return t
	}
	if t.allowed.Count() > 1 {
		t.stat, _ = os.Open("/proc/thread-self/schedstat")
	}
	return t
}

// schedule names the calling thread and asks for short slices and Nice. It returns what the kernel has granted;
// nil: unknown.
func schedule(name string) (normal *unix.SchedAttr) {
	unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&append([]byte(name), 0)[0])), 0, 0, 0)
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil || attr.Policy != unix.SCHED_NORMAL {
		return nil
	}
	own := attr.Nice
	attr.Runtime, attr.Nice = shortSlice, min(own, Nice)
	if unix.SchedSetAttr(0, attr, 0) != nil {
		attr.Nice = own
		unix.SchedSetAttr(0, attr, 0)
	}
	return attr
}

// active chooses how and where the kernel runs the thread while its device has work. The loop of the
// device calls it after each pass that has found work; active makes its choice every checkEvery. It
// takes the first of these cases that applies:
//
//   - The device moves a stream, which is streamBytes or more since the last check, and the system
//     allows real-time scheduling: the thread is scheduled in real time. It gives up its processor
//     for restTime in every restEvery.
//   - A processor is free of the device's programs: place binds the thread by where they run.
//   - The thread has waited for a processor for 1/mostWaiting of the time or more: another thread
//     uses the same processor. With a probability of one half the thread moves to another processor
//     and is bound to it. It does not always move, because the other thread may be that of another
//     device: if both always moved, they would meet again.
//   - The thread has run for 1/mostRunning of the time or more: it is bound to the processor on which
//     it is. Otherwise the kernel would move it: it wakes the receiver of a packet on the processor
//     of the sender, which puts the threads of two devices that exchange packets on one processor,
//     while a program that spins has the other one for itself.
//
// In all other cases, and after a pause of more than two checks, the kernel places the thread.
func (t *thread) active(now time.Time) {
	if t.stream && now.Sub(t.rested) >= restEvery {
		t.rested = now
		t.rests++
		ts := unix.NsecToTimespec(int64(restTime))
		rawPoll(nil, &ts)
	}
	if t.stat == nil || now.Sub(t.checked) < checkEvery {
		return
	}
	past, ran, waited, moved := now.Sub(t.checked), t.ran, t.waited, t.moved
	t.checked, t.moved = now, t.bytes()
	if !t.look() || past > 2*checkEvery {
		t.release()
		return
	}
	t.moving = t.moved-moved >= streamBytes
	t.realtime(t.moving, now)
	used, crowded := t.observe()
	switch {
	case t.stream: // the kernel moves it away from another thread in real time at once
	case t.place(used, crowded):
	case t.waited-waited >= past/mostWaiting:
		if rand.IntN(2) == 1 {
			others := t.allowed
			others.Clear(assist.Processor())
			if unix.SchedSetaffinity(0, &others) == nil {
				t.moves++
			}
			t.bind()
		}
	case t.ran-ran >= past/mostRunning:
		if !t.bound {
			t.bind()
		}
	default:
		t.release()
	}
}

// observe looks where the device's programs run. It returns their processors, and one of them that is
// crowded; -1: none is.
//
// A processor is crowded if two of the programs run on it, or if a program has to wait for it for
// longWait at a time, because a program of another run is there.
func (t *thread) observe() (used unix.CPUSet, crowded int) {
	crowded = -1
	before := t.waits
	t.waits, t.where = make(map[int]waits), make(map[int]int)
	for _, pid := range t.pids() {
		p := runningOn(pid)
		if p < 0 {
			continue
		}
		w, ok := waitsOf("/proc/" + strconv.Itoa(pid) + "/schedstat")
		if ok {
			t.waits[pid] = w
		}
		last, had := before[pid]
		if used.IsSet(p) || ok && had && w.since(last) >= longWait {
			crowded = p
		}
		used.Set(p)
		t.where[pid] = p
	}
	return used, crowded
}

// without returns the allowed processors that are not used.
func (t *thread) without(used unix.CPUSet) (free unix.CPUSet) {
	free = t.allowed
	for p := range len(free) * 64 {
		if used.IsSet(p) {
			free.Clear(p)
		}
	}
	return free
}

// place binds the thread by where the device's programs run, as observe has returned it, and reports whether
// it did. It does so if a program runs and at least one of the allowed processors has none.
//
// Usually the thread is bound to the processors without programs. A program can then answer while the
// thread polls. On the thread's own processor it could answer only while the thread naps.
//
// If a processor is crowded, the thread is bound to it. This leaves the thread's former processor idle, and
// the kernel moves one of the programs there. The kernel moves no program to a processor whose thread naps
// for microseconds only.
func (t *thread) place(used unix.CPUSet, crowded int) bool {
	free := t.without(used)
	t.beside = crowded < 0 && used.Count() > 0 && free.Count() > 0
	switch {
	case used.Count() == 0 || free.Count() == 0:
		return false
	case crowded >= 0:
		free.Zero()
		free.Set(crowded)
	}
	t.bound = true
	return unix.SchedSetaffinity(0, &free) == nil
}

// found reports where the last call of observe found programs: on the processor of the thread, on others.
func (t *thread) found(pids []int) (here, elsewhere bool) {
	own := assist.Processor()
	for _, pid := range pids {
		if p, ok := t.where[pid]; ok {
			here = here || p == own
			elsewhere = elsewhere || p != own
		}
	}
	return here, elsewhere
}

// longWait is how long a program waits for its processor at a time if another program spins there. A
// device's thread takes it for less.
const longWait = 500 * time.Microsecond

// waits is how long a thread has waited for a processor, and how often it was given one.
type waits struct {
	total time.Duration
	turns int64
}

// since returns the mean of the waits since an earlier time.
func (w waits) since(last waits) time.Duration {
	if w.turns <= last.turns {
		return 0
	}
	return (w.total - last.total) / time.Duration(w.turns-last.turns)
}

// waitsOf returns the waits of the thread that a schedstat is about.
func waitsOf(path string) (w waits, ok bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return w, false
	}
	_, w, ok = parseSchedstat(b)
	return w, ok
}

// parseSchedstat returns the numbers of a schedstat: how long the thread has run, how long it has waited,
// and how often it was given a processor.
func parseSchedstat(b []byte) (ran time.Duration, w waits, ok bool) {
	f := bytes.Fields(b)
	if len(f) < 3 {
		return 0, w, false
	}
	var n [3]int64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(string(f[i]), 10, 64); err != nil {
			return 0, w, false
		}
	}
	return time.Duration(n[0]), waits{time.Duration(n[1]), n[2]}, true
}

// runningOn returns the processor on which the first thread of a process runs, or waits to run; -1:
// it does not.
func runningOn(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return -1
	}
	// The name in parentheses may contain anything. The fields after it begin with the state, which
	// is the third one; the processor is the 39th.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 37 || string(f[0]) != "R" {
		return -1
	}
	n, err := strconv.Atoi(string(f[36]))
	if err != nil {
		return -1
	}
	return n
}

// bind binds the thread to the processor that it runs on.
func (t *thread) bind() {
	var one unix.CPUSet
	one.Set(assist.Processor())
	t.bound = true
	unix.SchedSetaffinity(0, &one)
}

// release lets the kernel place the thread. When it wakes up, that is a processor that is
// idle, if there is one.
func (t *thread) release() {
	t.moving = false
	t.realtime(false, time.Time{})
	t.unbind()
}

func (t *thread) unbind() {
	if t.bound {
		t.bound = false
		unix.SchedSetaffinity(0, &t.allowed)
	}
}

// realtime schedules the thread in real time (SCHED_FIFO), which needs CAP_SYS_NICE, or
// normally again. A thread that is scheduled normally sleeps for microseconds within a stream
// and loses its processor for milliseconds to a program that spins. Threads that this one
// starts are not in real time.
func (t *thread) realtime(on bool, now time.Time) {
	if on == t.stream || t.refused || t.normal == nil {
		return
	}
	attr := t.normal
	if on {
		attr = &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Flags: unix.SCHED_FLAG_RESET_ON_FORK, Priority: 1}
		t.unbind()
	}
	if unix.SchedSetAttr(0, attr, 0) != nil {
		t.refused = on
		return
	}
	t.stream, t.rested = on, now
}

// look notes how long the thread has run and how long it has waited for a processor.
func (t *thread) look() bool {
	ran, w, ok := t.schedstat()
	if ok {
		t.ran, t.waited = ran, w.total
	}
	return ok
}

// schedstat returns the thread's own schedstat.
func (t *thread) schedstat() (ran time.Duration, w waits, ok bool) {
	var b [96]byte
	n, err := t.stat.ReadAt(b[:], 0)
	if n == 0 && err != nil {
		return 0, w, false
	}
	return parseSchedstat(b[:n])
}

func (t *thread) close() {
	if t.stat != nil {
		t.stat.Close()
	}
}

// rawPoll is ppoll as a raw system call, of which the Go scheduler is not notified. It returns the
// number of descriptors that are ready, -1 after a signal.
func rawPoll(fds []unix.PollFd, timeout *unix.Timespec) int {
	n, _, _ := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)), uintptr(unsafe.Pointer(timeout)), 0, 0, 0)
	return int(n)
}
