package guestmem

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// TestWhole reads and writes words while the other side of the memory changes and reads them: no value is half of one and
// half of another.
func TestWhole(t *testing.T) {
	var views [2][]byte // of one file: the race detector does not know that they are the same memory
	file, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
	if err == nil {
		defer unix.Close(file)
		err = unix.Ftruncate(file, 4096)
	}
	for i := range views {
		if err == nil {
			views[i], err = unix.Mmap(file, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			defer unix.Munmap(views[i])
		}
	}
	fatal.If(t, err)
	var m Map
	fatal.If(t, m.Add(Range{Addr: 0x1000, Size: 4096, View: views[0]}))
	const old, now = 0x0101010101010101, 0x0202020202020202
	for _, n := range []int{2, 4, 8} {
		copy(views[1][8:16], bytes.Repeat([]byte{1}, 8))
		var stop atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() { // the other side
			at := unsafe.Pointer(&views[1][8])
			for v := uint64(old); !stop.Load(); v ^= old ^ now {
				switch n {
				case 2:
					*(*uint16)(at) = uint16(v)
				case 4:
					atomic.StoreUint32((*uint32)(at), uint32(v))
				default:
					atomic.StoreUint64((*uint64)(at), v)
				}
			}
		})
		b := make([]byte, n)
		for range 2_000_000 {
			fatal.If(t, m.Read(0x1008, b))
			if b[0] != b[n-1] {
				t.Errorf("%d bytes: % x", n, b)
				break
			}
		}
		stop.Store(true)
		wg.Wait()
	}
}
