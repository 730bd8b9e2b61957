package sig

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/kernel/crc"
	"github.com/softmkey/softmkey/operr"
)

// Type is the kind of signature that follows every block.
type Type uint8

const (
	None   Type = iota // no signature: data only
	T10DIF             // T10 Data Integrity Field: guard, application tag, reference tag; 8 bytes, big-endian
	CRC32              // Fibre Channel CRC (ANSI X3.230), most significant bit first; 4 bytes, big-endian
	CRC32C             // Castagnoli CRC (RFC 3720); 4 bytes, little-endian
	CRC64              // CRC64 of XP10 and NVMe; 8 bytes, little-endian
)

var typeNames = [...]string{None: "none", T10DIF: "t10dif", CRC32: "crc32", CRC32C: "crc32c", CRC64: "crc64"}

// String returns the name that ParseFormat reads.
func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return fmt.Sprintf("type(%d)", uint8(t))
}

// Guard selects how a T10-DIF guard is computed. The zero value is the CRC.
type Guard uint8

const (
	GuardCRC  Guard = iota // CRC-16/T10-DIF
	GuardCSUM              // IP checksum (RFC 1071) over big-endian 16-bit words
)

// Seed selects the initial value of the register for each block; for the IP
// checksum it is the first addend. Hardware supports only zeros and ones.
type Seed uint8

const (
	SeedDefault Seed = iota // zeros for T10-DIF, ones for the CRCs
	SeedZeros               // 0
	SeedOnes                // all ones, in the width of the guard or CRC
)

// Flags are the T10-DIF flags. If none of the first four is set, Type1 holds. The
// values of the first three are those of enum mlx5dv_sig_t10dif_flags.
type Flags uint8

const (
	RefRemap     Flags = 1 << iota // the reference tag rises by one each block, modulo 2^32
	AppEscape                      // a block whose stored application tag is 0xFFFF is not checked
	AppRefEscape                   // a block whose application tag is 0xFFFF and reference tag 0xFFFFFFFF is not checked; overrides AppEscape
	NoFlags                        // no remapping and no escape; differs from the zero value, which means Type1
	IgnoreApp                      // no bit of the application tag is compared; AppMask must be zero

	Type1 = RefRemap | AppEscape // protection type 1: reference tag counts from the low half of the LBA
	Type2 = RefRemap | AppEscape // protection type 2: the same rules, from a reference tag of the caller's choice
	Type3 = AppRefEscape         // protection type 3: constant reference tag, escape only if both tags are all ones
)

// String returns the names of the flags, joined by "|", or "0" for no flags.
func (f Flags) String() string {
	var s []string
	for i, name := range []string{"REF_REMAP", "APP_ESCAPE", "APP_REF_ESCAPE", "NO_FLAGS", "IGNORE_APP"} {
		if f&(1<<i) != 0 {
			s = append(s, name)
			f &^= 1 << i
		}
	}
	if f != 0 || s == nil {
		s = append(s, fmt.Sprintf("%d", uint8(f)))
	}
	return strings.Join(s, "|")
}

const behaviour = RefRemap | AppEscape | AppRefEscape

// DefaultBlockSize is the block size of a Format whose BlockSize is zero.
const DefaultBlockSize = 512

// MaxBlockSize is the largest block that a Format takes: 1 GiB.
const MaxBlockSize = 1 << 30

var keyBlockSizes = [...]int{512, 520, 4048, 4096, 4160}

// KeyBlockSizes returns the block sizes that a memory key accepts, in the order
// of enum mlx5dv_block_size. The methods of Format accept any multiple of 8.
func KeyBlockSizes() []int { return slices.Clone(keyBlockSizes[:]) }

// Format describes a stream of blocks and fields. The zero value of every field but Type
// is the usual choice: Format{Type: T10DIF} is protection type 1 on 512-byte blocks with a
// CRC guard and tags of zero.
//
// Guard, AppTag, AppMask, RefTag and Flags belong to T10DIF and must be zero
// otherwise. A Format of Type None describes plain data.
type Format struct {
	Type      Type
	BlockSize int    // bytes of data in a block, a multiple of 8; 0 means DefaultBlockSize
	Guard     Guard  // how the guard is computed
	Seed      Seed   // initial value of the guard or CRC
	AppTag    uint16 // application tag to write, or to compare with
	AppMask   uint16 // bits of the application tag that are compared; 0 means all (IgnoreApp: none)
	RefTag    uint32 // reference tag of the stream's first block
	Flags     Flags  // remapping and escapes; 0 means Type1
}

