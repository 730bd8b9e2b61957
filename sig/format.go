package sig

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/kernel/crc"
)

// Type is the kind of signature that follows every block.
type Type uint8

const (
	NoSignature Type = iota // no signature: data only
	T10DIF                  // T10 Data Integrity Field: guard, application tag, reference tag; 8 bytes, big-endian
	CRC32                   // Fibre Channel CRC (ANSI X3.230), most significant bit first; 4 bytes, big-endian
	CRC32C                  // Castagnoli CRC (RFC 3720); 4 bytes, little-endian
	CRC64                   // CRC64 of XP10 and NVMe; 8 bytes, little-endian

	// The protection information formats of NVMe 2.0, within metadata of any length. Memory
	// keys do not have them.
	NVMe16 // 16-bit guard: as T10DIF, and the upper bits of the reference tag may be a storage tag; 8 bytes
	NVMe32 // 32-bit guard: CRC32C, application tag, 80 bits of storage and reference tag; 16 bytes, big-endian
	NVMe64 // 64-bit guard: CRC64, application tag, 48 bits of storage and reference tag; 16 bytes, big-endian
)

var typeNames = [...]string{
	NoSignature: "none", T10DIF: "t10dif", CRC32: "crc32", CRC32C: "crc32c", CRC64: "crc64",
	NVMe16: "nvme16", NVMe32: "nvme32", NVMe64: "nvme64",
}

// String returns the name that ParseFormat reads.
func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return fmt.Sprintf("type(%d)", uint8(t))
}

// OfKey reports whether a memory key can have signatures of the type.
func (t Type) OfKey() bool { return t >= T10DIF && t <= CRC64 }

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

// Flags are the flags of the types with tags: T10DIF and the NVMe types. If none of the
// first four is set, Type1 holds. The Ignore flags concern only the check. The values of the first three are those of enum
// mlx5dv_sig_t10dif_flags.
type Flags uint16

const (
	RefRemap      Flags = 1 << iota // the reference tag rises by one each block, modulo 2 to the power of its bits
	AppEscape                       // a block whose stored application tag is 0xFFFF is not checked
	AppRefEscape                    // a block whose application tag is 0xFFFF and whose reference tag is all ones is not checked; overrides AppEscape
	Plain                           // no remapping and no escape; differs from the zero value, which means Type1
	IgnoreApp                       // no bit of the application tag is compared; AppMask must be zero
	IgnoreStorage                   // the storage tag of an NVMe type is not compared
	IgnoreRef                       // the reference tag is not compared
	IgnoreGuard                     // the guard is not compared

	Type1 = RefRemap | AppEscape     // protection types 1 and 2: the reference tag counts from RefTag; of type 1 that is the low half of the LBA
	Type3 = AppRefEscape | IgnoreRef // protection type 3: the reference tag is constant and not compared, escape only if both tags are all ones
)

// String returns the names of the flags, joined by "|", or "0" for no flags.
func (f Flags) String() string {
	var s []string
	for i, name := range []string{"REF_REMAP", "APP_ESCAPE", "APP_REF_ESCAPE", "NO_FLAGS", "IGNORE_APP", "IGNORE_STORAGE", "IGNORE_REF", "IGNORE_GUARD"} {
		if f&(1<<i) != 0 {
			s = append(s, name)
			f &^= 1 << i
		}
	}
	if f != 0 || s == nil {
		s = append(s, fmt.Sprintf("%d", uint16(f)))
	}
	return strings.Join(s, "|")
}

const behaviour = RefRemap | AppEscape | AppRefEscape

// DefaultBlockSize is the block size of a Format whose BlockSize is zero.
const DefaultBlockSize = 512

// maxBlockSize is the largest block that a Format takes.
const maxBlockSize = 1 << 30

var keyBlockSizes = [...]int{512, 520, 4048, 4096, 4160}

