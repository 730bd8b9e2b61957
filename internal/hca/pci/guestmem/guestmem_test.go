package guestmem

import (
	"bytes"
	"errors"
	"sync"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/keydoor"
)

func add(t *testing.T, m *Map, addr uint64, n int, readOnly bool) []byte {
	t.Helper()
	b := make([]byte, n)
	fatal.If(t, m.Add(Range{Addr: addr, Size: uint64(n), View: b, ReadOnly: readOnly}))
	return b
}

// TestCopies copies from one range into the next. Copies fail at holes and at ranges that the
// device may not touch.
func TestCopies(t *testing.T) {
	var m Map
	low := add(t, &m, 0x1000, 0x1000, false)
	high := add(t, &m, 0x2000, 0x1000, false)
	add(t, &m, 0x4000, 0x1000, true)
	fatal.If(t, m.Add(Range{Addr: 0x6000, Size: 0x1000}))
	src := []byte("0123456789")
	fatal.If(t, m.Write(0x1ffb, src))
	if !bytes.Equal(low[0xffb:], src[:5]) || !bytes.Equal(high[:5], src[5:]) {
		t.Errorf("written across two ranges: %q and %q", low[0xffb:], high[:5])
	}
	got := make([]byte, len(src))
	if err := m.ReadV([]keydoor.Vec{{Addr: 0x1ffb, Buf: got[:3]}, {Addr: 0x1ffe, Buf: got[3:]}}); err != nil || !bytes.Equal(got, src) {
		t.Errorf("read %q, %v", got, err)
	}
	if err := m.Read(0x4000, got); err != nil {
		t.Errorf("reading a range that may only be read: %v", err)
	}
	for _, test := range []struct {
		name string
		addr uint64
	}{{"a hole", 0x5000}, {"into a hole", 0x2ffc}, {"a range that may only be read", 0x4000}, {"another device's registers", 0x6000}, {"the last address", ^uint64(0) - 2}} {
		if err := m.Write(test.addr, src); !errors.Is(err, syscall.EFAULT) {
			t.Errorf("%s: %v, want EFAULT", test.name, err)
		}
	}
	for _, n := range []int{4, 8} {
		if err := m.Write(0x1100, src[:n]); err != nil || !bytes.Equal(low[0x100:][:n], src[:n]) {
			t.Errorf("a word of %d bytes: %q, %v", n, low[0x100:][:n], err)
		}
		if err := m.Read(0x1100, got[:n]); err != nil || !bytes.Equal(got[:n], src[:n]) {
			t.Errorf("a word of %d bytes: %q, %v", n, got[:n], err)
		}
	}
}

func TestRefusedRanges(t *testing.T) {
	var m Map
	add(t, &m, 0x1000, 0x1000, false)
	add(t, &m, 0x3000, 0x1000, false)
	for _, r := range []Range{{Addr: 0x1fff, Size: 1}, {Addr: 0, Size: 0x1001}, {Addr: 0x2000, Size: 0x1001}, {Addr: 0, Size: 0x8000}} {
		if err := m.Add(r); !errors.Is(err, syscall.EEXIST) {
			t.Errorf("%#x bytes at %#x: %v, want EEXIST", r.Size, r.Addr, err)
		}
	}
	for _, r := range []Range{{Addr: 0x8000}, {Addr: ^uint64(0), Size: 2}, {Addr: 0x8000, Size: 2, View: make([]byte, 1)}} {
		if err := m.Add(r); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%#x bytes at %#x: %v, want EINVAL", r.Size, r.Addr, err)
		}
	}
	if _, err := m.Remove(0x1800, 0x800); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("removing half of a range: %v, want EINVAL", err)
	}
	if n, err := m.Remove(0x1000, 0x3000); n != 0x2000 || err != nil {
		t.Errorf("removed %#x bytes, %v", n, err)
	}
	if err := m.Add(Range{Addr: 0, Size: ^uint64(0)}); err != nil {
		t.Errorf("almost all addresses: %v", err)
	}
}

// TestRemoveIsFinal removes ranges while copies are under way. Remove must wait for them: the test
// overwrites the memory afterwards, under the race detector.
func TestRemoveIsFinal(t *testing.T) {
	var m Map
	const size = 1 << 16
	var copiers sync.WaitGroup
	stop := make(chan struct{})
	for i := range uint64(4) {
		copiers.Go(func() {
			b := make([]byte, 4096)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := m.Write(0x1000+i<<12, b); err != nil && !errors.Is(err, syscall.EFAULT) {
					t.Error(err)
				}
			}
		})
	}
	for range 200 {
		view := make([]byte, size)
		released := false
		if err := m.Add(Range{Addr: 0x1000, Size: size, View: view, Release: func() { released = true }}); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Remove(0x1000, size); err != nil {
			t.Fatal(err)
		}
		if !released {
			t.Fatal("the range was not released")
		}
		for i := range view {
			view[i] = 0xa5
		}
	}
	close(stop)
	copiers.Wait()
}
