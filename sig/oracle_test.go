package sig_test

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"

	"github.com/softmkey/softmkey/internal/base/kernel/ref"
	"github.com/softmkey/softmkey/sig"
)

// The oracle executes a transform block by block. It computes every value bit by bit and
// uses only the types of package sig.

// field is a signature field: the named parts of a T10-DIF, or one CRC.
type field struct {
	guard uint64 // guard or CRC
	app   uint16
	ref   uint32
}

func oracleOnes(f sig.Format) bool {
	return f.Seed == sig.SeedOnes || f.Seed == sig.SeedDefault && f.Type != sig.T10DIF
}

func oracleRemap(f sig.Format) bool {
	return f.Flags&sig.RefRemap != 0 || f.Flags&(sig.AppEscape|sig.AppRefEscape|sig.Plain) == 0
}

// oracleField computes the field of block number n.
func oracleField(f sig.Format, data []byte, n uint64) field {
	var seed uint64
	if oracleOnes(f) {
		seed = ^seed
	}
	switch f.Type {
	case sig.CRC32:
		return field{guard: uint64(ref.CRC32(uint32(seed), data))}
	case sig.CRC32C:
		return field{guard: uint64(ref.CRC32C(uint32(seed), data))}
	case sig.CRC64:
		return field{guard: ref.CRC64(seed, data)}
	}
	v := field{app: f.AppTag, ref: uint32(f.RefTag)}
	if oracleRemap(f) {
		v.ref += uint32(n)
	}
	if f.Guard == sig.GuardCSUM {
		v.guard = uint64(ref.CSUM(uint16(seed), data))
	} else {
		v.guard = uint64(ref.T10DIF(uint16(seed), data))
	}
	return v
}

// bytes returns the field as in memory.
func (v field) bytes(t sig.Type) []byte {
	switch t {
	case sig.T10DIF:
		b := binary.BigEndian.AppendUint16(nil, uint16(v.guard))
		b = binary.BigEndian.AppendUint16(b, v.app)
		return binary.BigEndian.AppendUint32(b, v.ref)
	case sig.CRC32:
		return binary.BigEndian.AppendUint32(nil, uint32(v.guard))
	case sig.CRC32C:
		return binary.LittleEndian.AppendUint32(nil, uint32(v.guard))
	}
	return binary.LittleEndian.AppendUint64(nil, v.guard)
}

// parseField is the inverse of bytes.
func parseField(t sig.Type, b []byte) field {
	switch t {
	case sig.T10DIF:
		return field{uint64(binary.BigEndian.Uint16(b)), binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint32(b[4:])}
	case sig.CRC32:
		return field{guard: uint64(binary.BigEndian.Uint32(b))}
	case sig.CRC32C:
		return field{guard: uint64(binary.LittleEndian.Uint32(b))}
	}
	return field{guard: binary.LittleEndian.Uint64(b)}
}

// maskBit returns the bit of a check or copy mask that represents byte i in memory.
func maskBit(t sig.Type, i int) int {
	switch t {
	case sig.CRC32C:
		return 4 + i
	case sig.CRC64:
		return i
	}
	return 7 - i
}

// oracleEscape returns the escape of a format.
func oracleEscape(f sig.Format) sig.Flags {
	switch {
	case f.Type != sig.T10DIF:
		return 0
	case f.Flags&sig.AppRefEscape != 0:
		return sig.AppRefEscape
	case f.Flags&sig.AppEscape != 0 || f.Flags&(sig.RefRemap|sig.Plain) == 0:
		return sig.AppEscape
	}
	return 0
}

// oracleEscaped reports whether a field exempts its block from the check.
func oracleEscaped(f sig.Format, s field) bool {
	escape := oracleEscape(f)
	return escape != 0 && s.app == 0xFFFF && (escape == sig.AppEscape || s.ref == 0xFFFFFFFF)
}

// oracleKeep is the rule of TransformConfig.KeepEscapes: it returns the output field of a block
// whose input field is stored and whose output field is made by the copy mask alone.
func oracleKeep(in, out sig.Format, data, stored, made []byte, n uint64) []byte {
	if in.Type != sig.T10DIF || out.Type != sig.T10DIF || !oracleEscaped(in, parseField(in.Type, stored)) {
		return made
	}
	x := parseField(out.Type, made)
	switch oracleEscape(out) {
	case 0:
		return oracleField(out, data, n).bytes(out.Type)
	case sig.AppRefEscape:
		x.ref = 0xFFFFFFFF
	}
	x.app = 0xFFFF
	return x.bytes(out.Type)
}

