//go:build linux

package uverbs

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// clock is the page of an open device that relates the counter of completion timestamps to the
// wall clock: struct mlx5_ib_clock_info. The program may read it during an update: sign is odd
// during the update and has a new value after it.
type clock struct{ page []byte }

// The offsets in struct mlx5_ib_clock_info.
const (
	clockSign   = 0
	clockNsec   = 8
	clockCycles = 16
	clockMult   = 32
	clockMask   = 40
	clockPeriod = 48 // overflow_period

	clockUpdating = 1 // MLX5_IB_CLOCK_INFO_KERNEL_UPDATING
)

// clockEvery is the time between two updates of the pages. The updates follow changes of the
// wall clock.
const clockEvery = time.Second

// openClock maps the page from the descriptor's file.
func openClock(fd int) (clock, error) {
	page, err := unix.Mmap(fd, mapClock<<8*pageSize, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return clock{}, failure.New("get context", failure.Errno(err, syscall.EIO), "the clock page: %v", err)
	}
	c := clock{page}
	// The counter counts nanoseconds: mult is 1 and shift is 0. With larger values the library's
	// 64-bit product would overflow: with mult 1<<20 after five hours.
	*c.u32(clockMult) = 1
	*c.u64(clockMask) = ^uint64(0)
	*c.u64(clockPeriod) = uint64(clockEvery)
	return c, nil
}

func (c clock) u32(at int) *uint32 { return (*uint32)(unsafe.Pointer(&c.page[at])) }
func (c clock) u64(at int) *uint64 { return (*uint64)(unsafe.Pointer(&c.page[at])) }

// set records that the counter was cycles at the wall-clock time at. The caller serialises calls.
func (c clock) set(cycles uint64, at time.Time) {
	sign := atomic.LoadUint32(c.u32(clockSign)) &^ clockUpdating
	atomic.StoreUint32(c.u32(clockSign), sign|clockUpdating)
	atomic.StoreUint64(c.u64(clockNsec), uint64(at.UnixNano()))
	atomic.StoreUint64(c.u64(clockCycles), cycles)
	atomic.StoreUint32(c.u32(clockSign), sign+2*clockUpdating)
}

func (c clock) close() {
	if c.page != nil {
		unix.Munmap(c.page)
	}
}

// keepTime updates the clock pages at each tick, until the device is closed.
func (d *Device) keepTime(ticks <-chan time.Time) {
	defer close(d.timeEnded)
	for {
		select {
		case <-ticks:
			d.setClocks()
		case <-d.ending:
			return
		}
	}
}

func (d *Device) setClocks() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.files {
		f.clock.set(d.adapter.Clock(), d.now())
	}
}
