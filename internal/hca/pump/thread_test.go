//go:build linux

package pump

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestThread gives the thread of a device times that it ran and waited. A thread that runs
// most of the time is bound to its processor, one that waits too long moves to another, and a
// stream is scheduled in real time.
func TestThread(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread's settings end with it
	moved := uint64(0)
	th := newThread(func() uint64 { return moved })
	defer th.close()
	if th.allowed.Count() < 2 {
		t.Skip("NOT RUN: one processor")
	}
	if !th.look() {
		t.Fatal("schedstat cannot be read")
	}
	stat, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	th.stat.Close()
	th.stat = stat
	now := time.Unix(1000, 0)
	th.checked, th.ran, th.waited = now, 0, 0
	// after calls active with new contents of schedstat, and checks on how many processors the
	// thread may run afterwards.
	after := func(text string, past time.Duration, want int) {
		t.Helper()
		if err := stat.Truncate(0); err != nil {
			t.Fatal(err)
		}
		if _, err := stat.WriteAt([]byte(text), 0); err != nil {
			t.Fatal(err)
		}
		now = now.Add(past)
		th.active(now)
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(0, &set); err != nil {
			t.Fatal(err)
		}
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
	if th.moves > 0 {
		t.Fatal("it moved without waiting")
	}
	// A stream is scheduled in real time where that is allowed, until it ends.
	policy := func() uint32 {
		t.Helper()
		attr, err := unix.SchedGetAttr(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		return attr.Policy
	}
	moved += streamBytes
	if th.realtime(true, now); th.refused {
		after("49000000 1000000 1", checkEvery, 1)
	} else {
		th.realtime(false, now)
		after("49000000 1000000 1", checkEvery, all)
		if p := policy(); p != unix.SCHED_FIFO {
			t.Errorf("a stream has policy %d", p)
		}
		now = now.Add(restEvery)
		if th.active(now); th.rests != 1 {
			t.Errorf("it rested %d times, want once", th.rests)
		}
		after("59000000 1000000 1", checkEvery, 1)
	}
	if p := policy(); p != unix.SCHED_NORMAL {
		t.Errorf("after the stream it has policy %d", p)
	}
	th.release()
	ran, waited := 39000000, 1000000
	for i := 0; th.moves == 0; i++ { // the thread moves with a probability of one half
		if i == 100 {
			t.Fatal("the thread does not move")
		}
		was := processor()
		waited += int(checkEvery)
		now = now.Add(checkEvery)
		if _, err := stat.WriteAt(fmt.Appendf(nil, "%d %d 1", ran, waited), 0); err != nil {
			t.Fatal(err)
		}
		if th.active(now); th.moves > 0 && th.bound && processor() == was {
			t.Errorf("it moved from processor %d to the same", was)
		}
	}
}
