//go:build linux

package uverbs

import (
	"errors"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// TestTypesOfQueuePairs asks for types of queue pairs, also for some whose lowest byte is that of a known one.
func TestTypesOfQueuePairs(t *testing.T) {
	for _, c := range []struct {
		typ   uint64
		flags uint32
		want  rdma.QPType
		errno syscall.Errno
	}{
		{2, 0, rdma.RC, 0}, {3, 0, rdma.UC, 0}, {4, 0, rdma.UD, 0}, {0xff, qpFlagDCI, ibv.DCI, 0}, {0xff, qpFlagDCT, ibv.DCT, 0},
		{0, 0, 0, syscall.EINVAL}, {0x102, 0, 0, syscall.EINVAL}, {1<<32 + 2, 0, 0, syscall.EINVAL}, {0x1ff, qpFlagDCI, 0, syscall.EINVAL},
		{8, 0, 0, syscall.EOPNOTSUPP}, {0xff, 0, 0, syscall.EOPNOTSUPP}, {0xff, qpFlagDCI | qpFlagDCT, 0, syscall.EOPNOTSUPP},
	} {
		got, flags, err := qpType(c.typ, c.flags)
		if c.errno != 0 && !errors.Is(err, c.errno) || c.errno == 0 && (err != nil || got != c.want || flags != 0) {
			t.Errorf("type %#x, flags %#x: type %v, flags %#x, %v; want %v, error %v", c.typ, c.flags, got, flags, err, c.want, c.errno)
		}
	}
}
