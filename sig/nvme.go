package sig

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/crc64"
	"math/bits"

	"github.com/softmkey/softmkey/internal/base/kernel/crc"
)

// This file has what the NVMe types need beyond T10DIF: fields of 16 bytes, metadata around
// them, and tags of a width of choice. The formats are those of the NVM Command Set
// Specification 1.0, section 5.2.1.

// maxMetadata is the largest metadata that an NVMe LBA format can have, rounded down to a
// multiple of 8.
const maxMetadata = 1<<16 - 8

// nvme reports whether f has one of the NVMe types.
func (f Format) nvme() bool { return f.Type >= NVMe16 && f.Type <= NVMe64 }

// storageRange returns the least and the largest number of bits that the storage tag of a type
// can have, and the number of bits that it shares with the reference tag.
func (t Type) storageRange() (least, most, both int) {
	switch t {
	case NVMe16:
		return 0, 32, 32
	case NVMe32:
		return 16, 64, 80
	}
	return 0, 48, 48
}

// storageBits returns the bits of the storage tag, StorageBits or its default.
func (f Format) storageBits() int {
	if !f.nvme() {
		return 0
	}
	least, _, _ := f.Type.storageRange()
	return max(f.StorageBits, least)
}

// refBits returns the number of bits of the reference tag of an NVMe type.
func (f Format) refBits() int {
	_, _, both := f.Type.storageRange()
	return both - f.storageBits()
}

// TagBits returns the number of bits of the storage tag and of the reference tag. Both are 0 for the
// CRCs.
func (f Format) TagBits() (storage, ref int) {
	switch {
	case f.nvme():
		return f.storageBits(), f.refBits()
	case f.Type == T10DIF:
		return 0, 32
	}
	return 0, 0
}

func (f Format) validateNVMe(refuse func(string, ...any) error) error {
	least, most, _ := f.Type.storageRange()
	switch {
	case f.Guard != GuardCRC, f.Seed != SeedDefault:
		return refuse("%v has no guard type and no seed", f.Type)
	case f.Metadata != 0 && (f.Metadata < f.width() || f.Metadata > maxMetadata || f.Metadata%8 != 0):
		return refuse("metadata of %d bytes: with %v it must be a multiple of 8 from %d to %d", f.Metadata, f.Type, f.width(), maxMetadata)
	case f.StorageBits != 0 && (f.StorageBits < least || f.StorageBits > most):
		return refuse("storage tag of %d bits: %v has %d to %d", f.StorageBits, f.Type, least, most)
	case f.storageBits() < 64 && f.StorageTag>>f.storageBits() != 0:
		return refuse("storage tag %#x: has more than %d bits", f.StorageTag, f.storageBits())
	case f.RefTag&^f.refMask() != 0:
		return refuse("reference tag %#x: has more than %d bits, which the storage tag leaves", f.RefTag, f.refBits())
	}
	return nil
}

// sameMetadata reports whether two formats of one type have their fields at one place of
// metadata of one length.
func sameMetadata(a, b Format) bool {
	return a.Type == b.Type && a.FieldSize() == b.FieldSize() && a.fieldAt() == b.fieldAt()
}

// wholeParts reports whether a mask selects the parts of a field whole.
func wholeParts(m Mask) bool {
	for _, part := range [...]Mask{MaskGuard, MaskApp, MaskRef} {
		if m&part != 0 && m&part != part {
			return false
		}
	}
	return true
}

// fieldAt returns the offset of the field in the metadata.
func (f Format) fieldAt() int {
	if f.FieldFirst {
		return 0
	}
	return f.FieldSize() - f.width()
}

// Field has the parts of a field as numbers.
type Field struct {
	Guard      uint64 // the guard of a type with tags; the whole field of a CRC
	AppTag     uint16
	StorageTag uint64
	RefTag     uint64
}

