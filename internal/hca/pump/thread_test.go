//go:build linux

package pump

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/assist"
	"github.com/softmkey/softmkey/internal/base/fatal"
)

// TestThreadOfLowered checks that the thread of a process that was started with nice(1) stays behind other processes.
func TestThreadOfLowered(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the priority cannot be raised again by an ordinary user
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil || attr.Policy != unix.SCHED_NORMAL {
		t.Skipf("NOT RUN: the test is not under the ordinary scheduler: %v", err)
	}
	lowered := min(max(attr.Nice, 0)+3, 19)
	attr.Nice = lowered
	fatal.If(t, unix.SchedSetAttr(0, attr, 0))
	th := newThread(func() uint64 { return 0 }, func() []int { return nil }, func() bool { return false })
	defer th.close()
	th.setRealTime(true, time.Now())
	if attr, err := unix.SchedGetAttr(0, 0); err != nil || attr.Nice != lowered || attr.Policy != unix.SCHED_NORMAL {
		t.Errorf("a thread with nice %d has %+v, %v", lowered, attr, err)
	}
}

// TestThread gives the thread of a device times that it ran and waited. A thread that runs
// most of the time is bound to its processor, one that waits too long moves to another, and a
// stream is scheduled in real time.
func TestThread(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread's settings end with it
	moved := uint64(0)
	th := newThread(func() uint64 { return moved }, func() []int { return nil }, func() bool { return false })
	defer th.close()
	if th.allowed.Count() < 2 {
		t.Skip("NOT RUN: one processor")
	}
	if !th.updateTimes() {
		t.Fatal("schedstat cannot be read")
	}
	stat, err := os.CreateTemp(t.TempDir(), "")
	fatal.If(t, err)
	th.stat.Close()
	th.stat = stat
	now := time.Unix(1000, 0)
	th.checked, th.ran, th.waited = now, 0, 0
	// after calls reschedule with new contents of schedstat, and checks on how many processors the
	// thread may run afterwards.
	after := func(text string, past time.Duration, want int) {
		t.Helper()
		fatal.If(t, stat.Truncate(0))
		if _, err := stat.WriteAt([]byte(text), 0); err != nil {
			t.Fatal(err)
		}
		now = now.Add(past)
		th.reschedule(now)
		var set unix.CPUSet
		fatal.If(t, unix.SchedGetaffinity(0, &set))
		if n := set.Count(); n != want {
			t.Errorf("after %q the thread may run on %d processors, want %d", text, n, want)
		}
	}
	all := th.allowed.Count()
	for _, quiet := range []string{"5 0 1", "5 1000000 1", "x 1000000 1", "rubbish", ""} {
		after(quiet, checkEvery, all)
	}
	after("8000000 1000000 1", checkEvery, 1)
	after("9000000 1000000 1", checkEvery, all)
	after("19000000 1000000 1", checkEvery, 1)
	after("29000000 1000000 1", 3*checkEvery, all) // the thread was idle meanwhile
	after("39000000 1000000 1", checkEvery, 1)
	th.release()
	if th.migrations > 0 {
		t.Fatal("it moved without waiting")
	}
	// A stream is scheduled in real time where that is allowed, until it ends.
	policy := func() uint32 {
		t.Helper()
		attr, err := unix.SchedGetAttr(0, 0)
		fatal.If(t, err)
		return attr.Policy
	}
	moved += streamBytes
	if th.setRealTime(true, now); th.refused {
		after("49000000 1000000 1", checkEvery, 1)
	} else {
		th.setRealTime(false, now)
		after("49000000 1000000 1", checkEvery, all)
		if p := policy(); p != unix.SCHED_FIFO {
			t.Errorf("a stream has policy %d", p)
		}
		now = now.Add(restEvery)
		if th.reschedule(now); th.rests != 1 {
			t.Errorf("it rested %d times, want once", th.rests)
		}
		after("59000000 1000000 1", checkEvery, 1)
	}
	if p := policy(); p != unix.SCHED_NORMAL {
		t.Errorf("after the stream it has policy %d", p)
	}
	th.release()
	ran, waited := 39000000, 1000000
	for i := 0; th.migrations == 0; i++ { // the thread moves with a probability of one half
		if i == 100 {
			t.Fatal("the thread does not move")
		}
		was := assist.Processor()
		waited += int(checkEvery)
		now = now.Add(checkEvery)
		if _, err := stat.WriteAt(fmt.Appendf(nil, "%d %d 1", ran, waited), 0); err != nil {
			t.Fatal(err)
		}
		if th.reschedule(now); th.migrations > 0 && th.bound && assist.Processor() == was {
			t.Errorf("it moved from processor %d to the same", was)
		}
	}
}

