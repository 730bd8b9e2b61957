//go:build linux && (amd64 || arm64)

package intercept

import (
	"fmt"

	"testing"

	"golang.org/x/sys/unix"
)

// Ioctls of fakeFile that wait until as many ioctls as meeting counts are under way. meetsLong calls
// MayTakeLong first.
const (
	meets     = 0x10
	meetsLong = 0x11

	meetings = 3 // of each
)

func init() {
	programs["meet"] = func() error {
		fd, err := unix.Open(nodePath, unix.O_RDWR, 0)
		if err != nil {
			return err
		}
		errs := make(chan error, 2*meetings)
		for i := range cap(errs) {
			go func() {
				arg := []uintptr{meets, meetsLong}[i%2]
				n, err := ioctl(fd, arg)
				errs <- expect("ioctl", fmt.Sprint(n, err), fmt.Sprint(arg+1, " <nil>"))
			}()
		}
		for range cap(errs) {
			if err := <-errs; err != nil {
				return err
			}
		}
		for i := range uintptr(1000) {
			if n, err := ioctl(fd, 100+i); err != nil || n != int(101+i) {
				return fmt.Errorf("ioctl %d: %d, %v", i, n, err)
			}
		}
		return nil
	}
}

// TestReaders answers calls that take long at the same time: those that say so, and others.
func TestReaders(t *testing.T) {
	d := &fakeDevice{}
	d.meeting.Add(2 * meetings)
	_, end := start(t, "meet", d)
	endsWell(t, end)
	if len(d.ioctls) != 2*meetings+1000 {
		t.Errorf("the device saw %d calls", len(d.ioctls))
	}
}
