package mkey

import (
	"github.com/softmkey/softmkey/internal/flags"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// Flags are the uses that a key is created for. The values are those of enum
// mlx5dv_mkey_init_attr_flags, whose first flag, INDIRECT, all keys of this package have.
type Flags uint32

// The flags of a key.
const (
	BlockSignature   Flags = 1 << 1 // signature attributes may be set
	CryptoOffload    Flags = 1 << 2 // crypto attributes must be set before use
	UpdateTag        Flags = 1 << 3 // the tag, the key's low byte, may be changed
	RemoteInvalidate Flags = 1 << 4 // an incoming SEND with invalidate may free the key

	flagsAll = BlockSignature | CryptoOffload | UpdateTag | RemoteInvalidate
)

var flagNames = flags.Names{"INDIRECT", "BLOCK_SIGNATURE", "CRYPTO", "UPDATE_TAG", "REMOTE_INVALIDATE"}

// String returns the names of the flags, joined by "|".
func (f Flags) String() string { return flagNames.Join(uint32(f)) }

// accessAll is the set of rights that a memory key can grant.
const accessAll = rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic

// update is one request to configure a key.
type update = keydoor.Update[Layout, *Signature, *Crypto]

// KeyConfig is a complete configuration for [New].
type KeyConfig struct {
	Access    rdma.Access
	Layout    Layout
	Signature *Signature // nil: none
	Crypto    *Crypto    // nil: none
}

// Signature holds the block signature attributes of a key
// (mlx5dv_wr_set_mkey_sig_block(3)).
type Signature struct {
	Memory *sig.Format // nil: the memory domain has data only
	Wire   *sig.Format // nil: the wire domain has data only

	// CheckMask selects the bytes of a field that are checked; nil: all. CopyMask
	// selects those that are copied from one domain to the other
	// (MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK); nil: those of sig.TransformConfig. 0 is no byte.
	CheckMask *sig.Mask
	CopyMask  *sig.Mask

	// MemoryCheckMask and WireCheckMask replace CheckMask for the fields of one domain: those of memory, which are checked on TX, and
	// those of the wire, which are checked on RX. If nil, CheckMask applies. A
	// mask of 0 checks nothing. The domain must have a signature. The C
	// interface has one mask for both domains; the adapters' own structures
	// have one for each.
	MemoryCheckMask *sig.Mask
	WireCheckMask   *sig.Mask
}

// Checked returns the mask of the bytes that are checked in the fields of a
// domain, with the meaning of check_mask in C: 0 checks none.
func (s *Signature) Checked(d Domain) sig.Mask {
	own := s.MemoryCheckMask
	if d == WireDomain {
		own = s.WireCheckMask
	}
	switch {
	case own != nil:
		return *own
	case s.CheckMask != nil:
		return *s.CheckMask
	}
	return sig.MaskAll
}

// Order is the order of crypto and signature work on TX; RX has the opposite
// order. The values are those of enum mlx5dv_signature_crypto_order.
type Order uint8

// The orders of [Crypto].
const (
	SignatureAfterCrypto  Order = 0 // on TX, crypto first
	SignatureBeforeCrypto Order = 1 // on TX, signature first
)

// DEK is the data encryption key of [Crypto]. The type dek.DEK implements it.
type DEK interface {
	// Acquire returns the cipher for one transfer and holds the DEK until Release. It
	// fails if the DEK may not be used with the keytag of the memory key.
	Acquire(keytag [8]byte) (*xts.Cipher, error)

	// Hold keeps the DEK from being destroyed until Release. A memory key whose
	// configuration names the DEK holds it.
	Hold() error

	// Release ends one Acquire or Hold.
	Release()
}

// Crypto holds the AES-XTS attributes of a key (mlx5dv_wr_set_mkey_crypto(3)).
type Crypto struct {
	EncryptOnTX  bool // true: encrypt from memory to wire; false: decrypt
	Order        Order
	DataUnitSize int       // 512, 520, 4048, 4096 or 4160 bytes
	InitialTweak xts.Tweak // tweak of the first data unit of the stream
	DEK          DEK
	KeyTag       [8]byte // must equal the DEK's keytag, if the DEK has one
}

// OnMemory reports whether the data units are cut from the memory domain's
// stream (rows A, B, F, G, H and I of mlx5dv_wr_set_mkey_crypto(3)), not from
// the wire domain's. s is the key's signature attributes, nil for none. For a
// combination that is not a row, the result is undefined.
func (c *Crypto) OnMemory(s *Signature) bool {
	after := c.Order == SignatureAfterCrypto
	switch {
	case s == nil:
		return true
	case c.EncryptOnTX && after && s.Memory != nil: // equals row D
		return false
	case !c.EncryptOnTX && !after && s.Wire != nil: // equals row G
		return true
	}
	return after
}
