//go:build (amd64 || arm64) && !purego

package crc

import (
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/kernel/race"
)

//go:generate sh -c "cd ../_asm/crc && go run . -tier avx512 -pkg crc -out ../../crc/avx512_amd64.s"
//go:generate sh -c "cd ../_asm/crc && go run . -tier vaes -pkg crc -out ../../crc/vaes_amd64.s"
//go:generate sh -c "cd ../_asm/crc && go run . -tier avx2 -pkg crc -out ../../crc/avx2_amd64.s"
//go:generate sh -c "cd ../_asm/crc && go run . -tier neon -out ../../crc/neon_arm64.s"

// A kernel is an assembly function for one algorithm on one tier. Each has a variant that
// also copies the data. It takes a run whose memory the caller has checked, computes
// len(want) fields, and stores or compares them. It may change the run. It may read, but
// not use, the bytes around the blocks in their first and last cache lines. It requires
// that blocks are a multiple of 8 bytes and at most tableWords*8 long, that there is at
// least one block, and that src and dst do not overlap.

// run holds the arguments of a kernel. The assembly uses the offsets of its fields.
type run struct {
	want                              unsafe.Pointer
	src, dst, fields                  unsafe.Pointer
	srcStride, dstStride, fieldStride uint64
	n, size                           uint64
	tables
	tag, step uint64
	action    action
	diff      uint64 // result of a comparison: OR of the differences

	// Scratch of the kernel.
	values        unsafe.Pointer // position in want: fields that are not yet stored or compared
	count, groups uint64         // blocks in the current group, and completed groups
}

// tables holds the arguments that depend only on algorithm, size and seed.
type tables struct {
	table  unsafe.Pointer // constants for the first 8 bytes of a block of this size
	consts unsafe.Pointer // constants of the reduction
	fix    uint64         // contribution of the seed and the final inversion to every field
	lines  unsafe.Pointer // constants of the kernel that reads whole cache lines; nil: none for this size
}

// action is the kernel's use of the fields.
type action uint64

const (
	actNone action = iota
	actStore8
	actStore4
	actCompare8
	actCompare4
)

// method is the way in which a tier computes a kind.
type method uint8

const (
	byProducts method = iota // crcTable: reflected; data with the most significant bit first is bit-reversed
	bySwaps                  // swapTable: most significant bit first, with bytes swapped
	byMaps                   // t10Table: T10-DIF by affine maps
	bySums                   // no table: the IP checksum
)

func tablesFor(p *Plan, ones bool) (t, maps tables) {
	t = tables{fix: seedFix(p.kind, p.size, ones)}
	at := tableWords - p.size/8
	switch methodFor(p.tier, p.kind) {
	case byProducts:
		c := crcTables[p.kind]()
		t.table, t.consts = unsafe.Pointer(&c.foldByDistance[at]), unsafe.Pointer(&c.consts)
	case bySwaps:
		c := swapTables[p.kind]()
		t.table, t.consts = unsafe.Pointer(&c.foldByDistance[at]), unsafe.Pointer(&c.consts)
	case byMaps:
		c := t10Maps()
		t.table, t.consts = unsafe.Pointer(&c.planes[0][at]), unsafe.Pointer(&c.consts)
	}
	t.lines = linesFor(p.tier, p.kind, p.size)
	if p.byMaps(false) {
		c := mapsTables[p.kind]()
		maps = tables{table: unsafe.Pointer(&c.planes[0][at]), consts: unsafe.Pointer(&c.positions), fix: t.fix}
	}
	return t, maps
}

// runTier executes a run with the kernels of the plan's tier.
func runTier(p *Plan, want []uint64, j *Job, m mode) uint64 {
	n := len(want)
	r := run{
		want:        unsafe.Pointer(unsafe.SliceData(want)),
		values:      unsafe.Pointer(unsafe.SliceData(want)),
		src:         unsafe.Pointer(unsafe.SliceData(j.Src)),
		dst:         unsafe.Pointer(unsafe.SliceData(j.Dst)),
		fields:      unsafe.Pointer(unsafe.SliceData(j.Fields)),
		srcStride:   uint64(j.SrcStride),
		dstStride:   uint64(j.DstStride),
		fieldStride: uint64(j.FieldStride),
		n:           uint64(n),
		size:        uint64(p.size),
		tables:      p.tables,
	}
	if p.kind == T10 || p.kind == CSUM {
		r.tag, r.step = j.Tag, uint64(j.Step)
	}
	if p.byMaps(j.Dst != nil) {
		r.tables = p.mapsTables
	}
	race.Read(j.Src, j.SrcStride, p.size, n)
	if j.Dst != nil {
		race.Write(j.Dst, j.DstStride, p.size, n)
	}
	switch {
	case m == modeStore:
		r.action = actStore8
		if p.field == 4 {
			r.action = actStore4
		}
		race.Write(j.Fields, j.FieldStride, p.field, n)
	case m == modeCompare:
		r.action = actCompare8
		if p.field == 4 {
			r.action = actCompare4
		}
		race.Read(j.Fields, j.FieldStride, p.field, n)
	}
	kernel(p, j.Dst != nil, &r)
	return r.diff
}

// byMaps reports whether a run computes a CRC of 32 bits by affine maps.
func (p *Plan) byMaps(copies bool) bool { return p.zen5 && p.kind.FieldSize() == 4 && !copies }
