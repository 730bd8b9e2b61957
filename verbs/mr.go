package verbs

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
)

// MR is a memory region: a slice that requests access through the region's key. The
// peer's requests need the corresponding access rights.
type MR struct {
	e    *engine.Region
	buf  []byte
	addr uint64
}

// Register creates a region of buf. While the region exists, the slice must not be on a
// stack and must not be unmapped. RemoteWrite and RemoteAtomic require LocalWrite
// (ibv_reg_mr(3)).
func (pd *PD) Register(buf []byte, access rdma.Access) (*MR, error) {
	if pd.e == nil {
		return nil, failure.Zero("register memory", "Device.NewPD")
	}
	mr := &MR{buf: buf}
	if access&rdma.ZeroBased == 0 && len(buf) > 0 {
		mr.addr = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf))))
	}
	var err error
	mr.e, err = pd.e.NewRegion(engine.RegionAttr{Memory: mkey.Bytes(buf), Addr: mr.addr, Length: uint64(len(buf)), Access: access})
	if err != nil {
		return nil, err
	}
	return mr, nil
}

// LKey returns the region's key for requests of this side.
func (mr *MR) LKey() uint32 { return ask(mr.e, (*engine.Region).Number) }

// RKey returns the region's key for requests of the peer.
func (mr *MR) RKey() uint32 { return ask(mr.e, (*engine.Region).Number) }

// Addr returns the address of the region's first byte, 0 with ZeroBased.
func (mr *MR) Addr() uint64 { return mr.addr }

// Len returns the region's length in bytes.
func (mr *MR) Len() int { return len(mr.buf) }

// Bytes returns the slice that was registered.
func (mr *MR) Bytes() []byte { return mr.buf }

// SGE returns a list entry for n bytes from an offset into the region. Like a slice
// expression, it panics if the range is outside of the region. It also panics if n
// exceeds the 32 bits of an entry.
func (mr *MR) SGE(offset, n int) rdma.SGE {
	if offset < 0 || n < 0 || offset > len(mr.buf) || n > len(mr.buf)-offset || uint64(n) > math.MaxUint32 {
		panic(fmt.Sprintf("verbs: MR.SGE(%d, %d): the region has %d bytes, and an entry at most %d", offset, n, len(mr.buf), uint32(math.MaxUint32)))
	}
	return rdma.SGE{Addr: mr.addr + uint64(offset), Length: uint32(n), LKey: mr.LKey()}
}

// Close closes the region. A request that still names the region fails. When Close
// returns, no request accesses the slice through the region.
func (mr *MR) Close() error {
	return do(mr.e, "close the region", "PD.Register", (*engine.Region).Close)
}
