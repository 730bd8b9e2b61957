package adapter

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
)

// programMemory is the program's memory as the memory of regions, by its addresses: a
// mkey.Copied.
type programMemory struct{ mem Memory }

// Reach implements mkey.Memory. The region has checked the range.
func (p programMemory) Reach(addr, n uint64, need rdma.Access) error { return nil }

// At implements mkey.Memory.
func (p programMemory) At(addr, n uint64, need rdma.Access) ([]byte, error) {
	return nil, failure.New("memory", syscall.EOPNOTSUPP, "the program's memory can only be copied")
}

// Space implements mkey.Copied.
func (p programMemory) Space(addr, n uint64, need rdma.Access) (mkey.Space, uint64, error) {
	return p.mem, addr, nil
}
