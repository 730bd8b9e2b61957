package sig

import (
	"encoding/binary"
	"math/bits"
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/kernel/crc"
)

// batch is the number of blocks of one kernel call. 128 blocks of 512 bytes are enough for
// the overhead of the call not to matter. The computed fields of a batch are in an array on
// the stack, which Go zeroes on each call, so short runs use smallBatch to zero less.
const (
	batch      = 128
	smallBatch = 16
)

// Run moves n complete blocks from src to dst. The first one is block number first of the
// stream: reference tags and reported offsets count from there.
//
// Run returns the first bad block as an [*Error]. If each is not nil, Run calls it instead, for
// every bad block in rising order until it returns false, and returns nil. A bad block is moved
// like any other. The reported offset is the block number times the stride of the input's format; the strides in
// memory do not matter.
//
// If dst.Data and src.Data begin at the same address, Run works in place: the strides
// must be equal, and no data is copied. Otherwise the two must not overlap. The fields of
// dst may be those of src, at the same place and of the same size.
//
// Run panics if n is negative, if the blocks do not fit the slices, and if t is the zero
// value. It allocates its error only.
func (t *Transform) Run(dst, src Blocks, n int, first uint64, each func(Error) bool) error {
	o := outcome{keep: each == nil, each: each}
	t.run(dst, src, n, first, &o)
	return o.err()
}

// outcome receives bad blocks: it passes them to a function, or keeps the first one.
type outcome struct {
	each  func(Error) bool // nil: no function, or it wants no more bad blocks
	keep  bool             // keep the next bad block, the first one
	first Error
}

func (o *outcome) wanted() bool { return o.each != nil || o.keep }

func (o *outcome) add(e Error) {
	if o.keep {
		o.first, o.keep = e, false
	}
	if o.each != nil && !o.each(e) {
		o.each = nil
	}
}

// err returns the bad block that was kept, or nil.
func (o *outcome) err() error {
	if o.first.Kind == 0 {
		return nil
	}
	return new(o.first)
}

func (t *Transform) run(dst, src Blocks, n int, first uint64, o *outcome) {
	if t.size == 0 {
		panic("sig: use of a Transform that NewTransform did not return")
	}
	if n < 0 {
		panic("sig: negative number of blocks")
	}
	if n == 0 {
		return
	}
	if !src.holds(n, t.size, t.inSide.field) || !dst.holds(n, t.size, t.outSide.field) {
		panic("sig: blocks do not fit their memory")
	}
	inPlace := unsafe.SliceData(dst.Data) == unsafe.SliceData(src.Data)
	if inPlace && n > 1 && dst.DataStride != src.DataStride {
		panic("sig: blocks in place with different strides")
	}
	switch {
	case n == 1:
		var want [1]uint64
		t.runBatch(dst, src, want[:], first, inPlace, o)
	case n <= smallBatch:
		t.runFew(dst, src, n, first, inPlace, o)
	default:
		t.runBatches(dst, src, n, first, inPlace, o)
	}
}

// runFew is not a part of run because of its array.
//
//go:noinline
func (t *Transform) runFew(dst, src Blocks, n int, first uint64, inPlace bool, o *outcome) {
	var want [smallBatch]uint64
	t.runBatch(dst, src, want[:n], first, inPlace, o)
}

// runBatches is not a part of run because of its large array.
//
//go:noinline
func (t *Transform) runBatches(dst, src Blocks, n int, first uint64, inPlace bool, o *outcome) {
	var want [batch]uint64
	for {
		m := min(n, batch)
		t.runBatch(dst, src, want[:m], first, inPlace, o)
		if n -= m; n == 0 {
			return
		}
		first += uint64(m)
		src, dst = src.from(m), dst.from(m)
	}
}

// runBatch moves len(want) blocks.
func (t *Transform) runBatch(dst, src Blocks, want []uint64, first uint64, inPlace bool, o *outcome) {
	if t.keepEscapes {
		exempt := t.exempt(src, len(want)) // before fields in place are replaced
		t.runFields(dst, src, want, first, inPlace, o)
		t.restoreEscapes(dst, want, first, exempt)
		return
	}
	t.runFields(dst, src, want, first, inPlace, o)
}

