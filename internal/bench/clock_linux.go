package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// now returns the processor time of this thread: a turn that another process was given
// the core in is not slower for it.
func now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic("bench: " + err.Error()) // the clock exists since Linux 2.6.12
	}
	return time.Duration(t.Nano())
}
