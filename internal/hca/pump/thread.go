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
	allowed       unix.CPUSet     // processors that the thread may run on
	usual         *unix.SchedAttr // its scheduling while it moves no stream; nil: unknown
	bytes         func() uint64   // returns how many bytes the device has moved in total
	pids          func() []int    // returns the processes of the programs that had work lately
	blocking      func() bool     // reports whether the device has sent packets since the last call to a process that sleeps until they come
	stat          *os.File        // the thread's schedstat; nil: the thread is never moved
	migrations    int             // how often reschedule has moved the thread to another processor
	bound         bool            // the thread is bound to some of the allowed processors
	amongPrograms bool            // the thread is to run on the processors of its programs: see place

	streaming bool      // the device moves a stream: streamBytes or more between the last two checks
	realTime  bool      // the thread is scheduled in real time (SCHED_FIFO)
	refused   bool      // the system does not allow real-time scheduling
	rests     int       // how often the thread, in real time, gave up its processor for restTime
	rested    time.Time // time of the last of these rests

	delays map[int]runDelay // run delay of each program that ran during the last call of locatePrograms, by process number

	// The following are totals at the time of the last check.
	checked time.Time     // time of that check
	total   uint64        // result of bytes
	ran     time.Duration // time that the thread ran
	waited  time.Duration // the thread's run delay
}

// Nice is the priority that a device's thread asks for, which needs CAP_SYS_NICE.
const Nice = -15

// Priority returns the priority that a device's thread asks for in a process of priority own: Nice, or own if that is
// higher. It is own as well where somebody has lowered the process's priority, as nice(1) does: the device then stays
// behind other processes, together with its programs.
func Priority(own int32) int32 {
	if own > 0 {
		return own
	}
	return min(own, Nice)
}

// The tuned times and counts, in the form of those of loop.go. None of the values was measured against others.
const (
	// shortSlice is the time slice that the thread asks for, in nanoseconds: the shortest that Linux gives.
	// Kernels before 6.12 ignore it. Longer: a thread that wakes up waits longer before it preempts a
	// program that spins. 2026-11-22.
	shortSlice = 100_000

	// checkEvery is the time between two checks, in which reschedule decides how and where the thread runs.
	// Longer: the thread shares a processor with another thread for longer, and a stream starts later.
	// Shorter: the files of /proc are read more often, and one burst counts as a stream. 2026-11-22.
	checkEvery = 10 * time.Millisecond

	// If the thread waited for a processor for 1/mostWaiting of the time between two checks or longer, it may
	// migrate. Larger: threads migrate after short waits, and lose their caches. Smaller: two threads stay on
	// one processor. 2026-11-22.
	mostWaiting = 5
	// If the thread ran for 1/mostRunning of the time between two checks or longer, it is bound to its
	// processor. Larger: a thread with little work is bound, and the kernel cannot move it to an idle
	// processor. Smaller: the kernel moves a busy thread to the processor of the thread that sends to it.
	// 2026-11-22.
	mostRunning = 2

	// streamBytes is the number of bytes moved between two checks that make a stream, 210 MB/s. Fewer: small
	// requests put the thread in real time, where it takes the processor from programs. More: a slow stream
	// loses its processor for milliseconds to programs that spin. 2026-11-22.
	streamBytes = 2 << 20

	// In real time, the thread gives up its processor for restTime in every restEvery. These need it: the
	// program to which the stream belongs, other programs, and threads of this process that hold a lock. A
	// larger share of rest, 5 % here: the stream is slower. A smaller one: these get less of the processor. A
	// longer restEvery: they wait longer for it. 2026-11-22.
	restEvery = 2 * time.Millisecond
	restTime  = 100 * time.Microsecond

	// longWait is the mean run delay from which on a program counts as sharing its processor with a program of
	// another run, which spins. Such programs took turns of 4 ms (2026-11-23); a device's thread runs for less
	// than longWait at a time. Longer: the thread does not notice the other program. Shorter: the thread's own
	// work counts as another program.
	longWait = 500 * time.Microsecond
)

// newThread makes the calling thread the thread of a device. The caller's goroutine is
// locked to it. bytes returns how many bytes the device has moved, and pids the processes of the
// programs that had work lately. blocking is netconn.Neighbor.Blocking.
func newThread(bytes func() uint64, pids func() []int, blocking func() bool) *thread {
	t := &thread{bytes: bytes, pids: pids, blocking: blocking, usual: schedule("softmkey-device")}
	t.refused = t.usual != nil && t.usual.Nice > 0
	if unix.SchedGetaffinity(0, &t.allowed) != nil {
		return t
	}
	if t.allowed.Count() > 1 {
		t.stat, _ = os.Open("/proc/thread-self/schedstat")
	}
	return t
}

