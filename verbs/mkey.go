package verbs

import (
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/keydoor"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/operr"
)

// MKeyFlags say what a memory key is made for; the values are those of enum
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

// MKeyAttr is what a memory key is created with (mlx5dv_create_mkey(3)).
type MKeyAttr struct {
	Flags      MKeyFlags // MKeyIndirect is required
	MaxEntries int       // rounded up to a multiple of 4
}

// MKey is a memory key: it is configured by work requests ([Chain.Configure]) and
// then used like a region, by this side and by the peer.
type MKey struct {
	pd     *PD
	key    *mkey.Key
	door   keydoor.Key // of key
	number atomic.Uint32
	closed atomic.Bool
}

// NewMKey creates a memory key, which is free: it can be used once it was
// configured. No flags, unknown ones, or none of MKeyIndirect are EOPNOTSUPP.
func (pd *PD) NewMKey(attr MKeyAttr) (*MKey, error) {
	if attr.MaxEntries > maxMKeyEntries {
		return nil, operr.New("mkey create", syscall.EINVAL, "max_entries %d: at most %d", attr.MaxEntries, maxMKeyEntries)
	}
	if err := pd.enter("MKey"); err != nil {
		return nil, err
	}
	k := &MKey{pd: pd}
	err := pd.dev.keys.add(keyEntry{mkey: k}, func(number uint32) (err error) {
		k.number.Store(number)
		if k.key, err = mkey.Create(mkey.Attr{Flags: attr.Flags, MaxEntries: attr.MaxEntries, Number: number}); err != nil {
			return err
		}
		k.door = keydoor.Of(k.key)
		return nil
	})
	if err != nil {
		pd.leave("MKey")
		return nil, err
	}
	return k, nil
}

// Number returns the key's number, which is its lkey and its rkey.
func (k *MKey) Number() uint32 { return k.number.Load() }

// LKey returns the key for requests of this side.
func (k *MKey) LKey() uint32 { return k.Number() }

// RKey returns the key for requests of the peer.
func (k *MKey) RKey() uint32 { return k.Number() }

// MaxEntries returns how many entries a layout may have.
func (k *MKey) MaxEntries() int { return k.key.MaxEntries() }

// SGE returns the entry for n bytes of the wire domain from an offset.
func (k *MKey) SGE(offset, n int) SGE {
	return SGE{Addr: uint64(offset), Length: uint32(n), LKey: k.Number()}
}

// SetTag changes the low byte of the key's number, so that numbers given out
// earlier become stale. The key must have MKeyUpdateTag (EOPNOTSUPP).
func (k *MKey) SetTag(tag uint8) error {
	if k.key.Flags()&mkey.UpdateTag == 0 {
		return operr.New("mkey tag", syscall.EOPNOTSUPP, "key %#x was created without MKeyUpdateTag", k.Number())
	}
	k.number.Store(k.Number()&^0xFF | uint32(tag))
	k.door.SetNumber(k.Number())
	return nil
}

// Check returns the first bad block since the last time it was asked, or nil, and
// forgets it (mlx5dv_mkey_check(3)). Ask when the transfer is known to be over: after
// the completion for a key of this side, after a message of the peer for one that the
// peer used. A key without MKeyBlockSignature is EINVAL.
func (k *MKey) Check() (*BadBlock, error) { return k.key.Check() }

// Close destroys the key. When it has returned, nothing is reached through it any
// more; a request that still does fails.
func (k *MKey) Close() error {
	if k.closed.Swap(true) {
		return nil
	}
	k.pd.dev.keys.remove(k.Number())
	k.key.Close()
	k.pd.dev.quiesce()
	k.pd.leave("MKey")
	return nil
}
