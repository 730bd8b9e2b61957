//go:build linux && (amd64 || arm64)

package intercept

import (
	"sync"
	"testing"
)

// Ioctls of fakeFile that wait until as many ioctls as meeting counts are under way. meetsLong calls
// MayTakeLong first.
const (
	meets     = 0x10
	meetsLong = 0x11

	meetings = 3 // of each
)

func init() {
	programs["meet"] = func() {
		fd := open()
		var threads sync.WaitGroup
		for i := range 2 * meetings {
			threads.Go(func() {
				arg := []uintptr{meets, meetsLong}[i%2]
				want("ioctl", ioctl(fd, arg), arg+1)
			})
		}
		threads.Wait()
		for i := range uintptr(1000) {
			want("ioctl", ioctl(fd, 100+i), 101+i)
		}
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
