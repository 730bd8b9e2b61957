package fused

import "unsafe"

// Sizes of a unit.
const (
	BlockSize = 512
	FieldSize = 8
	UnitSize  = BlockSize + FieldSize
)

// MaxUnits is the most units in a run.
const MaxUnits = 64

// Run is up to MaxUnits units. Neither blocks nor units need to lie next to each other:
// each has its own address.
type Run struct {
	N      int
	Lo, Hi uint64 // number of the first unit's tweak; each further one adds 1, modulo 2^128

	// Blocks are 512 bytes each, Units 520, the first N of which count. None of what is
	// written overlaps anything else. (Assembly finds the one behind the other.)
	Blocks, Units [MaxUnits]*byte

	// Tag is the first block's field as a big-endian number with a guard of zero:
	// application tag << 32 | reference tag. Each further block adds Step to the reference
	// tag, modulo 2^32. With Ones the guard starts from 0xFFFF.
	Tag  uint64
	Step uint32
	Ones bool

	// Fields are what Decrypt has found behind the blocks, as they stand in memory.
	Fields [MaxUnits][FieldSize]byte
}

// Schedule is the expanded keys in the layout of package aesxts's AVX-512 tier.
type Schedule struct {
	Enc1, Dec1, Enc2 [15][16]byte   // round keys: of key1, of key1 for the equivalent inverse cipher in the order of their use, of key2
	Rounds           uint64         // 10 or 14
	_                [40]byte       // to a whole cache line
	Wide             [2][6][64]byte // see package aesxts
}

// run is what assembly reads and, where it says so, writes.
type run struct {
	src    *[MaxUnits]*byte // Blocks or Units, of which the other is the destinations
	consts *consts
	n      uint64
	lo, hi uint64
	fields *[FieldSize]byte
	diff   uint64 // decrypting, out: the differences of all fields, or-ed together
	_      uint64
	tags   [4][2]uint64 // of the first four blocks, in the low halves; the guard's seed is in it
	step   [4][2]uint64 // what four blocks add
	mask   [4][2]uint64 // decrypting: the bits of a field that count, as they stand in memory
}

// Encrypt makes units of blocks: it generates the fields and encrypts both.
func (r *Run) Encrypt(s *Schedule) {
	if r.N == 0 {
		return
	}
	var a run
	r.prepare(&a, &r.Blocks)
	readRun(&r.Blocks, r.N, BlockSize)
	writeRun(&r.Units, r.N, UnitSize)
	encrypt(s, &a)
}

// Decrypt makes blocks of units: it decrypts them and compares the fields with what they
// should be. It returns the bits, out of mask, in which any of them differs, all
// differences or-ed together; mask and result are a field's bytes as they stand in memory,
// read as a little-endian number. Zero means that everything is right. Otherwise Fields
// says where it is not.
func (r *Run) Decrypt(s *Schedule, mask uint64) (diff uint64) {
	if r.N == 0 {
		return 0
	}
	var a run
	r.prepare(&a, &r.Units)
	a.fields = &r.Fields[0]
	for i := range a.mask {
		a.mask[i][0] = mask
	}
	readRun(&r.Units, r.N, UnitSize)
	writeRun(&r.Blocks, r.N, BlockSize)
	decrypt(s, &a)
	return a.diff
}

func (r *Run) prepare(a *run, src *[MaxUnits]*byte) {
	if uint(r.N) > MaxUnits {
		panic("fused: more units than a run can have")
	}
	a.src, a.consts, a.n = src, table, uint64(r.N)
	a.lo, a.hi = r.Lo, r.Hi
	seed := uint64(0)
	if r.Ones {
		seed = seedGuard << 48
	}
	for i := range a.tags {
		ref := uint32(r.Tag) + uint32(i)*r.Step
		a.tags[i][0] = seed | r.Tag&(0xFFFF<<32) | uint64(ref)
		a.step[i][0] = uint64(4 * r.Step)
	}
}

// ScheduleAt returns the schedule that p, which is not nil, points to: package aesxts has
// the same type under another name, and keeps it to itself.
func ScheduleAt(p unsafe.Pointer) *Schedule { return (*Schedule)(p) }
