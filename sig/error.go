package sig

import "fmt"

// Kind is the part of a field that was wrong. The values are those of enum
// mlx5dv_mkey_err_type.
type Kind uint8

const (
	BadGuard  Kind = 1 + iota // the guard of a T10-DIF, or a CRC
	BadRefTag                 // the reference tag
	BadAppTag                 // the application tag

	BadStorageTag // the storage tag of an NVMe type; mlx5dv has no value for it
)

// String returns the kind in words.
func (k Kind) String() string {
	switch k {
	case BadGuard:
		return "bad guard"
	case BadRefTag:
		return "bad reference tag"
	case BadAppTag:
		return "bad application tag"
	case BadStorageTag:
		return "bad storage tag"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Error is a block whose field is wrong. If several parts of the field are
// wrong, Kind is the first wrong part in the order guard, application tag,
// storage tag, reference tag.
type Error struct {
	Kind     Kind
	Block    uint64 // number of the block in the stream
	Offset   uint64 // offset of the block's first byte in the input's stream of blocks and fields
	Stored   uint64 // value in the field
	Computed uint64 // value computed from the data, or the configured tag
}

// Error returns all fields in one line.
func (e *Error) Error() string {
	return fmt.Sprintf("%v: block %d at offset %d: stored %#x, computed %#x", e.Kind, e.Block, e.Offset, e.Stored, e.Computed)
}
