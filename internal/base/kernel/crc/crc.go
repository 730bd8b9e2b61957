package crc

import (
	"math/bits"

	"github.com/softmkey/softmkey/internal/base/cpu"
)

// Kind is an algorithm and the byte order of its field.
type Kind uint8

const (
	T10    Kind = iota // CRC-16/T10-DIF guard, with application and reference tag, big-endian
	CSUM               // IP checksum guard, with application and reference tag, big-endian
	CRC32              // polynomial 0x04C11DB7, most significant bit first, big-endian
	CRC32C             // Castagnoli, reflected, little-endian
	CRC64              // XP10 and NVMe, reflected, little-endian
)

// FieldSize returns the size of the algorithm's field in bytes, 4 or 8.
func (k Kind) FieldSize() int {
	if k == CRC32 || k == CRC32C {
		return 4
	}
	return 8
}

// A Plan is an algorithm prepared for blocks of one size. It is immutable: it may be
// copied, and several goroutines may use it.
type Plan struct {
	kind  Kind
	tier  cpu.Tier
	size  int
	seed  uint64 // register at the start of a block, aligned as in the generic code
	field int    // length of a field in bytes
	zen5  bool   // uses the second set of AVX-512 kernels: see zen5Set
	tables
	mapsTables tables // of CRCs of 32 bits by affine maps, if zen5 is set
}

// NewPlan prepares kind for blocks of size bytes, a positive multiple of 8; it panics for
// other sizes. The register starts with zeros or, if ones is set, with ones.
func NewPlan(kind Kind, size int, ones bool) Plan {
	tier := cpu.Best()
	_, prefer := zen5Set(tier)
	return newPlan(tier, kind, size, ones, prefer)
}

// newPlan is NewPlan for a given tier, which must be in cpu.Available, with a choice between the sets of kernels of
// a tier that has two.
func newPlan(tier cpu.Tier, kind Kind, size int, ones, zen5 bool) Plan {
	if size <= 0 || size%8 != 0 {
		panic("crc: block size must be a positive multiple of 8")
	}
	p := Plan{kind: kind, tier: tier, size: size, field: kind.FieldSize(), zen5: zen5}
	if ones {
		p.seed = kindSeeds[kind]
	}
	if tier != cpu.Generic && size <= tableWords*8 {
		p.tables, p.mapsTables = tablesFor(&p, ones)
	}
	return p
}

// kindSeeds holds a register of ones for each kind, aligned as in the generic code: at
// the top of 64 bits if the most significant bit comes first, else at the bottom.
var kindSeeds = [...]uint64{
	T10:    0xFFFF << 48,
	CSUM:   0xFFFF,
	CRC32:  0xFFFFFFFF << 32,
	CRC32C: 0xFFFFFFFF,
	CRC64:  0xFFFFFFFFFFFFFFFF,
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
	// the reference tag, modulo 2^32. Only T10 and CSUM use both.
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
		checkRun(j.Fields, j.FieldStride, p.field, n)
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

// wire converts the register at the end of a block, aligned as in the generic code, to
// the bytes of the field.
func (p *Plan) wire(reg, tag uint64) uint64 {
	switch p.kind {
	case T10:
		return bits.ReverseBytes64(reg | tag)
	case CSUM:
		return bits.ReverseBytes64(reg<<48 | tag)
	case CRC32:
		return uint64(bits.ReverseBytes32(^uint32(reg >> 32)))
	case CRC32C:
		return uint64(^uint32(reg))
	default:
		return ^reg
	}
}

// nextTag adds step to the reference tag, modulo 2^32.
func nextTag(tag uint64, step uint32) uint64 {
	return tag&^0xFFFFFFFF | uint64(uint32(tag)+step)
}
