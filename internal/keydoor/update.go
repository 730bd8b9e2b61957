package keydoor

import (
	"sync"

	"github.com/softmkey/softmkey/rdma"
)

// Attr holds the attributes with which a key is created (mlx5dv_create_mkey(3)).
type Attr struct {
	Flags      uint32      // a mkey.Flags
	MaxEntries int         // largest number of layout entries; rounded up to a multiple of 4
	Number     uint32      // the lkey and rkey, repeated in reports of bad blocks
	Access     rdma.Access // the rights of the key until an Update sets others

	// StrictCheck makes the key record one bad block for each configuration, as
	// adapters do: after a bad block was recorded, the next one is recorded
	// only after a new configuration. Without StrictCheck, the next one is
	// recorded after mkey.Key.Check has returned the previous one.
	StrictCheck bool
}

// NewKey creates a key without a configuration, a *mkey.Key: a free key, which can be used once
// it is configured. It returns EOPNOTSUPP if the flags have unknown bits.
var NewKey func(a Attr) (key any, err error)

// Update is one request to configure a key (mlx5dv_wr_mkey_configure(3)). A field that is nil
// leaves the key's attribute as it is. The types are mkey.Layout, *mkey.Signature and
// *mkey.Crypto.
type Update[Layout, Signature, Crypto any] struct {
	ResetSignature bool // drop the signature attributes (MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR)
	Access         *rdma.Access
	Layout         Layout
	Signature      Signature
	Crypto         Crypto

	// Start is the address of the first byte of the key's stream: every offset
	// into the key counts from it, also in an entry of another key's layout.
	// Adapters call it start_addr. It is 0 for a free key that is configured
	// without it.
	Start *uint64

	// Transaction sets a transaction signature, in place of block signatures.
	// mlx5dv has no setter for it; programs with commands of their own use it.
	Transaction *Transaction

	// Space is the number of bytes in the work request for the layout's entries (16
	// bytes each) and the attributes (64 bytes each). If it is 0, only the key limits
	// them.
	Space int
}

// PSV is a protection signature value: the register of a CRC32C that runs over the streams
// of several keys, one after another. It is safe for concurrent use.
type PSV struct {
	mu       sync.Mutex
	register uint32 // guarded by mu
}

// NewPSV returns a PSV whose register has its initial value, all ones.
func NewPSV() *PSV { return &PSV{register: 0xFFFFFFFF} }

// Set loads the register. The value is that of the register, and the CRC is the
// complement of it.
func (v *PSV) Set(register uint32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.register = register
}

// Register returns the register.
func (v *PSV) Register() uint32 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.register
}

// Transaction holds the attributes of a transaction signature: one CRC32C (RFC
// 3720) over the whole stream of a key, in place of a signature of each block.
// A key with a transaction signature has no block signatures and no crypto
// attributes, and can only be read.
//
// A stream that begins at offset 0 starts with the seed if Init is set, and
// otherwise with the register of the PSV, as does a stream that begins at
// another offset. When the stream's last byte of data was read, the PSV gets
// the register's value. A stream that is read again because the peer repeats
// its RDMA READ does not change the PSV again. A stream from which nothing is
// read does not change it either.
type Transaction struct {
	PSV      *PSV
	Init     bool // a stream from the beginning of the key starts with the seed, all ones
	Generate bool // on the wire 4 bytes follow the data: the CRC, least significant byte first

	// Length is the number of bytes of data, which must be the length of the
	// layout: at most 16 MiB. 0 means any length.
	Length uint64
}
