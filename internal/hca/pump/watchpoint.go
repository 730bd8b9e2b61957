//go:build linux

package pump

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A watchpoint wakes this process when a thread of another one stores to an
// address: a hardware breakpoint, through perf_event_open. Programs ring their
// doorbells with plain stores to shared memory, for which the kernel has no other
// wake-up. Each store costs the program a trap while the watchpoint is enabled,
// and enabling one costs an interrupt of the processor that the thread runs on.
type watchpoint struct {
	fd   int
	ring []byte
}

// spot is an address in a thread.
type spot struct {
	thread int
	addr   uint64
}

const (
	mostSpots = 4 // hardware breakpoints that a thread can have
	// mostPoints bounds the watchpoints, each of which costs a descriptor and two system calls for each sleep.
	// Larger: a doorbell of a program with many threads costs more. Smaller: with fewer threads, the first
	// doorbell after a pause is found at the end of a short sleep.
	mostPoints = 64
)

const (
	perfBreakpoint = 5 // PERF_TYPE_BREAKPOINT
	breakOnWrite   = 2 // HW_BREAKPOINT_W

	// The offsets of data_head and data_tail in struct perf_event_mmap_page.
	ringHead = 1024
	ringTail = 1032
)

func newWatchpoint(s spot) (*watchpoint, error) {
	attr := unix.PerfEventAttr{
		Type: perfBreakpoint, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Sample: 1, Wakeup: 1,
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv, Bp_type: breakOnWrite, Ext1: s.addr, Ext2: 8,
	}
	fd, err := unix.PerfEventOpen(&attr, s.thread, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	// Without a ring, poll reports nothing.
	ring, err := unix.Mmap(fd, 0, 2*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &watchpoint{fd, ring}, nil
}

func (w *watchpoint) enable(on bool) {
	request := uint(unix.PERF_EVENT_IOC_DISABLE)
	if on {
		request = unix.PERF_EVENT_IOC_ENABLE
	}
	unix.IoctlSetInt(w.fd, request, 0)
}

// drain empties the ring, so that it has room for the next wake-up.
func (w *watchpoint) drain() {
	head := atomic.LoadUint64((*uint64)(unsafe.Pointer(&w.ring[ringHead])))
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&w.ring[ringTail])), head)
}

func (w *watchpoint) close() {
	unix.Munmap(w.ring)
	unix.Close(w.fd)
}

// watcher keeps the watchpoints of all threads that may ring a doorbell.
type watcher struct {
	points  map[spot]*watchpoint
	enabled bool
	refused bool // the system gives this process no watchpoints
}

// arm enables watchpoints for the registers in every thread of their programs, and reports
// whether all of them are watched. A thread has few watchpoints; those that exist stay.
func (w *watcher) arm(registers func() []Registers) (complete bool) {
	if w.refused {
		return false // before the registers are asked for, which costs system calls for each program
	}
	all := registers()
	if tooMany(all) {
		w.close()
		return false
	}
	w.sweep()
	if w.points == nil {
		w.points = map[spot]*watchpoint{}
	}
	wanted, complete := spots(all, w.points)
	if len(wanted) > mostPoints {
		w.close()
		return false
	}
	w.keep(wanted)
	for s := range wanted {
		p := w.points[s]
		if p == nil {
			var err error
			switch p, err = newWatchpoint(s); err {
			case nil:
				w.points[s] = p
			case unix.ESRCH: // the thread has ended
				continue
			case unix.ENOSPC: // others have taken the slots
				complete = false
				continue
			default:
				w.refused = true
				w.close()
				return false
			}
			p.enable(true)
		} else if !w.enabled {
			p.enable(true)
		}
	}
	w.enabled = true
	return complete
}

// tooMany reports whether the registers need more than mostPoints watchpoints. It does not list the threads, since
// that takes longer the more there are.
func tooMany(all []Registers) bool {
	of := map[int]int{}
	for _, r := range all {
		of[r.Pid] = min(of[r.Pid]+len(r.Addrs), mostSpots)
	}
	if len(of) > mostPoints {
		return true
	}
	total := 0
	for pid, n := range of {
		total += n * threads(pid)
	}
	return total > mostPoints
}

// threads returns the number of threads of a process, 1 if it is not known.
func threads(pid int) int {
	var s unix.Stat_t
	if pid == 0 || unix.Stat("/proc/"+strconv.Itoa(pid)+"/task", &s) != nil {
		return 1
	}
	return max(int(s.Nlink)-2, 1) // the links are ".", ".." and the threads
}

// spots returns the addresses to watch in each thread, at most mostSpots for a thread, and
// whether these are all registers. Those in have come first: a new watchpoint costs
// several system calls.
func spots(all []Registers, have map[spot]*watchpoint) (chosen map[spot]bool, complete bool) {
	addrs := map[int][]uint64{} // of a process, which may have opened the device several times
	for _, r := range all {
		addrs[r.Pid] = append(addrs[r.Pid], r.Addrs...)
	}
	chosen, complete = map[spot]bool{}, true
	for pid, addrs := range addrs {
		if pid == 0 {
			complete = false
			continue
		}
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			continue // the process has ended
		}
		for _, t := range threads {
			thread, _ := strconv.Atoi(t.Name())
			n := 0
			for _, add := range []bool{false, true} {
				for _, a := range addrs {
					s := spot{thread, a}
					if n < mostSpots && !chosen[s] && (add || have[s] != nil) {
						chosen[s] = true
						n++
					}
				}
			}
			complete = complete && n == len(addrs)
		}
	}
	return chosen, complete
}

// prune closes the watchpoints of other registers, without making new ones.
func (w *watcher) prune(all []Registers) {
	if len(w.points) == 0 {
		return
	}
	if tooMany(all) {
		w.close()
		return
	}
	w.sweep()
	wanted, _ := spots(all, w.points)
	w.keep(wanted)
}

// keep closes the watchpoints that are not wanted.
func (w *watcher) keep(wanted map[spot]bool) {
	for s, p := range w.points {
		if !wanted[s] {
			p.close()
			delete(w.points, s)
		}
	}
}

// sweep closes the watchpoints of threads that have ended. The kernel reports them as hung up
// for ever, so that a sleep with them would end at once.
func (w *watcher) sweep() {
	if len(w.points) == 0 {
		return
	}
	fds, all := make([]unix.PollFd, 0, len(w.points)), make([]spot, 0, len(w.points))
	for s, p := range w.points {
		fds, all = append(fds, unix.PollFd{Fd: int32(p.fd)}), append(all, s)
	}
	if n, _ := unix.Poll(fds, 0); n <= 0 {
		return
	}
	for i, s := range all {
		if fds[i].Revents&unix.POLLHUP != 0 {
			w.points[s].close()
			delete(w.points, s)
		}
	}
}

func (w *watcher) disarm() {
	if !w.enabled {
		return
	}
	w.enabled = false
	for _, p := range w.points {
		p.enable(false)
	}
}

func (w *watcher) close() {
	for s, p := range w.points {
		p.close()
		delete(w.points, s)
	}
	w.enabled = false
}
