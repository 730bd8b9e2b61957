package sig

import "encoding/binary"

// escape returns the escape of a format, AppEscape or AppRefEscape, or 0 if it has none.
func (f Format) escape() Flags {
	switch flags := f.flags(); {
	case flags&AppRefEscape != 0:
		return AppRefEscape
	case flags&AppEscape != 0:
		return AppEscape
	}
	return 0
}

// Escaped returns how many of the first n blocks of b an escape of the format exempts
// from the check. It panics if the blocks do not fit the slices.
func (f Format) Escaped(b Blocks, n int) (count int) {
	if f.escape() == 0 || n <= 0 {
		return 0
	}
	if !b.holds(n, f.Block(), f.FieldSize()) {
		panic("sig: blocks do not fit their memory")
	}
	l := f.nvmeField()
	for i := range n {
		if f.exempts(&l, b.Fields[i*b.FieldStride:]) {
			count++
		}
	}
	return count
}

// exempts reports whether the field in b, whose place is l in an NVMe type, exempts its
// block from the check.
func (f *Format) exempts(l *nvmeField, b []byte) bool {
	if f.Type != T10DIF {
		return f.Escapes(l.load(b))
	}
	if binary.BigEndian.Uint16(b[2:]) != 0xFFFF {
		return false
	}
	return f.escape() == AppEscape || binary.BigEndian.Uint32(b[4:]) == 0xFFFFFFFF
}

// exemption has a bit for each block of a batch.
type exemption [batch / 64]uint64

// exempt returns which of the first n blocks, at most a batch, an escape of the input exempts.
func (t *Transform) exempt(src Blocks, n int) (e exemption) {
	for i := range n {
		if t.in.exempts(&t.nvmeIn, src.Fields[i*src.FieldStride:]) {
			e[i/64] |= 1 << (i % 64)
		}
	}
	return e
}

// restoreEscapes rewrites the output's fields of exempt blocks, for KeepEscapes. want has the
// guards of a batch.
func (t *Transform) restoreEscapes(dst Blocks, want []uint64, first uint64, e exemption) {
	if e == (exemption{}) {
		return
	}
	escape := t.out.escape()
	for i := range want {
		if e[i/64]>>(i%64)&1 == 0 {
			continue
		}
		b := dst.Fields[i*dst.FieldStride:]
		x := t.out.Field(b)
		if escape != 0 {
			x.AppTag = 0xFFFF
			if escape == AppRefEscape {
				x.RefTag = t.out.refMask()
			}
		} else {
			x.AppTag, x.StorageTag, x.RefTag = t.out.AppTag, t.out.StorageTag, t.out.ref(first+uint64(i))
			if t.copied&MaskGuard != 0 { // otherwise the guard was generated
				x.Guard = want[i]
				if t.out.Type == T10DIF {
					x.Guard = tagWire(x.Guard) >> 48
				}
			}
		}
		t.out.putField(b, &x)
	}
}

// putField is the reverse of Field, for the types with tags.
func (f *Format) putField(b []byte, x *Field) {
	if f.Type != T10DIF {
		l := f.nvmeField()
		l.store(b, x)
		return
	}
	binary.BigEndian.PutUint16(b, uint16(x.Guard))
	binary.BigEndian.PutUint16(b[2:], x.AppTag)
	binary.BigEndian.PutUint32(b[4:], uint32(x.RefTag))
}
