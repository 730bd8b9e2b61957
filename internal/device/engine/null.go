package engine

import (
	"math"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/rdma"
)

// NullKey is the number of a region that every PD has: requests read zeros from any of its
// addresses, and what they write to it is dropped. Peers have no right to it. It is
// the second highest number: the highest means no key, and a guest's keys get the lowest numbers.
const NullKey = 0xfffffe00

// nullRegion returns the region of NullKey.
func nullRegion() *Region {
	r := &Region{number: NullKey}
	r.state.Store(&regionState{
		RegionAttr: RegionAttr{Memory: nullMemory{}, Length: math.MaxUint64, Access: rdma.LocalWrite},
		other:      nullMemory{}, copied: nullMemory{},
	})
	return r
}

// nullMemory is a keydoor.Copied and its Space.
type nullMemory struct{}

func (nullMemory) Reach(addr, n uint64, need rdma.Access) error { return nil }

func (nullMemory) At(addr, n uint64, need rdma.Access) ([]byte, error) {
	return nil, failure.New("access a region", syscall.EOPNOTSUPP, "the null region can only be copied")
}

func (nullMemory) Space(addr, n uint64, need rdma.Access) (keydoor.Space, uint64, error) {
	return nullMemory{}, addr, nil
}

func (nullMemory) ReadV(vecs []keydoor.Vec) error {
	for _, v := range vecs {
		clear(v.Buf)
	}
	return nil
}

func (nullMemory) WriteV([]keydoor.Vec) error { return nil }
