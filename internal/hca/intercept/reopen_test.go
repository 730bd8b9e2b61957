//go:build linux && (amd64 || arm64)

package intercept

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func init() {
	programs["reopens"] = func() error {
		fd, err := unix.Open(nodePath, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		paths := []string{
			fmt.Sprintf("/proc/self/fd/%d", fd),
			fmt.Sprintf("/proc/thread-self/fd/%d", fd),
			fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd),
			fmt.Sprintf("/proc/self/../self//fd/%d", fd),
			fmt.Sprintf("/dev/fd/%d", fd),
		}
		for _, path := range paths {
			again, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil || again < fdRanges[usualRange].first {
				return fmt.Errorf("open of %s: %d, %v", path, again, err)
			}
			if n, err := ioctl(again, 1); n != 2 || err != nil {
				return fmt.Errorf("ioctl of %s: %d, %v", path, n, err)
			}
			unix.Close(again)
			var st unix.Stat_t
			if err := unix.Stat(path, &st); err != nil || st.Rdev != unix.Mkdev(231, 192) {
				return fmt.Errorf("stat of %s: device %#x, %v", path, st.Rdev, err)
			}
			var stx unix.Statx_t
			if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_ALL, &stx); err != nil || stx.Rdev_major != 231 || stx.Rdev_minor != 192 {
				return fmt.Errorf("statx of %s: device %d:%d, %v", path, stx.Rdev_major, stx.Rdev_minor, err)
			}
			if link, err := os.Readlink(path); err != nil || link != nodePath {
				return fmt.Errorf("readlink of %s: %s, %v", path, link, err)
			}
			if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
				return fmt.Errorf("lstat of %s: mode %#o, %v", path, st.Mode, err)
			}
		}
		fmt.Println("closed")
		if _, err := unix.Read(0, make([]byte, 1)); err != nil {
			return err
		}
		if n, err := ioctl(fd, 1); n != 2 || err != nil {
			return fmt.Errorf("ioctl after the others were closed: %d, %v", n, err)
		}

		// The supervisor does not see a path relative to a descriptor. The kernel opens the memfd.
		folder, err := unix.Open("/proc/self/fd", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		again, err := unix.Openat(folder, fmt.Sprint(fd), unix.O_RDWR, 0)
		if err != nil {
			return fmt.Errorf("openat: %v", err)
		}
		unix.Close(again)
		last, err := unix.Open(nodePath, unix.O_RDWR, 0) // closing it comes after that
		if err != nil {
			return err
		}
		unix.Close(last)
		fmt.Println("closed")
		if _, err := unix.Read(0, make([]byte, 1)); err != nil {
			return err
		}
		if n, err := ioctl(fd, 1); n != 2 || err != nil {
			return fmt.Errorf("ioctl after openat: %d, %v", n, err)
		}
		return nil
	}
	programs["reopens a channel"] = func() error {
		fd, err := unix.Open(nodePath, unix.O_RDWR, 0)
		if err != nil {
			return err
		}
		channel, err := unix.Write(fd, []byte("channel"))
		if err != nil {
			return err
		}
		_, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", channel), unix.O_RDONLY, 0)
		return expect("open of a channel", err, unix.ENXIO)
	}
}

// TestReopen opens descriptors of a device once more through /proc. Each open is a new one
// of the device, and its close leaves the others alone.
func TestReopen(t *testing.T) {
	d := &fakeDevice{released: make(chan struct{})}
	var in *os.File
	_, end := startWith(t, "reopens", d, func(c *Config) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		c.Stdin, in = r, w
	})
	for range 5 {
		<-d.released
	}
	in.WriteString("\n")
	<-d.released
	in.WriteString("\n")
	<-d.released
	if out, state := end(); state != 0 || d.opened != 7 {
		t.Errorf("%v: %s; %d opens", state, out, d.opened)
	}
}

// TestReopenChannel opens the descriptor of a channel once more, which has no node.
func TestReopenChannel(t *testing.T) {
	_, end := start(t, "reopens a channel", &fakeDevice{released: make(chan struct{}, 1)})
	endsWell(t, end)
}
