//go:build linux

package uverbs

import "time"

// clockShift is the shift of the conversion from counts to nanoseconds. The
// counter counts nanoseconds, so that the multiplier is 1 << clockShift.
const clockShift = 20

// clockPage returns struct mlx5_ib_clock_info. It relates the counter of completion
// timestamps, whose value is cycles, to the wall clock.
func clockPage(cycles uint64, now time.Time) []byte {
	p := make(fields, 56)
	p.put64(8, uint64(now.UnixNano()))
	p.put64(16, cycles)
	p.put32(32, 1<<clockShift)
	p.put32(36, clockShift)
	p.put64(40, ^uint64(0))
	p.put64(48, 1<<40)
	return p
}

func now() time.Time { return time.Now() }