// schedule names the calling thread, and asks for slices of shortSlice and for the priority that Priority returns. It returns the
// attributes that the kernel has granted, or nil if they are unknown.
func schedule(name string) (normal *unix.SchedAttr) {
	unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&append([]byte(name), 0)[0])), 0, 0, 0)
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil || attr.Policy != unix.SCHED_NORMAL {
		return nil
	}
	own := attr.Nice
	attr.Runtime, attr.Nice = shortSlice, Priority(own)
	if unix.SchedSetAttr(0, attr, 0) != nil {
		attr.Nice = own
		unix.SchedSetAttr(0, attr, 0)
	}
	return attr
}

// reschedule chooses how and where the kernel runs the thread while its device has work. The loop of the
// device calls it after each pass that has found work; reschedule makes its choice every checkEvery. It
// takes the first of these cases that applies:
//
//   - The device moves a stream, which is streamBytes or more since the last check, and the system
//     allows real-time scheduling: the thread is scheduled in real time. It gives up its processor
//     for restTime in every restEvery. If it shares the processors of its programs, the next case applies, too.
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
func (t *thread) reschedule(now time.Time) {
	if t.realTime && now.Sub(t.rested) >= restEvery {
		t.rested = now
		t.rests++
		ts := unix.NsecToTimespec(int64(restTime))
		rawPoll(nil, &ts)
	}
	if t.stat == nil || now.Sub(t.checked) < checkEvery {
		return
	}
	past, ran, waited, total := now.Sub(t.checked), t.ran, t.waited, t.total
	t.checked, t.total = now, t.bytes()
	if !t.updateTimes() || past > 2*checkEvery {
		t.release()
		return
	}
	t.streaming = t.total-total >= streamBytes
	t.setRealTime(t.streaming, now)
	t.amongPrograms = t.blocking()
	used, crowded := t.locatePrograms()
	switch {
	case t.realTime && !t.amongPrograms: // the kernel keeps threads in real time on different processors
	case t.place(used, crowded):
	case t.waited-waited >= past/mostWaiting:
		if rand.IntN(2) == 1 {
			others := t.allowed
			others.Clear(assist.Processor())
			if unix.SchedSetaffinity(0, &others) == nil {
				t.migrations++
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

// locatePrograms finds out on which processors the device's programs run. It returns these processors, and one of
// them that is crowded, or -1.
//
// A processor is crowded if two of the device's programs run on it, or if the mean run delay of a program
// there is longWait or more, because a program of another run uses it, too.
func (t *thread) locatePrograms() (used unix.CPUSet, crowded int) {
	crowded = -1
	before := t.delays
	t.delays = make(map[int]runDelay)
	for _, pid := range t.pids() {
		p := runningOn(pid)
		if p < 0 {
			continue
		}
		d, ok := runDelayOf("/proc/" + strconv.Itoa(pid) + "/schedstat")
		if ok {
			t.delays[pid] = d
		}
		last, had := before[pid]
		if used.IsSet(p) || ok && had && d.meanSince(last) >= longWait {
			crowded = p
		}
		used.Set(p)
	}
	return used, crowded
}

// without returns the processors in allowed that are not in used.
func without(allowed, used unix.CPUSet) unix.CPUSet {
	for i := range allowed {
		allowed[i] &^= used[i]
	}
	return allowed
}

// place binds the thread by where the device's programs run, as locatePrograms has returned it, and reports whether
// it did.
func (t *thread) place(used unix.CPUSet, crowded int) bool {
	set, ok := placed(t.allowed, used, crowded, t.amongPrograms)
	if !ok {
		return false
	}
	t.bound = true
	return unix.SchedSetaffinity(0, &set) == nil
}

// placed returns the processors to which the thread of a device is to be bound. allowed are those on which it may run,
// used are those on which the device's programs run, and crowded is one of these, or -1. ok is false if the thread is
// not to be bound: no program runs, or a program runs on each of the allowed processors.
//
// Usually the thread is bound to the processors without programs. A program can then answer while the
// thread polls. On the thread's own processor it could answer only while the thread naps.
//
// If the device sends packets to a process that blocks until they arrive, such as softmkey target, the thread is bound
// to the processors with programs. On a processor without programs the thread would take the processor from that
// process, whose threads would then share the processor of a program that spins. 2026-11-27, SPDK's perf on softmkey
// target, 32 in flight: 11,600 reads of 128 KiB a second instead of 6,100, and 93,000 of 4 KiB instead of 52,000.
//
// If a processor is crowded, the thread is bound to it. This leaves the thread's former processor idle, and
// the kernel moves one of the programs there. The kernel moves no program to a processor whose thread naps
// for microseconds only.
func placed(allowed, used unix.CPUSet, crowded int, amongPrograms bool) (set unix.CPUSet, ok bool) {
	set = without(allowed, used)
	switch {
	case used.Count() == 0 || set.Count() == 0:
		return set, false
	case amongPrograms:
		set = used
	case crowded >= 0:
		set.Zero()
		set.Set(crowded)
	}
	return set, true
}

// runDelay is the kernel's run delay of a thread: the time for which the thread was runnable and waited for a
// processor.
type runDelay struct {
	total  time.Duration
	slices int64 // number of times that the thread was given a processor
}

// meanSince returns the mean run delay per slice since last, an earlier value of the same thread.
func (d runDelay) meanSince(last runDelay) time.Duration {
	if d.slices <= last.slices {
		return 0
	}
	return (d.total - last.total) / time.Duration(d.slices-last.slices)
}

// runDelayOf returns the run delay in a schedstat file of /proc.
func runDelayOf(path string) (d runDelay, ok bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return d, false
	}
	_, d, ok = parseSchedstat(b)
	return d, ok
}

// parseSchedstat parses a schedstat file of /proc. ran is the time for which the thread has run.
func parseSchedstat(b []byte) (ran time.Duration, d runDelay, ok bool) {
	f := bytes.Fields(b)
	if len(f) < 3 {
		return 0, d, false
	}
	var n [3]int64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(string(f[i]), 10, 64); err != nil {
			return 0, d, false
		}
	}
	return time.Duration(n[0]), runDelay{time.Duration(n[1]), n[2]}, true
}

// runningOn returns the processor on which the first thread of a process runs, or waits to run. It returns -1 if
// the thread does neither.
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

// release schedules the thread normally and unbinds it. When the thread wakes up, the kernel puts it on an idle
// processor, if there is one.
func (t *thread) release() {
	t.streaming = false
	t.setRealTime(false, time.Time{})
	t.unbind()
}

// unbind lets the thread run on all allowed processors.
func (t *thread) unbind() {
	if t.bound {
		t.bound = false
		unix.SchedSetaffinity(0, &t.allowed)
	}
}

// setRealTime schedules the thread in real time (SCHED_FIFO) if on is set, and normally if not. Real time needs
// CAP_SYS_NICE. Without it, a thread that sleeps for microseconds within a stream loses its processor for
// milliseconds to a program that spins. Threads that the thread starts are scheduled normally.
func (t *thread) setRealTime(on bool, now time.Time) {
	if on == t.realTime || t.refused || t.usual == nil {
		return
	}
	attr := t.usual
	if on {
		attr = &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Flags: unix.SCHED_FLAG_RESET_ON_FORK, Priority: 1}
		t.unbind()
	}
	if unix.SchedSetAttr(0, attr, 0) != nil {
		t.refused = on
		return
	}
	t.realTime, t.rested = on, now
}

// updateTimes sets ran and waited to their present values, and reports whether they are known.
func (t *thread) updateTimes() bool {
	ran, d, ok := t.schedstat()
	if ok {
		t.ran, t.waited = ran, d.total
	}
	return ok
}

// schedstat reads how long the thread has run, and its run delay, from its file in /proc. ok: the file could be read.
func (t *thread) schedstat() (ran time.Duration, d runDelay, ok bool) {
	var b [96]byte
	n, err := t.stat.ReadAt(b[:], 0)
	if n == 0 && err != nil {
		return 0, d, false
	}
	return parseSchedstat(b[:n])
}

func (t *thread) close() {
	if t.stat != nil {
		t.stat.Close()
	}
}

// rawPoll calls ppoll without notifying the Go scheduler. It returns the number of descriptors that are ready, or
// -1 after a signal.
func rawPoll(fds []unix.PollFd, timeout *unix.Timespec) int {
	n, _, _ := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)), uintptr(unsafe.Pointer(timeout)), 0, 0, 0)
	return int(n)
}