// TestPlace lets programs spin on one processor, and on each. A thread with one program runs on another
// processor, and one with two programs on the same processor, or that sends to a process that blocks, runs there.
func TestPlace(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread's settings end with it
	var programs []int
	th := newThread(func() uint64 { return 0 }, func() []int { return programs }, nil)
	defer th.close()
	var cpus []int
	for cpu := 0; cpu < 1024 && len(cpus) < 2; cpu++ {
		if th.allowed.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	if len(cpus) < 2 {
		t.Skip("NOT RUN: one processor")
	}
	var two unix.CPUSet
	two.Set(cpus[0])
	two.Set(cpus[1])
	th.allowed = two
	on := func(pid, cpu int) {
		t.Helper()
		var one unix.CPUSet
		one.Set(cpu)
		fatal.If(t, unix.SchedSetaffinity(pid, &one))
		for deadline := time.Now().Add(patience); runningOn(pid) != cpu; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the program runs on processor %d, want %d", runningOn(pid), cpu)
			}
		}
	}
	spin := func(cpu int) int {
		t.Helper()
		c := exec.Command("sh", "-c", "while :; do :; done")
		fatal.If(t, c.Start())
		t.Cleanup(func() {
			c.Process.Kill()
			c.Wait()
		})
		on(c.Process.Pid, cpu)
		return c.Process.Pid
	}
	check := func(what string, want ...int) {
		t.Helper()
		th.delays = nil // other tests may run on the same processors, so the programs have run delays
		if placed := th.place(th.locatePrograms()); placed != (len(want) > 0) {
			t.Errorf("%s: placed %t", what, placed)
		}
		var set unix.CPUSet
		fatal.If(t, unix.SchedGetaffinity(0, &set))
		if len(want) > 0 && (set.Count() != 1 || !set.IsSet(want[0])) {
			t.Errorf("%s: the thread may run on %d processors, want processor %d only", what, set.Count(), want[0])
		}
	}
	check("no program")
	first := spin(cpus[0])
	programs = []int{first}
	check("one program", cpus[1])
	on(first, cpus[1])
	check("it moved", cpus[0])
	th.amongPrograms = true
	check("it sends to a process that blocks", cpus[1])
	th.amongPrograms = false
	second := spin(cpus[1])
	// The thread knows one of two programs on a processor: its run delay shows that there is another one.
	programs = []int{second}
	for deadline := time.Now().Add(patience); ; time.Sleep(checkEvery) {
		th.place(th.locatePrograms())
		var set unix.CPUSet
		fatal.If(t, unix.SchedGetaffinity(0, &set))
		if set.Count() == 1 && set.IsSet(cpus[1]) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the thread does not go to a program that shares its processor")
		}
	}
	programs = []int{first, second, 1 << 30}
	check("two programs on one processor", cpus[1])
	on(first, cpus[0])
	check("two programs on two processors")
}

// TestPlacesOfMany says where threads of a device go on machines with more processors than this one may have.
func TestPlacesOfMany(t *testing.T) {
	set := func(from, to int) (s unix.CPUSet) {
		for cpu := from; cpu < to; cpu++ {
			s.Set(cpu)
		}
		return s
	}
	for _, test := range []struct {
		what          string
		allowed, used unix.CPUSet
		crowded       int
		among         bool
		want          unix.CPUSet
		bound         bool
		helpers       int
	}{
		{"8 processors, 3 programs", set(0, 8), set(0, 3), -1, false, set(3, 8), true, 8},
		{"a program on each", set(0, 8), set(0, 8), -1, false, set(0, 0), false, 8},
		{"no program", set(0, 8), set(0, 0), -1, false, set(0, 8), false, 8},
		{"the peer blocks", set(0, 8), set(2, 4), -1, true, set(2, 4), true, 8},
		{"two programs on processor 2", set(0, 8), set(0, 3), 2, false, set(2, 3), true, 8},
		{"the run may use 4 of 128 processors", set(60, 64), set(60, 61), -1, false, set(61, 64), true, 3},
		{"programs beyond the lines of the page", set(0, 128), set(63, 128), -1, false, set(0, 63), true, 63},
	} {
		got, bound := placed(test.allowed, test.used, test.crowded, test.among)
		if bound != test.bound || bound && got != test.want {
			t.Errorf("%s: bound %t to %d processors, want %t, %d", test.what, bound, got.Count(), test.bound, test.want.Count())
		}
		if n := len(helped(test.allowed)); n != test.helpers {
			t.Errorf("%s: %d helpers, want %d", test.what, n, test.helpers)
		}
	}
}

// TestRecent: the context that rang last is the last of the recent ones, which are few.
func TestRecent(t *testing.T) {
	var l loop
	bells := make([]*bell, mostRecent+2)
	for i := range bells {
		bells[i] = newBell()
		l.members = append(l.members, member{bells[i], bells[i].registers})
	}
	for i, b := range append(bells, bells[mostRecent]) {
		b.words[0]++
		if worked, _, _ := l.look(false); !worked {
			t.Fatalf("ring %d is not found", i)
		}
		if last := l.recent[len(l.recent)-1]; last.ctx != b || last.pid != os.Getpid() {
			t.Fatalf("after ring %d the last of the recent contexts is another one", i)
		}
		if want := min(i+1, mostRecent); len(l.recent) != want {
			t.Fatalf("after ring %d %d contexts are recent, want %d", i, len(l.recent), want)
		}
	}
}
