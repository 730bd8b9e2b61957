//go:build linux

package assist

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

func newPage(t *testing.T) *Page {
	t.Helper()
	p, err := New()
	fatal.If(t, err)
	t.Cleanup(p.Close)
	return p
}

// Whoever has the descriptor of a page can read it, and wake threads, and nothing else.
func TestReadOnly(t *testing.T) {
	p := newPage(t)
	other, err := Open(p.File())
	fatal.If(t, err)
	defer other.Close()
	p.Line(3).Doze()
	if v := other.Line(3).w.Load(); v != dozing {
		t.Errorf("the line is %d for others, want %d", v, dozing)
	}
	fd := int(p.File().Fd())
	tries := map[string]func(fd int) error{
		"map for writing": func(fd int) error {
			b, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err == nil {
				unix.Munmap(b)
			}
			return err
		},
		"make a mapping writable": func(fd int) error {
			b, err := unix.Mmap(fd, 0, size, unix.PROT_READ, unix.MAP_SHARED)
			if err != nil {
				return nil
			}
			defer unix.Munmap(b)
			return unix.Mprotect(b, unix.PROT_READ|unix.PROT_WRITE)
		},
		"write":    func(fd int) error { _, err := unix.Pwrite(fd, []byte{1}, 0); return err },
		"truncate": func(fd int) error { return unix.Ftruncate(fd, 0) },
		"grow":     func(fd int) error { return unix.Ftruncate(fd, 2*size) },
		"punch": func(fd int) error {
			return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, size)
		},
		"unseal": func(fd int) error {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
			return err
		},
	}
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	fatal.If(t, err)
	defer unix.Close(again)
	for name, try := range tries {
		for opened, fd := range map[string]int{"as it was given": fd, "opened for writing": again} {
			if try(fd) == nil {
				t.Errorf("%s succeeds on the descriptor %s", name, opened)
			}
		}
	}
}

// A page that another process could shorten or that has another size is none.
func TestOpenForeign(t *testing.T) {
	for _, c := range []struct{ bytes, seals int }{{size, 0}, {2 * size, unix.F_SEAL_SHRINK}, {0, unix.F_SEAL_SHRINK}} {
		fd, err := unix.MemfdCreate("page", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		fatal.If(t, err)
		f := os.NewFile(uintptr(fd), "page")
		unix.Ftruncate(fd, int64(c.bytes))
		unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, c.seals)
		if p, err := Open(f); err == nil {
			p.Close()
			t.Errorf("%d bytes with seals %#x are taken for a page", c.bytes, c.seals)
		}
		f.Close()
	}
	f, err := os.CreateTemp(t.TempDir(), "page")
	fatal.If(t, err)
	defer f.Close()
	f.Truncate(size)
	if p, err := Open(f); err == nil {
		p.Close()
		t.Error("a file of a disk is taken for a page")
	}
}

// A kick wakes a helper that dozes, and only then.
func TestKick(t *testing.T) {
	p := newPage(t)
	line := p.Line(5)
	// wait returns a channel that is closed when a thread that waits was woken. Signals end single waits.
	wait := func() chan struct{} {
		woken := make(chan struct{})
		go func() {
			for !line.Wait(time.Minute) && line.w.Load() == dozing {
			}
			close(woken)
		}()
		return woken
	}
	until := func(woken chan struct{}, kick func()) {
		for {
			kick() // it may come before the thread waits
			select {
			case <-woken:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}
	line.Doze()
	until(wait(), func() { p.Kick(5) })
	line.Doze()
	until(wait(), line.Off)
	line.Doze()
	p.Poll(Beside)
	woken := wait()
	for range 10 {
		p.Kick(5)
		p.Kick(4)
		p.Kick(Processors)
		p.Kick(1 << 20)
		time.Sleep(time.Millisecond)
	}
	select {
	case <-woken:
		t.Error("a kick woke the helper although the device's own thread polls")
	default:
	}
	p.Poll(No)
	until(woken, func() { p.Kick(5) })
}
