//go:build linux && (amd64 || arm64)

package intercept

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestProcesses asks for the process of a thread, of one that was remembered with the process of another, and of one that
// does not exist.
func TestProcesses(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var p processes
	thread := unix.Gettid()
	for range 2 {
		if got := p.of(thread); got != os.Getpid() {
			t.Errorf("thread %d is of process %d, want %d", thread, got, os.Getpid())
		}
	}
	slot := &p[thread%len(p)]
	slot.Store(uint64(thread)<<32 | uint64(os.Getppid()))
	if got := p.of(thread); got != os.Getpid() {
		t.Errorf("a thread whose number was another's is of process %d, want %d", got, os.Getpid())
	}
	const none = 1<<22 + 1 // above the largest number of a thread
	if got := p.of(none); got != none {
		t.Errorf("a thread that does not exist is of process %d", got)
	}
}
