package adapter

import (
	"syscall"

	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/rdma"
)

// programMemory is the program's memory as the memory of regions, by its addresses.
type programMemory struct{ mem Memory }

// Reach implements mkey.Memory. The region has checked the range.
func (p programMemory) Reach(addr, n uint64, need rdma.Access) error { return nil }

// At implements mkey.Memory.
func (p programMemory) At(addr, n uint64, need rdma.Access) ([]byte, error) {
	if v := p.mem.Map(addr, int(n)); v != nil {
		return v, nil
	}
	return nil, operr.New("memory", syscall.EOPNOTSUPP, "memory of another process has no slices")
}