// oracleCheck checks the field of block n according to in.
func oracleCheck(in sig.Format, mask sig.Mask, data, stored []byte, n uint64) (sig.Error, bool) {
	s, w := parseField(in.Type, stored), oracleField(in, data, n)
	if oracleEscaped(in, s) {
		return sig.Error{}, true
	}
	differs := func(from, to int) bool {
		if in.Type == sig.T10DIF && (from == 0 && in.Flags&sig.IgnoreGuard != 0 || from == 4 && in.Flags&sig.IgnoreRef != 0) {
			return false
		}
		a, b := s.bytes(in.Type), w.bytes(in.Type)
		for i := from; i < to; i++ {
			diff := a[i] ^ b[i]
			if in.Type == sig.T10DIF && (i == 2 || i == 3) {
				app := in.AppMask
				if in.Flags&sig.IgnoreApp != 0 {
					app = 0
				} else if app == 0 {
					app = 0xFFFF
				}
				diff &= byte(app >> (8 * (3 - i)))
			}
			if diff != 0 && mask>>maskBit(in.Type, i)&1 != 0 {
				return true
			}
		}
		return false
	}
	e := sig.Error{Block: n, Offset: n * uint64(in.BlockSize+len(stored))}
	if in.Type != sig.T10DIF {
		e.Kind, e.Stored, e.Computed = sig.BadGuard, s.guard, w.guard
		return e, !differs(0, len(stored))
	}
	switch {
	case differs(0, 2):
		e.Kind, e.Stored, e.Computed = sig.BadGuard, s.guard, w.guard
	case differs(2, 4):
		e.Kind, e.Stored, e.Computed = sig.BadAppTag, uint64(s.app), uint64(w.app)
	case differs(4, 8):
		e.Kind, e.Stored, e.Computed = sig.BadRefTag, uint64(s.ref), uint64(w.ref)
	default:
		return sig.Error{}, true
	}
	return e, false
}

// oracleCopyMask implements the rule of the specification independently.
func oracleCopyMask(in, out sig.Format) sig.Mask {
	if in.Type != out.Type || in.BlockSize != out.BlockSize || in.Type == sig.NoSignature {
		return 0
	}
	var m sig.Mask
	if in.Type != sig.T10DIF {
		return 0xFF
	}
	if in.Guard == out.Guard && oracleOnes(in) == oracleOnes(out) {
		m |= 0xC0
	}
	if in.AppTag == out.AppTag {
		m |= 0x30
	}
	if in.RefTag == out.RefTag {
		m |= 0x0F
	}
	return m
}

// oracleMerge returns the output field of a block.
func oracleMerge(out sig.Format, mask sig.Mask, data, stored []byte, n uint64) []byte {
	b := oracleField(out, data, n).bytes(out.Type)
	for i := range b {
		if mask>>maskBit(out.Type, i)&1 != 0 {
			b[i] = stored[i]
		}
	}
	return b
}

// oracleRun is Transform.Run.
func oracleRun(c sig.TransformConfig, dst, src sig.Blocks, n int, first uint64) []sig.Error {
	in, out := c.In, c.Out
	size := in.BlockSize
	copyMask := oracleCopyMask(in, out)
	if c.CopyMask != nil {
		copyMask = *c.CopyMask
	}
	var bad []sig.Error
	for i := range n {
		block := append([]byte(nil), src.Data[i*src.DataStride:][:size]...)
		var stored []byte
		if in.Type != sig.NoSignature {
			stored = append(stored, src.Fields[i*src.FieldStride:][:in.FieldSize()]...)
			if e, ok := oracleCheck(in, checked(c), block, stored, first+uint64(i)); !ok {
				bad = append(bad, e)
			}
		}
		copy(dst.Data[i*dst.DataStride:], block)
		if out.Type != sig.NoSignature {
			made := oracleMerge(out, copyMask, block, stored, first+uint64(i))
			if c.KeepEscapes {
				made = oracleKeep(in, out, block, stored, made, first+uint64(i))
			}
			copy(dst.Fields[i*dst.FieldStride:], made)
		}
	}
	return bad
}

// randomFormat returns a valid format of the given block size.
func randomFormat(r *rand.Rand, t sig.Type, size int) sig.Format {
	f := sig.Format{Type: t, BlockSize: size}
	if t == sig.NoSignature {
		return f
	}
	f.Seed = sig.Seed(r.IntN(3))
	if t != sig.T10DIF {
		return f
	}
	f.Guard = sig.Guard(r.IntN(2))
	f.AppTag = pick(r, 0, 0xFFFF, 0x5678, uint16(r.Uint32()))
	f.RefTag = uint64(pick(r, 0, 0xFFFFFFFF, 0xFFFFFFF0, r.Uint32()))
	f.AppMask = pick(r, 0, 0xFFFF, 0xFF00, uint16(r.Uint32()))
	f.Flags = pick(r, 0, sig.Plain, sig.Type1, sig.Type3, sig.RefRemap, sig.AppEscape, sig.AppEscape|sig.AppRefEscape, sig.RefRemap|sig.AppRefEscape)
	if r.IntN(8) == 0 {
		f.AppMask = 0
		f.Flags |= sig.IgnoreApp
	}
	if f.Flags&sig.IgnoreApp == 0 { // something must be checked
		f.Flags |= pick(r, 0, 0, 0, sig.IgnoreRef, sig.IgnoreGuard)
	}
	return f
}

func pick[T any](r *rand.Rand, choices ...T) T { return choices[r.IntN(len(choices))] }

// randomMask prefers common masks.
func randomMask(r *rand.Rand) sig.Mask {
	return pick(r, 0xFF, 0xFF, 0xF0, 0xC0, 0x30, 0x0F, 0, sig.Mask(bits.Reverse8(uint8(r.Uint32()))))
}

// checked returns the check mask of a configuration.
func checked(c sig.TransformConfig) sig.Mask {
	if c.CheckMask == nil {
		return sig.MaskAll
	}
	return *c.CheckMask
}