// KeyBlockSizes returns the block sizes that a memory key accepts, in the order
// of enum mlx5dv_block_size; [Type.OfKey] says which types it accepts. The methods of Format accept any multiple of 8.
func KeyBlockSizes() []int { return slices.Clone(keyBlockSizes[:]) }

// Format describes a stream of blocks and fields. The zero value of every field but Type
// is the usual choice: Format{Type: T10DIF} is protection type 1 on 512-byte blocks with a
// CRC guard and tags of zero.
//
// AppTag, AppMask, RefTag and Flags belong to the types with tags, which are T10DIF and the NVMe
// types; Guard belongs to T10DIF, Seed to T10DIF and the CRCs, and the fields from Metadata on to
// the NVMe types. They must be zero otherwise. A Format of Type NoSignature describes plain data.
type Format struct {
	Type      Type
	BlockSize int    // bytes of data in a block, a multiple of 8, at most 1 GiB; 0 means DefaultBlockSize
	Guard     Guard  // how the guard is computed
	Seed      Seed   // initial value of the guard or CRC
	AppTag    uint16 // application tag to write, or to compare with
	AppMask   uint16 // bits of the application tag that are compared; 0 means all (IgnoreApp: none)
	RefTag    uint64 // reference tag of the stream's first block; a T10DIF has 32 bits
	Flags     Flags  // remapping and escapes; 0 means Type1

	Metadata    int    // bytes of metadata after a block, a multiple of 8; 0 means those of the field
	FieldFirst  bool   // the field is in the first bytes of the metadata, and its guard covers the data alone; false: in the last, and the guard covers the metadata before it
	StorageBits int    // bits of the storage tag (NVMe's STS): 0 to 32 of NVMe16, 16 to 64 of NVMe32, 0 to 48 of NVMe64; 0 means the least
	StorageTag  uint64 // storage tag to write, or to compare with
}

const opFormat = "sig format"

// Validate reports whether f describes a signature that can be computed. Its error
// is an *operr.Error with EINVAL.
func (f Format) Validate() error {
	refuse := func(format string, args ...any) error {
		return failure.New(opFormat, syscall.EINVAL, format, args...)
	}
	size := f.Block()
	switch {
	case f.Type > NVMe64:
		return refuse("%v: not a signature type", f.Type)
	case f.Guard > GuardCSUM:
		return refuse("guard type %d: must be CRC or CSUM", f.Guard)
	case f.Seed > SeedOnes:
		return refuse("seed %d: must be zeros or ones", f.Seed)
	case f.Flags >= IgnoreGuard<<1:
		return refuse("flags %#x: unknown bits", uint16(f.Flags))
	case f.Flags&Plain != 0 && f.Flags&behaviour != 0:
		return refuse("flags %#x: Plain beside others", uint16(f.Flags))
	case f.Flags&IgnoreApp != 0 && f.AppMask != 0:
		return refuse("application tag mask %#x beside IgnoreApp", f.AppMask)
	case size < 8 || size%8 != 0:
		return refuse("block size %d: must be a positive multiple of 8", size)
	case size > maxBlockSize:
		return refuse("block size %d: must not exceed %d", size, maxBlockSize)
	}
	switch {
	case !f.tagged() && (f.Guard != GuardCRC || f.AppTag != 0 || f.AppMask != 0 || f.RefTag != 0 || f.Flags != 0):
		return refuse("%v has no guard type, tags, tag mask or flags", f.Type)
	case f.Type == NoSignature && f.Seed != SeedDefault:
		return refuse("%v has no seed", f.Type)
	case f.tagged() && f.checksNothing():
		return refuse("neither the guard nor a tag is compared: nothing is left to check")
	case f.nvme():
		return f.validateNVMe(refuse)
	case f.Metadata != 0, f.FieldFirst, f.StorageBits != 0, f.StorageTag != 0, f.Flags&IgnoreStorage != 0:
		return refuse("%v has no metadata beside its field and no storage tag: the NVMe types have", f.Type)
	case f.RefTag > math.MaxUint32:
		return refuse("reference tag %#x: %v has 32 bits of it", f.RefTag, f.Type)
	}
	return nil
}

