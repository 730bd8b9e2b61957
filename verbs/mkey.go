package verbs

import (
	"fmt"
	"math"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/engine"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/operr"
)

// MKeyFlags are the capabilities of a memory key. The values are those of enum
// mlx5dv_mkey_init_attr_flags.
type MKeyFlags = mkey.Flags

// The flags of [MKeyAttr].
const (
	MKeyIndirect         = mkey.Indirect
	MKeyBlockSignature   = mkey.BlockSignature
	MKeyCrypto           = mkey.CryptoOffload
	MKeyUpdateTag        = mkey.UpdateTag
	MKeyRemoteInvalidate = mkey.RemoteInvalidate
)

// MKeyAttr describes a memory key (mlx5dv_create_mkey(3)).
type MKeyAttr struct {
	Flags      MKeyFlags // MKeyIndirect is required
	MaxEntries int       // rounded up to a multiple of 4
}

// MKey is a memory key: requests configure it ([Chain.Configure]), and then it is used
// as a region is, by this side and by the peer.
type MKey struct {
	pd     *PD
	e      *engine.MKey
	number atomic.Uint32 // with the tag of the last SetTag
}

// NewMKey creates a memory key, which is free: it can be used once it was configured. No
// flags, unknown ones, or none of MKeyIndirect are EOPNOTSUPP.
func (pd *PD) NewMKey(attr MKeyAttr) (*MKey, error) {
	e, err := pd.e.NewMKey(mkey.Attr{Flags: attr.Flags, MaxEntries: attr.MaxEntries})
	if err != nil {
		return nil, err
	}
	k := &MKey{pd: pd, e: e}
	k.number.Store(e.Number())
	return k, nil
}

// Number returns the key's number, which is its lkey and its rkey.
func (k *MKey) Number() uint32 { return k.number.Load() }

// LKey returns the key for requests of this side.
func (k *MKey) LKey() uint32 { return k.Number() }

// RKey returns the key for requests of the peer.
func (k *MKey) RKey() uint32 { return k.Number() }

// MaxEntries returns the largest number of entries that a layout may have.
func (k *MKey) MaxEntries() int { return k.e.MaxEntries() }

// SGE returns the entry for n bytes of the wire domain from an offset. It panics if one
// of them is negative or n does not fit the 32 bits of an entry.
func (k *MKey) SGE(offset, n int) SGE {
	if offset < 0 || n < 0 || uint64(n) > math.MaxUint32 {
		panic(fmt.Sprintf("verbs: MKey.SGE(%d, %d): both must be 0 or more, and an entry has at most %d bytes", offset, n, uint32(math.MaxUint32)))
	}
	return SGE{Addr: uint64(offset), Length: uint32(n), LKey: k.Number()}
}

// SetTag changes the low byte of the key's number. The new number takes effect with the
// next configuration of the key: requests that execute before it use the old number, and
// requests that execute after it the new one, which Number, LKey, RKey and SGE return at
// once. The key must have MKeyUpdateTag (EOPNOTSUPP).
func (k *MKey) SetTag(tag uint8) error {
	if k.e.Flags()&mkey.UpdateTag == 0 {
		return operr.New("set the tag", syscall.EOPNOTSUPP, "key %#x was created without MKeyUpdateTag", k.Number())
	}
	k.number.Store(k.Number()&^0xFF | uint32(tag))
	return nil
}

// Check returns the first bad block that was found since the last call, or nil, and
// forgets it (mlx5dv_mkey_check(3)). Ask when the transfer is known to be over: after its
// completion for a key of this side, after a message of the peer for a key that the peer
// used. A key without MKeyBlockSignature is EINVAL. [Options.Strict] says when the key
// reports the next one. A READ that the peer repeats does not report its bad blocks again.
func (k *MKey) Check() (*BadBlock, error) { return k.e.Check() }

// Close destroys the key. When it has returned, nothing reaches memory through the key
// any more: requests that use it fail, those that are under way, too.
func (k *MKey) Close() error { return k.e.Close() }
