package link

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Separate gives the forwarder a processor of its own, and the programs that are started from now on the
// others. A real network takes no processor from the programs of its hosts. Where the forwarder, a sender and a
// receiver share two processors, each of them sometimes waits up to a millisecond for a processor. In that time
// a short queue of the link drains, and the link is idle.
//
// All threads of this process stay on that processor until Close. With a single processor nothing changes.
func (k *Link) Separate() error {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("link: the processors of this process: %w", err)
	}
	if all.Count() < 2 {
		return nil
	}
	own, others := unix.CPUSet{}, all
	for cpu := 0; own.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			own.Set(cpu)
			others.Clear(cpu)
		}
	}
	k.all = &all
	err := bind(&own)
	for _, h := range []*Host{k.A, k.B} {
		// A program inherits the processors of the thread that starts it.
		err = errors.Join(err, h.do(func() error { return unix.SchedSetaffinity(0, &others) }))
	}
	return err
}

// bind sets the processors of all threads of this process. A thread that is created later has those of the
// thread that creates it.
func bind(cpus *unix.CPUSet) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("link: threads: %w", err)
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err == nil {
			err = unix.SchedSetaffinity(id, cpus)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // the thread has ended
			return fmt.Errorf("link: processors of thread %s: %w", t.Name(), err)
		}
	}
	return nil
}
