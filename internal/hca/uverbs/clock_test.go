//go:build linux

package uverbs

import (
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// wallclock reads the page as libmlx5 does and converts a value of the counter with
// mlx5dv_ts_to_ns.
func (p *program) wallclock(page []byte, cycles uint64) int64 {
	c := clock{page}
	for {
		sign := atomic.LoadUint32(c.u32(clockSign))
		if sign&clockUpdating != 0 {
			continue
		}
		nsec, last := atomic.LoadUint64(c.u64(clockNsec)), atomic.LoadUint64(c.u64(clockCycles))
		mult, shift := uint64(*c.u32(clockMult)), *c.u32(clockMult + 4)
		if atomic.LoadUint32(c.u32(clockSign)) != sign {
			continue
		}
		if delta := cycles - last; delta <= 1<<63 {
			return int64(nsec + delta*mult>>shift)
		}
		return int64(nsec - (last-cycles)*mult>>shift)
	}
}

// TestClockPage converts values of the counter of a year ahead and of a year ago, and follows a
// wall clock that is set.
func TestClockPage(t *testing.T) {
	var offset atomic.Int64 // of the wall clock
	start := time.Now()
	d := openDevice(t, Config{Name: "mlx5_0", now: func() time.Time { return start.Add(time.Duration(offset.Load())) }})
	p := newProgram(t, d)
	page, err := unix.Mmap(int(p.file.fd.Fd()), mapClock<<8*pageSize, pageSize, unix.PROT_READ, unix.MAP_SHARED)
	fatal.If(t, err)
	defer unix.Munmap(page)
	base := *clock{page}.u64(clockCycles)
	const year = 365 * 24 * time.Hour
	for _, ahead := range []time.Duration{0, 1, 5 * time.Hour, year, -5 * time.Hour, -year} {
		if got, want := p.wallclock(page, base+uint64(ahead)), start.Add(ahead).UnixNano(); got != want {
			t.Errorf("the counter at %v is %d, want %d", ahead, got, want)
		}
	}
	offset.Store(int64(-2 * time.Hour))
	d.setClocks()
	if got, want := p.wallclock(page, *clock{page}.u64(clockCycles)), start.UnixNano()-int64(2*time.Hour); got != want {
		t.Errorf("after the clock was set back, the counter is %d, want %d", got, want)
	}
}

// TestClockTorn reads the page while it is written.
func TestClockTorn(t *testing.T) {
	d := newDevice(t)
	p := newProgram(t, d)
	page, err := unix.Mmap(int(p.file.fd.Fd()), mapClock<<8*pageSize, pageSize, unix.PROT_READ, unix.MAP_SHARED)
	fatal.If(t, err)
	defer unix.Munmap(page)
	epoch := time.Unix(1000, 0)
	d.mu.Lock() // every writer holds it, so that the device's own updates wait
	defer d.mu.Unlock()
	p.file.clock.set(0, epoch)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 100_000 {
			p.file.clock.set(uint64(i), epoch.Add(time.Duration(i)))
		}
	}()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		if got := p.wallclock(page, 5); got != epoch.UnixNano()+5 {
			t.Fatalf("the counter at 5 is %d, want %d", got, epoch.UnixNano()+5)
		}
	}
}
