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
// len(want) fields, and stores or compares them. It may change the run. It requires
// that blocks are a multiple of 8 bytes and at most tableWords*8 long, that there is at
// least one block, and that src and dst do not overlap.

// run holds the arguments of a kernel. The assembly uses the offsets of its fields.
type run struct {
	want                              unsafe.Pointer // position in the fields' values
	src, dst, fields                  unsafe.Pointer
	srcStride, dstStride, fieldStride uint64
	n, size                           uint64
	tables
	tag, step uint64
	action    action
	diff      uint64 // result of a comparison: OR of the differences
	count     uint64 // scratch of the kernel: blocks in the current group
}

// tables holds the arguments that depend only on algorithm, size and seed.
type tables struct {
	table  unsafe.Pointer // constants for the first 8 bytes of a block of this size
	consts unsafe.Pointer // constants of the reduction
	fix    uint64         // contribution of the seed and the final inversion to every field
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

func tablesFor(p *Plan, ones bool) tables {
	t := tables{fix: seedFix(p.kind, p.size, ones)}
	at, c := tableWords-p.size/8, &constantsOf[p.kind]
	switch p.method() {
	case bySums:
	case bySwaps:
		c := c.swaps()
		t.table, t.consts = unsafe.Pointer(&c.foldByDistance[at]), unsafe.Pointer(&c.consts)
	case byMaps:
		c := c.maps()
		t.table, t.consts = unsafe.Pointer(&c.planes[0][at]), unsafe.Pointer(&c.positions)
	default:
		c := c.products()
		t.table, t.consts = unsafe.Pointer(&c.foldByDistance[at]), unsafe.Pointer(&c.consts)
	}
	return t
}

func (p *Plan) method() method { return rows[p.kind].kernels[p.tier] }

// runTier executes a run with the kernels of the plan's tier.
func runTier(p *Plan, want []uint64, j *Job, m mode) uint64 {
	k, n := &rows[p.kind], len(want)
	r := run{
		want:        unsafe.Pointer(unsafe.SliceData(want)),
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
	if k.tagged {
		r.tag, r.step = j.Tag, uint64(j.Step)
	}
	race.Read(j.Src, j.SrcStride, p.size, n)
	if j.Dst != nil {
		race.Write(j.Dst, j.DstStride, p.size, n)
	}
	switch {
	case m == modeStore:
		r.action = actStore8
		if k.field == 4 {
			r.action = actStore4
		}
		race.Write(j.Fields, j.FieldStride, k.field, n)
	case m == modeCompare:
		r.action = actCompare8
		if k.field == 4 {
			r.action = actCompare4
		}
		race.Read(j.Fields, j.FieldStride, k.field, n)
	}
	kernel(p.tier, p.method(), j.Dst != nil, &r)
	return r.diff
}
