//go:build linux && (amd64 || arm64)

package intercept

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func init() {
	programs["reopens"] = func() {
		fd := open()
		paths := []string{
			fmt.Sprintf("/proc/self/fd/%d", fd),
			fmt.Sprintf("/proc/thread-self/fd/%d", fd),
			fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd),
			fmt.Sprintf("/proc/self/../self//fd/%d", fd),
			fmt.Sprintf("/dev/fd/%d", fd),
		}
		for _, path := range paths {
			again, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
			want("open of "+path, fmt.Sprint(again >= fdRanges[usualRange].first, err), "true <nil>")
			want("ioctl of "+path, ioctl(again, 1), 2)
			unix.Close(again)
			var st unix.Stat_t
			wantNode("stat of "+path, &st, unix.Stat(path, &st))
			var stx unix.Statx_t
			err = unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_ALL, &stx)
			want("statx of "+path, fmt.Sprint(stx.Rdev_major, stx.Rdev_minor, err), "231 192 <nil>")
			link, err := os.Readlink(path)
			want("readlink of "+path, fmt.Sprint(link, err), nodePath+"<nil>")
			err = unix.Lstat(path, &st)
			want("lstat of "+path, fmt.Sprint(st.Mode&unix.S_IFMT, err), fmt.Sprint(unix.S_IFLNK, nil))
		}
		fmt.Println("closed")
		_, err := unix.Read(0, make([]byte, 1))
		want("read", err, nil)
		want("ioctl after the others were closed", ioctl(fd, 1), 2)

		// The supervisor does not see a path relative to a descriptor. The kernel opens the memfd.
		folder, err := unix.Open("/proc/self/fd", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		want("open of a folder", err, nil)
		again, err := unix.Openat(folder, fmt.Sprint(fd), unix.O_RDWR, 0)
		want("openat", err, nil)
		unix.Close(again)
		unix.Close(open()) // which comes after that
		fmt.Println("closed")
		_, err = unix.Read(0, make([]byte, 1))
		want("read", err, nil)
		want("ioctl after openat", ioctl(fd, 1), 2)
	}
	programs["reopens a channel"] = func() {
		channel, err := unix.Write(open(), []byte("channel"))
		want("write", err, nil)
		_, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", channel), unix.O_RDONLY, 0)
		want("open of a channel", err, unix.ENXIO)
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