// checksNothing reports whether the flags of a type with tags exclude every part of the field
// from the check.
func (f Format) checksNothing() bool {
	const ignored = IgnoreGuard | IgnoreRef
	return f.Flags&ignored == ignored && f.appMask() == 0 && (f.storageBits() == 0 || f.Flags&IgnoreStorage != 0)
}

// tagged reports whether the field has tags beside its guard.
func (f Format) tagged() bool { return f.Type == T10DIF || f.nvme() }

// Block returns the size of a block in bytes: BlockSize, or its default.
func (f Format) Block() int {
	if f.BlockSize == 0 {
		return DefaultBlockSize
	}
	return f.BlockSize
}

// flags returns the flags with the default filled in.
func (f Format) flags() Flags {
	if f.tagged() && f.Flags&(behaviour|Plain) == 0 {
		return f.Flags | Type1
	}
	return f.Flags
}

// Remaps reports whether the reference tag rises by one with every block.
func (f Format) Remaps() bool { return f.flags()&RefRemap != 0 }

// From returns the format of a stream that begins with block number block of
// the stream with the format f: its reference tag is higher by block if the
// format remaps. An [Error] counts blocks and offsets from the start of the slice that was checked.
func (f Format) From(block uint64) Format {
	f.RefTag = f.ref(block)
	return f
}

// ref returns the reference tag of block number block.
func (f Format) ref(block uint64) uint64 {
	if !f.Remaps() {
		return f.RefTag
	}
	return (f.RefTag + block) & f.refMask()
}

// refMask returns a one for each bit of the reference tag.
func (f Format) refMask() uint64 {
	if f.nvme() {
		return 1<<f.refBits() - 1
	}
	return math.MaxUint32
}

// MaxRefTag returns the largest reference tag, all ones, or 0 for a type without tags.
func (f Format) MaxRefTag() uint64 {
	if !f.tagged() {
		return 0
	}
	return f.refMask()
}

// ones reports whether the register starts at all ones.
func (f Format) ones() bool {
	if f.Seed == SeedDefault {
		return f.Type != T10DIF && f.Type != NVMe16
	}
	return f.Seed == SeedOnes
}

// FieldSize returns the number of bytes after every block: 8 for T10DIF and CRC64, 4 for CRC32
// and CRC32C, 0 for NoSignature, and the whole metadata for the NVMe types.
func (f Format) FieldSize() int {
	if f.Metadata != 0 {
		return f.Metadata
	}
	return f.width()
}

// width returns the size of the field alone.
func (f Format) width() int {
	switch {
	case f.Type == NoSignature || f.Type > NVMe64:
		return 0
	case f.Type >= NVMe32:
		return 16
	}
	return kinds[f.Type].FieldSize()
}

// Stride returns the number of bytes from one block to the next in a stream of
// blocks and fields: the block size plus the field size.
func (f Format) Stride() int { return f.Block() + f.FieldSize() }

// kinds has the kind of the guard, if that is a CRC, of each type.
var kinds = [...]crc.Kind{
	T10DIF: crc.T10, CRC32: crc.CRC32, CRC32C: crc.CRC32C, CRC64: crc.CRC64,
	NVMe16: crc.T10, NVMe32: crc.CRC32C, NVMe64: crc.CRC64,
}

// kind returns the constant of package crc for the guard or CRC. f.Type must
// not be NoSignature.
func (f Format) kind() crc.Kind {
	if f.Guard == GuardCSUM {
		return crc.CSUM
	}
	return kinds[f.Type]
}

// tag returns the application and reference tag of block number block of a T10DIF as the
// kernels take them, zero for the CRCs.
func (f Format) tag(block uint64) uint64 {
	return uint64(f.AppTag)<<32 | f.ref(block)
}

// step returns the increment of the reference tag from block to block: 1 or 0.
func (f Format) step() uint32 {
	if f.Remaps() {
		return 1
	}
	return 0
}
