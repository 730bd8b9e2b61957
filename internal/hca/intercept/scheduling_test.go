//go:build linux && (amd64 || arm64)

package intercept

import (
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/hca/pump"
)

func init() {
	programs["slice"] = func() {
		attr, err := unix.SchedGetAttr(0, 0)
		want("attributes", err, nil)
		fmt.Print(attr.Runtime)
	}
}

// TestShortSlices: the supervisor's threads have short slices, the program's do not.
func TestShortSlices(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	setSlice(0, 0) // the test may run a second time
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil || before.Runtime == 0 {
		t.Skipf("NOT RUN: the kernel has no slices of threads (Linux 6.12): %v", err)
	}
	ShortSlices()
	if now, err := unix.SchedGetAttr(0, 0); err != nil || now.Runtime != supervisorSlice {
		t.Errorf("the slice is %+v, %v", now, err)
	}
	_, end := start(t, "slice", &fakeDevice{})
	if out, state := end(); state != 0 || out != fmt.Sprint(before.Runtime) {
		t.Errorf("the program's slice: %v: %s, want %d", state, out, before.Runtime)
	}
}

func init() {
	programs["nice"] = func() {
		attr, err := unix.SchedGetAttr(0, 0)
		want("attributes", err, nil)
		fmt.Print(attr.Nice)
	}
}

// TestPriority: where the supervisor may not raise its priority, the program's is lower.
func TestPriority(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread may have got another priority
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	own := attr.Nice
	want := min(own+lowered, 19)
	if attr.Nice = pump.Priority(own); attr.Nice < own && unix.SchedSetAttr(0, attr, 0) == nil {
		want = own
		attr.Nice = own
		unix.SchedSetAttr(0, attr, 0)
	}
	_, end := start(t, "nice", &fakeDevice{})
	if out, state := end(); state != 0 || out != fmt.Sprint(want) {
		t.Errorf("the program's priority: %v: %s, want %d", state, out, want)
	}
}
