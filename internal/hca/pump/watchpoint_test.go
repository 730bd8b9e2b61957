//go:build linux

package pump

import (
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// watchpoints returns the number of watchpoints that this process has open.
func watchpoints(t *testing.T) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range fds {
		if file, _ := os.Readlink("/proc/self/fd/" + d.Name()); file == "anon_inode:[perf_event]" {
			n++
		}
	}
	return n
}

// soon waits until there are n watchpoints.
func soon(t *testing.T, what string, n int) {
	t.Helper()
	for deadline := time.Now().Add(patience); watchpoints(t) != n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: %d watchpoints, want %d", what, watchpoints(t), n)
		}
	}
}

// TestWatchpointsOfThread ends a thread that has a watchpoint.
func TestWatchpointsOfThread(t *testing.T) {
	var word [8]uint64
	thread, end, ended := make(chan int), make(chan struct{}), make(chan struct{})
	var live func()
	live = func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			// The first thread of a process does not end. This goroutine keeps it from the next one.
			go live()
			<-ended
			return
		}
		defer close(ended)
		thread <- unix.Gettid()
		<-end
	}
	go live()
	s := spot{<-thread, uint64(uintptr(unsafe.Pointer(&word[0])))}
	p, err := newWatchpoint(s)
	if err != nil {
		t.Skipf("NOT RUN: no watchpoints here: %v", err)
	}
	w := watcher{points: map[spot]*watchpoint{s: p}}
	defer w.close()
	if w.sweep(); watchpoints(t) != 1 {
		t.Fatal("the watchpoint of a thread that lives was closed")
	}
	close(end)
	<-ended
	for deadline := time.Now().Add(patience); len(w.points) > 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		w.sweep()
	}
	soon(t, "after the end of the thread", 0)
}

// TestWatchpointsOfContext removes a context while the pump sleeps under its watchpoints.
func TestWatchpointsOfContext(t *testing.T) {
	p := newPump(t)
	c := newBell()
	p.Add(c, c.registers)
	for deadline := time.Now().Add(patience); watchpoints(t) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Skip("NOT RUN: no watchpoints here")
		}
	}
	asleep(t, p)
	p.Remove(c)
	soon(t, "after the context was removed", 0)
}

// TestWatchpointsAreShared shares out the watchpoints of a process that has opened the device
// twice and rings more registers than a thread can watch.
func TestWatchpointsAreShared(t *testing.T) {
	pid := os.Getpid()
	first, second := Registers{pid, []uint64{0x1800, 0x1900, 0x1020}}, Registers{pid, []uint64{0x2800, 0x2900, 0x2020}}
	count := func(chosen map[spot]bool) map[int]int {
		n := map[int]int{}
		for s := range chosen {
			n[s.thread]++
		}
		return n
	}
	if chosen, complete := spots([]Registers{first}, nil); !complete || count(chosen)[pid] != 3 {
		t.Errorf("3 registers: %d are watched, complete %t", count(chosen)[pid], complete)
	}
	have := map[spot]*watchpoint{{pid, 0x2020}: {}, {pid, 0x2900}: {}, {pid, 0x3000}: {}}
	chosen, complete := spots([]Registers{first, second}, have)
	if complete || !chosen[spot{pid, 0x2020}] || !chosen[spot{pid, 0x2900}] || chosen[spot{pid, 0x3000}] {
		t.Errorf("6 registers: %v, complete %t", chosen, complete)
	}
	for thread, n := range count(chosen) {
		if n != mostSpots {
			t.Errorf("thread %d has %d watchpoints, want %d", thread, n, mostSpots)
		}
	}
}

// TestTooManyWatchpoints counts the watchpoints of processes with one thread.
func TestTooManyWatchpoints(t *testing.T) {
	list := func(pids, contexts, addrs int) (all []Registers) {
		for pid := range pids {
			for range contexts {
				all = append(all, Registers{Pid: 1<<30 + pid, Addrs: make([]uint64, addrs)})
			}
		}
		return all
	}
	for _, v := range []struct {
		pids, contexts, addrs int
		want                  bool
	}{
		{mostPoints, 1, 1, false},
		{mostPoints + 1, 1, 1, true},
		{mostPoints / mostSpots, 10, 5, false}, // a thread has no more than mostSpots
		{mostPoints/mostSpots + 1, 2, 2, true},
		{1, 1000, 5, false},
	} {
		all := list(v.pids, v.contexts, v.addrs)
		if got := tooMany(all); got != v.want {
			t.Errorf("%+v: %v", v, got)
		}
		if w := (watcher{}); v.want && (w.arm(func() []Registers { return all }) || w.points != nil) {
			t.Errorf("%+v: armed", v)
		}
	}
}

// TestManyThreads arms the registers of a process with many threads: what it costs does not grow with them.
func TestManyThreads(t *testing.T) {
	end := make(chan struct{})
	defer close(end)
	more := func(n int) {
		for range n {
			started := make(chan struct{})
			go func() {
				runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
				close(started)
				<-end
			}()
			<-started
		}
	}
	all := []Registers{{os.Getpid(), []uint64{0x1800, 0x1900}}}
	var w watcher
	arm := func() {
		if w.arm(func() []Registers { return all }) || w.points != nil {
			t.Error("armed")
		}
	}
	more(mostPoints / 2)
	few := testing.AllocsPerRun(10, arm)
	more(2 * mostPoints)
	if many := testing.AllocsPerRun(10, arm); many > few {
		t.Errorf("%v allocations with few threads, %v with many", few, many)
	}
}