const opFormat = "sig format"

// Validate reports whether f describes a signature that can be computed. Its error
// is an *operr.Error with EINVAL.
func (f Format) Validate() error {
	return asError(f.validate())
}

func (f Format) validate() *operr.Error {
	refuse := func(format string, args ...any) *operr.Error {
		return failure.New(opFormat, syscall.EINVAL, format, args...)
	}
	size := f.Block()
	switch {
	case f.Type > CRC64:
		return refuse("%v: not a signature type", f.Type)
	case f.Guard > GuardCSUM:
		return refuse("guard type %d: must be CRC or CSUM", f.Guard)
	case f.Seed > SeedOnes:
		return refuse("seed %d: must be zeros or ones", f.Seed)
	case f.Flags >= IgnoreApp<<1:
		return refuse("flags %#x: unknown bits", uint8(f.Flags))
	case f.Flags&NoFlags != 0 && f.Flags&behaviour != 0:
		return refuse("flags %#x: NoFlags beside others", uint8(f.Flags))
	case f.Flags&IgnoreApp != 0 && f.AppMask != 0:
		return refuse("application tag mask %#x beside IgnoreApp", f.AppMask)
	case size < 8 || size%8 != 0:
		return refuse("block size %d: must be a positive multiple of 8", size)
	case size > MaxBlockSize:
		return refuse("block size %d: must not exceed %d", size, MaxBlockSize)
	}
	if f.Type != T10DIF {
		switch {
		case f.Guard != GuardCRC, f.AppTag != 0, f.AppMask != 0, f.RefTag != 0, f.Flags != 0:
			return refuse("%v has no guard type, tags, tag mask or flags", f.Type)
		case f.Type == None && f.Seed != SeedDefault:
			return refuse("%v has no seed", f.Type)
		}
	}
	return nil
}

// Block returns the size of a block in bytes: BlockSize, or its default.
func (f Format) Block() int {
	if f.BlockSize == 0 {
		return DefaultBlockSize
	}
	return f.BlockSize
}

// flags returns the T10-DIF flags with the default filled in.
func (f Format) flags() Flags {
	if f.Type == T10DIF && f.Flags&(behaviour|NoFlags) == 0 {
		return f.Flags | Type1
	}
	return f.Flags
}

// Remaps reports whether the reference tag rises by one with every block.
func (f Format) Remaps() bool { return f.flags()&RefRemap != 0 }

// From returns the format of a stream that begins with block number block of
// the stream with the format f: its reference tag is higher by block if the
// format remaps.
func (f Format) From(block uint64) Format {
	f.RefTag += f.step() * uint32(block)
	return f
}

// ones reports whether the register starts at all ones.
func (f Format) ones() bool {
	if f.Seed == SeedDefault {
		return f.Type != T10DIF
	}
	return f.Seed == SeedOnes
}

// FieldSize returns the size in bytes of the field after every block: 8 for T10DIF and
// CRC64, 4 for CRC32 and CRC32C, 0 for None.
func (f Format) FieldSize() int {
	switch f.Type {
	case T10DIF, CRC64:
		return 8
	case CRC32, CRC32C:
		return 4
	}
	return 0
}

// Stride returns the number of bytes from one block to the next in a stream of
// blocks and fields: the block size plus the field size.
func (f Format) Stride() int { return f.Block() + f.FieldSize() }

// kind returns the constant of package crc for the guard or CRC. f.Type must
// not be None.
func (f Format) kind() crc.Kind {
	switch f.Type {
	case T10DIF:
		if f.Guard == GuardCSUM {
			return crc.CSUM
		}
		return crc.T10
	case CRC32:
		return crc.CRC32
	case CRC32C:
		return crc.CRC32C
	}
	return crc.CRC64
}

// tag returns the application and reference tag of block number block as the
// kernels take them, zero for the CRCs.
func (f Format) tag(block uint64) uint64 {
	ref := f.RefTag
	if f.Remaps() {
		ref += uint32(block)
	}
	return uint64(f.AppTag)<<32 | uint64(ref)
}

// step returns the increment of the reference tag from block to block: 1 or 0.
func (f Format) step() uint32 {
	if f.Remaps() {
		return 1
	}
	return 0
}
