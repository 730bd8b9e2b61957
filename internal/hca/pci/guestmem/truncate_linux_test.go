package guestmem

import (
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/keydoor"
)

// TestTruncated truncates the file of a range. Copies fail where the file ends, also those of
// single words, and the other range stays usable.
func TestTruncated(t *testing.T) {
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	fatal.If(t, err)
	defer unix.Close(fd)
	fatal.If(t, unix.Ftruncate(fd, 0x4000))
	view, err := unix.Mmap(fd, 0, 0x4000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	fatal.If(t, err)
	defer unix.Munmap(view)
	var m Map
	fatal.If(t, m.Add(Range{Addr: 0x10000, Size: 0x4000, View: view}))
	add(t, &m, 0x14000, 0x1000, false)
	fatal.If(t, unix.Ftruncate(fd, 0x1000))
	for _, n := range []int{4, 8, 100, 0x2000} {
		b := make([]byte, n)
		for name, copied := range map[string]error{
			"Read": m.Read(0x11000, b), "Write": m.Write(0x13000, b), "ReadV": m.ReadV([]keydoor.Vec{{Addr: 0x10800, Buf: b[:4]}, {Addr: 0x12000, Buf: b}}),
			"WriteV": m.WriteV([]keydoor.Vec{{Addr: 0x11000, Buf: b}}),
		} {
			if !errors.Is(copied, syscall.EFAULT) {
				t.Errorf("%s of %d bytes: %v, want EFAULT", name, n, copied)
			}
		}
		for _, addr := range []uint64{0x10000, 0x14000} {
			if err := m.Write(addr, b[:min(n, 0x1000)]); err != nil {
				t.Error(err)
			}
		}
	}
	// No lock is left.
	if n, err := m.Remove(0x10000, 0x5000); n != 0x5000 || err != nil {
		t.Errorf("%#x bytes taken away, %v", n, err)
	}
}