// Field returns the parts of the field in b, the FieldSize bytes that follow a block. It panics if b is shorter.
func (f Format) Field(b []byte) Field {
	if len(b) < f.FieldSize() {
		panic(fmt.Sprintf("sig: field of %d bytes: %v has %d", len(b), f.Type, f.FieldSize()))
	}
	switch {
	case f.Type == NoSignature:
		return Field{}
	case f.nvme():
		l := f.nvmeField()
		return l.load(b)
	}
	return f.parts(loadField(b, f.width()))
}

// Escapes reports whether the tags in a field exempt its block from the check.
func (f Format) Escapes(x Field) bool {
	switch f.escape() {
	case AppRefEscape:
		return x.AppTag == 0xFFFF && x.RefTag == f.refMask()
	case AppEscape:
		return x.AppTag == 0xFFFF
	}
	return false
}

// nvmeField is the place and the structure of an NVMe type's field.
type nvmeField struct {
	typ     Type
	at      int  // offset in the metadata
	width   int  // bytes of the field; 0: the side has no NVMe type
	refBits uint // number of bits of the reference tag
}

func (f Format) nvmeField() nvmeField {
	if !f.nvme() {
		return nvmeField{}
	}
	return nvmeField{typ: f.Type, at: f.fieldAt(), width: f.width(), refBits: uint(f.refBits())}
}

// load returns the parts of the field in the metadata of a block. Storage and reference tag are one
// big-endian number of 32, 80 or 48 bits, in which the storage tag has the most significant bits.
func (l *nvmeField) load(metadata []byte) (x Field) {
	var high, low uint64 // storage and reference tag
	b := metadata[l.at:]
	switch l.typ {
	case NVMe16:
		v := binary.BigEndian.Uint64(b)
		x.Guard, x.AppTag, low = v>>48, uint16(v>>32), v&0xFFFFFFFF
	case NVMe32:
		v := binary.BigEndian.Uint64(b)
		x.Guard, x.AppTag, high, low = v>>32, uint16(v>>16), v&0xFFFF, binary.BigEndian.Uint64(b[8:])
	default:
		v := binary.BigEndian.Uint64(b[8:])
		x.Guard, x.AppTag, low = binary.BigEndian.Uint64(b), uint16(v>>48), v&(1<<48-1)
	}
	x.StorageTag = high<<(64-l.refBits) | low>>l.refBits
	x.RefTag = low & (1<<l.refBits - 1)
	return x
}

// store is the reverse of load.
func (l *nvmeField) store(metadata []byte, x *Field) {
	low := x.StorageTag<<l.refBits | x.RefTag
	b := metadata[l.at:]
	switch l.typ {
	case NVMe16:
		binary.BigEndian.PutUint64(b, x.Guard<<48|uint64(x.AppTag)<<32|low)
	case NVMe32:
		high := x.StorageTag >> (64 - l.refBits)
		binary.BigEndian.PutUint64(b, x.Guard<<32|uint64(x.AppTag)<<16|high)
		binary.BigEndian.PutUint64(b[8:], low)
	default:
		binary.BigEndian.PutUint64(b, x.Guard)
		binary.BigEndian.PutUint64(b[8:], uint64(x.AppTag)<<48|low)
	}
}

// guards makes the guards of some blocks from the kernels' results for their data: it continues
// them over the metadata before the field.
func (l *nvmeField) guards(want []uint64, metadata []byte, stride int) {
	for i, w := range want {
		if l.typ == NVMe16 {
			w = bits.ReverseBytes64(w) >> 48
		}
		if l.at > 0 {
			w = l.extend(w, metadata[i*stride:][:l.at])
		}
		want[i] = w
	}
}

