package crc

import (
	"math/bits"

	"github.com/softmkey/softmkey/internal/base/cpu"
)

// A Plan is an algorithm prepared for blocks of one size. It is immutable: it may be
// copied, and several goroutines may use it.
type Plan struct {
	kind Kind
	tier cpu.Tier
	size int
	seed uint64 // register at the start of a block
	tables
}

// NewPlan prepares kind for blocks of size bytes, a positive multiple of 8; it panics for
// other sizes. The register starts with zeros or, if ones is set, with ones.
func NewPlan(kind Kind, size int, ones bool) Plan { return newPlan(cpu.Best(), kind, size, ones) }

// newPlan is NewPlan for a given tier, which must be in cpu.Available.
func newPlan(tier cpu.Tier, kind Kind, size int, ones bool) Plan {
	if size <= 0 || size%8 != 0 {
		panic("crc: block size must be a positive multiple of 8")
	}
	p := Plan{kind: kind, tier: tier, size: size}
	if ones {
		p.seed = rows[kind].ones()
	}
	if tier != cpu.Generic && size <= tableWords*8 {
		p.tables = tablesFor(&p, ones)
	}
	return p
}

// A Job describes one run of blocks. Block i is Src[i*SrcStride:][:size], its copy goes
// to Dst[i*DstStride:], and its field is Fields[i*FieldStride:].
type Job struct {
	Src       []byte
	SrcStride int

	// Dst receives a copy of the data; nil means no copy. Dst must not overlap Src.
	Dst       []byte
	DstStride int

	// Fields is used by Generate and Verify. For Generate the fields may lie between
	// the blocks of Dst, or of Src if there is no Dst. For Verify they may lie
	// between the blocks of Src.
	Fields      []byte
	FieldStride int

	// Tag is the field of the first block as a big-endian number with a guard of
	// zero: application tag << 32 | reference tag. Each further block adds Step to
	// the reference tag, modulo 2^32. Kinds without tags use neither.
	Tag  uint64
	Step uint32
}

// mode is the use of the computed fields.
type mode uint8

const (
	modeSum mode = iota
	modeStore
	modeCompare
)

// Sum computes the fields of len(want) blocks and, if j.Dst is not nil, copies their
// data. want[i] receives the bytes of field i as in memory, read as a little-endian
// number; a field of 4 bytes leaves the upper half zero.
func (p *Plan) Sum(want []uint64, j *Job) { p.run(want, j, modeSum) }

// Generate is Sum, and writes the fields to memory.
func (p *Plan) Generate(want []uint64, j *Job) { p.run(want, j, modeStore) }

// Verify is Sum, and compares the fields in memory with the computed ones. It returns the
// OR of their differences (XOR): zero means that every field is right. The caller masks
// off bits that do not matter before it searches want for the bad block.
func (p *Plan) Verify(want []uint64, j *Job) uint64 { return p.run(want, j, modeCompare) }

func (p *Plan) run(want []uint64, j *Job, m mode) uint64 {
	n := len(want)
	if n == 0 {
		return 0
	}
	// The code below, including the assembly, relies on these checks.
	checkRun(j.Src, j.SrcStride, p.size, n)
	if j.Dst != nil {
		checkRun(j.Dst, j.DstStride, p.size, n)
	}
	if m != modeSum {
		checkRun(j.Fields, j.FieldStride, p.kind.FieldSize(), n)
	}
	switch {
	case p.tier == cpu.Generic:
		return runGeneric(p, want, j, m)
	case p.size > tableWords*8:
		return runLong(p, want, j, m)
	}
	return runTier(p, want, j, m)
}

// checkRun panics unless n pieces of size bytes, stride bytes apart, lie inside b. It
// uses a 128-bit product, so that no count or stride overflows.
func checkRun(b []byte, stride, size, n int) {
	hi, lo := bits.Mul64(uint64(stride), uint64(n-1))
	if len(b) < size || n > 1 && stride < size || hi != 0 || lo > uint64(len(b)-size) {
		panic("crc: run does not fit its memory")
	}
}

// nextTag adds step to the reference tag, modulo 2^32.
func nextTag(tag uint64, step uint32) uint64 {
	return tag&^0xFFFFFFFF | uint64(uint32(tag)+step)
}
