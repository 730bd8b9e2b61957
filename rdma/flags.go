package rdma

import "github.com/softmkey/softmkey/internal/flags"

// Access is a set of rights to memory, or of a peer's rights through a QP. The values
// are those of enum ibv_access_flags. Local reading needs no flag.
type Access uint32

// The access flags. A memory key can have the first four.
const (
	LocalWrite   Access = 1 << 0
	RemoteWrite  Access = 1 << 1
	RemoteRead   Access = 1 << 2
	RemoteAtomic Access = 1 << 3
	ZeroBased    Access = 1 << 5 // the addresses of the region are offsets into it
)

var accessNames = flags.Names{"LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC", "MW_BIND", "ZERO_BASED"}

// String returns the names of the flags, joined by "|".
func (a Access) String() string { return accessNames.Join(uint32(a)) }

// WCFlags tells which fields of a [WC] are valid. The values are those of enum
// ibv_wc_flags.
type WCFlags uint32

// The flags of a completion.
const (
	WithGRH WCFlags = 1 << 0 // the first 40 bytes of the buffer are a global route header (UD)
	WithImm WCFlags = 1 << 1
	WithInv WCFlags = 1 << 3
)

var wcFlagNames = flags.Names{"GRH", "WITH_IMM", 3: "WITH_INV"}

// String returns the names of the flags, joined by "|".
func (f WCFlags) String() string { return wcFlagNames.Join(uint32(f)) }
