package sig

import "math/bits"

// Mask selects bytes of a field, one bit for each byte.
type Mask uint8

// The parts of a field. Their values are
// those of enum mlx5dv_sig_mask. Bits may be combined freely.
//
//	bit         7         6         5       4       3       2       1       0
//	T10-DIF     guard[1]  guard[0]  app[1]  app[0]  ref[3]  ref[2]  ref[1]  ref[0]
//	CRC32(C)    crc[3]    crc[2]    crc[1]  crc[0]  -       -       -       -
//	CRC64       crc[7]    crc[6]    crc[5]  crc[4]  crc[3]  crc[2]  crc[1]  crc[0]
//
// The index is the byte's significance: crc[3] is the most significant byte, which
// a CRC32 has first in memory and a CRC32C, being little-endian, last.
const (
	MaskGuard   Mask = 0xC0 // T10-DIF guard
	MaskApp     Mask = 0x30 // T10-DIF application tag
	MaskRef     Mask = 0x0F // T10-DIF reference tag
	MaskAll     Mask = 0xFF // every byte of any field
	maskNothing Mask = 0
)

// defaultCopyMask returns the copy mask that stands for nil, by the rule of mlx5 hardware.
func defaultCopyMask(in, out Format) Mask {
	if in.Type != out.Type || in.Block() != out.Block() {
		return maskNothing
	}
	if !in.tagged() {
		return MaskAll << (8 - in.width())
	}
	m := maskNothing
	if in.Guard == out.Guard && in.ones() == out.ones() && sameMetadata(in, out) {
		m |= MaskGuard
	}
	if in.AppTag == out.AppTag {
		m |= MaskApp
	}
	if in.RefTag == out.RefTag && in.StorageTag == out.StorageTag && in.storageBits() == out.storageBits() {
		m |= MaskRef
	}
	return m
}

// ConsistentCopyMask returns the default copy mask ([TransformConfig]) without the bytes that could be
// wrong under the output's format: reference tags that remap on one side only,
// CRCs of different seeds, and parts of the field that the output's format
// compares and the input's does not. A block that was checked and correct under the
// input's format is then correct under the output's. A block that an escape exempts
// from the check needs [TransformConfig.KeepEscapes] too.
func ConsistentCopyMask(in, out Format) Mask {
	m := defaultCopyMask(in, out)
	if !in.tagged() && in.ones() != out.ones() {
		return maskNothing
	}
	if !in.tagged() {
		return m
	}
	if in.step() != out.step() || ignores(in, out, IgnoreRef) || ignores(in, out, IgnoreStorage) {
		m &^= MaskRef
	}
	if out.appMask()&^in.appMask() != 0 {
		m &^= MaskApp
	}
	if ignores(in, out, IgnoreGuard) {
		m &^= MaskGuard
	}
	return m
}

// ignores reports whether the input's format does not compare what the output's does.
func ignores(in, out Format, part Flags) bool { return in.Flags&part != 0 && out.Flags&part == 0 }

// wireMask returns the bits of a byte mask in the field's little-endian number, the form
// that the kernels use.
func wireMask(t Type, m Mask) uint64 {
	w := spread(m) // bit 7 of m, for the most significant byte, gives the top byte
	switch t {
	case T10DIF:
		return bits.ReverseBytes64(w)
	case CRC32:
		return uint64(bits.ReverseBytes32(uint32(w >> 32)))
	case CRC32C:
		return w >> 32
	case CRC64:
		return w
	}
	return 0
}

// spread returns a number whose byte i is 0xFF if m has bit i.
func spread(m Mask) (v uint64) {
	for i := range 8 {
		v |= uint64(m>>i&1) * 0xFF << (8 * i)
	}
	return v
}