// extend returns the guard of the bytes of a guard and of p after them. The metadata is short: it is
// left to the CRCs of the standard library, which have no constants to prepare for its length.
func (l *nvmeField) extend(guard uint64, p []byte) uint64 {
	switch l.typ {
	case NVMe16:
		for _, b := range p {
			guard = guard<<8&0xFFFF ^ uint64(crc16Table[byte(guard>>8)^b])
		}
		return guard
	case NVMe32:
		return uint64(crc32.Update(uint32(guard), castagnoli, p))
	}
	return crc64.Update(guard, crc64NVMe, p)
}

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	crc64NVMe  = crc64.MakeTable(0x9A6C9329AC4BC9B5) // 0xAD93D23594C93659, least significant bit first
	crc16Table = func() (t [256]uint16) {
		for i := range t {
			r := uint16(i) << 8
			for range 8 {
				r = r<<1 ^ 0x8BB7*(r>>15)
			}
			t[i] = r
		}
		return t
	}()
)

// runNVMe is runBatch where at least one side has an NVMe type. The kernels compute and copy, and
// what depends on the fields is done here, block by block.
func (t *Transform) runNVMe(dst, src Blocks, want []uint64, first uint64, inPlace bool, o *outcome) {
	job := crc.Job{Src: src.Data, SrcStride: src.DataStride}
	if !inPlace {
		job.Dst, job.DstStride = dst.Data, dst.DataStride
	}
	switch {
	case t.in.Type == NoSignature:
	case t.nvmeIn.width != 0:
		t.check.Sum(want, &job)
		t.nvmeIn.guards(want, src.Fields, src.FieldStride)
		if o.wanted() {
			t.report(src, want, first, o)
		}
		job.Dst = nil
	default:
		job.Fields, job.FieldStride = src.Fields, src.FieldStride
		job.Tag, job.Step = t.inSide.tag(first), t.inSide.step
		if diff := t.check.Verify(want, &job); diff&t.checkWire != 0 && o.wanted() {
			t.report(src, want, first, o)
		}
		job = crc.Job{Src: src.Data, SrcStride: src.DataStride}
	}
	switch {
	case t.out.Type == NoSignature:
	case t.nvmeOut.width == 0:
		t.outJob(&job, dst, first)
		t.generate.Generate(want, &job)
	default:
		t.metadata(dst, src, len(want), inPlace)
		if !t.sameMetadata {
			t.generate.Sum(want, &job)
			t.nvmeOut.guards(want, dst.Fields, dst.FieldStride)
		}
		t.storeNVMe(dst, src, want, first)
	}
}

// metadata fills the metadata of the output beside the fields. It is copied between formats that
// have their fields at the same place; it stays if fields are generated in place; it is zero
// otherwise.
func (t *Transform) metadata(dst, src Blocks, n int, inPlace bool) {
	size := t.out.FieldSize()
	if size == t.nvmeOut.width || t.in.Type == NoSignature && inPlace {
		return
	}
	for i := range n {
		to := dst.Fields[i*dst.FieldStride:][:size]
		if t.sameMetadata {
			copy(to, src.Fields[i*src.FieldStride:])
		} else {
			clear(to)
		}
	}
}

// storeNVMe writes the fields of the output, whose guards are in want.
func (t *Transform) storeNVMe(dst, src Blocks, want []uint64, first uint64) {
	x := Field{AppTag: t.out.AppTag, StorageTag: t.out.StorageTag, RefTag: t.out.ref(first)}
	step, mask := uint64(t.out.step()), t.out.refMask()
	for i, guard := range want {
		x.Guard = guard
		y := x
		if t.copied != 0 {
			stored := t.nvmeIn.load(src.Fields[i*src.FieldStride:])
			if t.copied&MaskGuard != 0 {
				y.Guard = stored.Guard
			}
			if t.copied&MaskApp != 0 {
				y.AppTag = stored.AppTag
			}
			if t.copied&MaskRef != 0 {
				y.StorageTag, y.RefTag = stored.StorageTag, stored.RefTag
			}
		}
		t.nvmeOut.store(dst.Fields[i*dst.FieldStride:], &y)
		x.RefTag = (x.RefTag + step) & mask
	}
}
