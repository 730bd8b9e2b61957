package verbs

import (
	"fmt"
	"math"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
)

// MKeyAttr describes a memory key (mlx5dv_create_mkey(3)).
type MKeyAttr struct {
	Flags      mkey.Flags
	MaxEntries int // rounded up to a multiple of 4
}

// MKey is a memory key. Requests configure it ([Chain.Configure]). Afterwards this side
// and the peer use it like a region.
type MKey struct {
	pd     *PD
	e      *engine.MKey
	number atomic.Uint32 // with the tag of the last SetTag
}

// NewMKey creates a free memory key, which can be used once it is configured. It returns
// EOPNOTSUPP if the flags have unknown bits.
func (pd *PD) NewMKey(attr MKeyAttr) (*MKey, error) {
	if pd.e == nil {
		return nil, failure.Zero("create a memory key", "Device.NewPD")
	}
	e, err := pd.e.NewMKey(keydoor.Attr{Flags: uint32(attr.Flags), MaxEntries: attr.MaxEntries})
	if err != nil {
		return nil, err
	}
	k := &MKey{pd: pd, e: e}
	k.number.Store(e.Number())
	return k, nil
}

// LKey returns the key's number for requests of this side.
func (k *MKey) LKey() uint32 { return k.number.Load() }

// RKey returns the key's number for requests of the peer.
func (k *MKey) RKey() uint32 { return k.number.Load() }

// SGE returns a list entry for n bytes of the wire domain from an offset. Fields on the wire count: StreamLen of a
// sig.Format is the length with them. It panics if offset or n is negative, or if n exceeds the 32 bits of an entry.
func (k *MKey) SGE(offset, n int) rdma.SGE {
	if offset < 0 || n < 0 || uint64(n) > math.MaxUint32 {
		panic(fmt.Sprintf("verbs: MKey.SGE(%d, %d): both must be 0 or more, and an entry has at most %d bytes", offset, n, uint32(math.MaxUint32)))
	}
	return rdma.SGE{Addr: uint64(offset), Length: uint32(n), LKey: k.LKey()}
}

// SetTag changes the low byte of the key's number. LKey, RKey and SGE return the
// new number at once. Requests must use it from the next configuration of the key on:
// those that execute before that configuration use the old number, later ones the new
// number. SetTag returns EOPNOTSUPP if the key was created without mkey.UpdateTag.
func (k *MKey) SetTag(tag uint8) error {
	if k.e == nil {
		return failure.Zero("set the tag", "PD.NewMKey")
	}
	if k.e.Flags()&mkey.UpdateTag == 0 {
		return failure.New("set the tag", syscall.EOPNOTSUPP, "key %#x was created without mkey.UpdateTag", k.LKey())
	}
	k.number.Store(k.LKey()&^0xFF | uint32(tag))
	return nil
}

// Check returns the first bad block found since the last call, or nil, and clears it
// (mlx5dv_mkey_check(3)). Call it when the transfer is known to be complete: after its
// completion if this side used the key, or after a message from the peer if the peer used
// it. Check returns EINVAL for a key without mkey.BlockSignature. [DeviceOptions.Strict]
// determines when the key reports the next bad block. A READ that the peer repeats does
// not report its bad blocks again.
func (k *MKey) Check() (*mkey.BadBlock, error) {
	if k.e == nil {
		return nil, failure.Zero("check a memory key", "PD.NewMKey")
	}
	return k.e.Check()
}

// Close destroys the key. Requests that use it fail, including those in progress. When
// Close returns, no request accesses memory through the key.
func (k *MKey) Close() error {
	return do(k.e, "close a memory key", "PD.NewMKey", (*engine.MKey).Close)
}
