//go:build linux && (amd64 || arm64)

package intercept

import (
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func init() {
	programs["slice"] = func() error {
		attr, err := unix.SchedGetAttr(0, 0)
		if err == nil {
			fmt.Print(attr.Runtime)
		}
		return err
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