// runFields is runBatch without KeepEscapes. Afterwards want has the guards of the output, if
// it has tags.
func (t *Transform) runFields(dst, src Blocks, want []uint64, first uint64, inPlace bool, o *outcome) {
	if t.nvmeIn.width != 0 || t.nvmeOut.width != 0 {
		t.runNVMe(dst, src, want, first, inPlace, o)
		return
	}
	job := crc.Job{Src: src.Data, SrcStride: src.DataStride}
	if !inPlace {
		job.Dst, job.DstStride = dst.Data, dst.DataStride
	}
	if t.in.Type == NoSignature {
		t.outJob(&job, dst, first)
		t.generate.Generate(want, &job)
		return
	}

	job.Fields, job.FieldStride = src.Fields, src.FieldStride
	job.Tag, job.Step = t.inSide.tag(first), t.inSide.step
	if t.again {
		job.Dst = nil // the second pass copies
	}
	if diff := t.check.Verify(want, &job); diff&t.checkWire != 0 && o.wanted() {
		t.report(src, want, first, o)
	}
	if t.out.Type == NoSignature {
		return
	}

	if t.again {
		if !inPlace {
			job.Dst = dst.Data
		}
		t.outJob(&job, dst, first)
		if t.copyWire == 0 {
			t.generate.Generate(want, &job)
			return
		}
		t.generate.Sum(want, &job)
	}
	t.merge(dst, src, want, first)
}

// outJob sets the parts of a job that generate the output's fields.
func (t *Transform) outJob(job *crc.Job, dst Blocks, first uint64) {
	job.Fields, job.FieldStride = dst.Fields, dst.FieldStride
	job.Tag, job.Step = t.outSide.tag(first), t.outSide.step
}

// merge writes the output's fields if some of their bytes are copied, or if want was
// computed for the input. Both sides have fields of one size.
func (t *Transform) merge(dst, src Blocks, want []uint64, first uint64) {
	size := t.outSide.field
	from, to := src.Fields, dst.Fields
	tag, step := t.outSide.tag(first), t.outSide.step
	for i, w := range want {
		w = w&t.guardWire | tagWire(tag)&^t.guardWire
		tag = tag&^0xFFFFFFFF | uint64(uint32(tag)+step)
		stored := loadField(from[i*src.FieldStride:], size)
		storeField(to[i*dst.FieldStride:], size, stored&t.copyWire|w&^t.copyWire)
	}
}

// report adds the bad blocks of a batch to o. want holds the guards of an NVMe type, and the computed fields of
// others.
func (t *Transform) report(src Blocks, want []uint64, first uint64, o *outcome) {
	f, compared := &t.in, &t.compared
	x := Field{AppTag: f.AppTag, StorageTag: f.StorageTag, RefTag: f.ref(first)}
	step, mask := uint64(t.inSide.step), f.refMask()
	for i, w := range want {
		var stored Field
		if b := src.Fields[i*src.FieldStride:]; t.nvmeIn.width != 0 {
			stored, x.Guard = t.nvmeIn.load(b), w
		} else {
			stored, x.Guard = f.parts(loadField(b, t.inSide.field)), f.parts(w).Guard
		}
		e := Error{}
		switch {
		case (stored.Guard^x.Guard)&compared.Guard != 0:
			e = Error{Kind: BadGuard, Stored: stored.Guard, Computed: x.Guard}
		case (stored.AppTag^x.AppTag)&compared.AppTag != 0:
			e = Error{Kind: BadAppTag, Stored: uint64(stored.AppTag), Computed: uint64(x.AppTag)}
		case (stored.StorageTag^x.StorageTag)&compared.StorageTag != 0:
			e = Error{Kind: BadStorageTag, Stored: stored.StorageTag, Computed: x.StorageTag}
		case (stored.RefTag^x.RefTag)&compared.RefTag != 0:
			e = Error{Kind: BadRefTag, Stored: stored.RefTag, Computed: x.RefTag}
		}
		x.RefTag = (x.RefTag + step) & mask
		if e.Kind == 0 || f.Escapes(stored) {
			continue
		}
		e.Block = first + uint64(i)
		e.Offset = e.Block * uint64(f.Stride())
		o.add(e)
		if !o.wanted() {
			return
		}
	}
}

// parts returns the parts of a field of a type other than NVMe's, from the little-endian number that the kernels
// use.
func (f *Format) parts(wire uint64) Field {
	switch f.Type {
	case T10DIF:
		v := tagWire(wire)
		return Field{Guard: v >> 48, AppTag: uint16(v >> 32), RefTag: v & 0xFFFFFFFF}
	case CRC32:
		return Field{Guard: uint64(bits.ReverseBytes32(uint32(wire)))}
	}
	return Field{Guard: wire}
}

// tagWire converts a T10-DIF field between a big-endian number and the little-endian
// number that the kernels use.
func tagWire(field uint64) uint64 { return bits.ReverseBytes64(field) }

func loadField(b []byte, size int) uint64 {
	if size == 8 {
		return binary.LittleEndian.Uint64(b)
	}
	return uint64(binary.LittleEndian.Uint32(b))
}

func storeField(b []byte, size int, v uint64) {
	if size == 8 {
		binary.LittleEndian.PutUint64(b, v)
	} else {
		binary.LittleEndian.PutUint32(b, uint32(v))
	}
}
