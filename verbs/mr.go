package verbs

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/engine"
	"github.com/softmkey/softmkey/mkey"
)

// MR is a memory region: a slice that requests, and with the rights for it the peer's,
// reach through its key.
type MR struct {
	e    *engine.Region
	buf  []byte
	addr uint64
}

// Register makes a region of buf. The slice must not be a part of the stack or of
// memory that is unmapped while the region exists. Remote writing and atomics need
// LocalWrite, too (ibv_reg_mr(3)).
func (pd *PD) Register(buf []byte, access Access) (*MR, error) {
	mr := &MR{buf: buf}
	if access&ZeroBased == 0 && len(buf) > 0 {
		mr.addr = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf))))
	}
	var err error
	mr.e, err = pd.e.NewRegion(engine.RegionAttr{Memory: mkey.Bytes(buf), Addr: mr.addr, Length: uint64(len(buf)), Access: access})
	if err != nil {
		return nil, err
	}
	return mr, nil
}

// LKey returns the key for requests of this side.
func (mr *MR) LKey() uint32 { return mr.e.Number() }

// RKey returns the key for requests of the peer.
func (mr *MR) RKey() uint32 { return mr.e.Number() }

// Addr returns the address of the region's first byte, 0 with ZeroBased.
func (mr *MR) Addr() uint64 { return mr.addr }

// Len returns the region's length in bytes.
func (mr *MR) Len() int { return len(mr.buf) }

// Bytes returns the slice that was registered.
func (mr *MR) Bytes() []byte { return mr.buf }

// SGE returns the entry for n bytes from an offset into the region. As a slice
// expression does, it panics if the range lies outside of the region; it also panics if
// n does not fit the 32 bits of an entry.
func (mr *MR) SGE(offset, n int) SGE {
	if offset < 0 || n < 0 || offset > len(mr.buf) || n > len(mr.buf)-offset || uint64(n) > math.MaxUint32 {
		panic(fmt.Sprintf("verbs: MR.SGE(%d, %d): the region has %d bytes, and an entry at most %d", offset, n, len(mr.buf), uint32(math.MaxUint32)))
	}
	return SGE{Addr: mr.addr + uint64(offset), Length: uint32(n), LKey: mr.LKey()}
}

// Close closes the region. When it has returned, nothing reaches the slice through the
// region any more; a request that still names the region fails.
func (mr *MR) Close() error { return mr.e.Close() }
