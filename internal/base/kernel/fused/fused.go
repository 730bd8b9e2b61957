package fused

import "unsafe"

// Sizes of a unit.
const (
	BlockSize = 512
	FieldSize = 8
	UnitSize  = BlockSize + FieldSize
)

// MaxUnits is the most units in a run, MaxSplits the most of them that can be split.
const (
	MaxUnits  = 128
	MaxSplits = 32
)

// Run is up to MaxUnits units. On one side, in memory, each block or unit has its own
// address; on the other they are back to back.
type Run struct {
	N      int
	Lo, Hi uint64 // number of the first unit's tweak; each further one adds 1, modulo 2^128

	// Places are where the blocks, of 512 bytes each, or the units, of 520, are in memory.
	// The first N count.
	Places [MaxUnits]*byte

	// Tag is the first block's field as a big-endian number with a guard of zero:
	// application tag << 32 | reference tag. Each further block adds Step to the reference
	// tag, modulo 2^32. With Ones the guard starts from 0xFFFF.
	Tag  uint64
	Step uint32
	Ones bool

	// Fields are what was found behind the blocks when decrypting, as they stand in
	// memory.
	Fields [MaxUnits][FieldSize]byte

	splits  [MaxSplits + 1]split
	nSplits int
}

// Reset makes the run one without units, and lets go of all memory.
func (r *Run) Reset() {
	clear(r.Places[:r.N])
	clear(r.splits[:r.nSplits])
	r.N, r.nSplits = 0, 0
}

// Split says that the unit, or block, of that number is in two pieces of memory, neither of
// which is empty. Room is the caller's, for UnitSize bytes: the unit's place in the run, in
// which it is put together or out of which it is taken apart. Splits come in rising order.
func (r *Run) Split(unit int, room *byte, first, second []byte) {
	r.Places[unit] = room
	s := &r.splits[r.nSplits]
	r.nSplits++
	s.unit, s.place = uint64(unit), room
	s.pieces[0], s.lengths[0] = &first[0], uint64(len(first))
	s.pieces[1], s.lengths[1] = &second[0], uint64(len(second))
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
	src, dst side
	consts   *consts
	n        uint64
	lo, hi   uint64
	fields   *[FieldSize]byte
	diff     uint64 // decrypting, out: the differences of all fields, or-ed together
	splits   *split
	scatter  uint64 // 1: splits are written
	_        [4]uint64
	tags     [4][2]uint64 // of the first four blocks, in the low halves; the guard's seed is in it
	step     [4][2]uint64 // what four blocks add
	mask     [4][2]uint64 // decrypting: the bits of a field that count, as they stand in memory
}

// split is a unit in two pieces. It has its turn before the unit whose place in the tables
// is at; there is none like that for the end of the list.
type split struct {
	at      uint64
	unit    uint64
	place   *byte
	pieces  [2]*byte
	lengths [2]uint64
}

// A split is put together so many units before it is read, or taken apart so many after it
// was written: when what was stored is in the cache, and, the latter, when its last block is
// written as well.
const (
	splitAhead  = 2
	splitBehind = 8

	noSplit = ^uint64(0)
)

// side is where the blocks or the units are: at base plus the offset in a table of MaxUnits
// offsets or, without a base, addresses.
type side struct {
	base  *byte
	table unsafe.Pointer
}

func (r *Run) places() side { return side{nil, unsafe.Pointer(&r.Places)} }

// line is n pieces of size bytes back to back.
func line(b []byte, n, size int, offsets *[MaxUnits + 2]uint64) side {
	if len(b) < n*size {
		panic("fused: the run does not fit its memory")
	}
	return side{unsafe.SliceData(b), unsafe.Pointer(offsets)}
}

// The offsets of what is back to back. A kernel looks two units ahead.
var blockOffsets, unitOffsets [MaxUnits + 2]uint64

func init() {
	for i := range blockOffsets {
		blockOffsets[i] = uint64(i) * BlockSize
		unitOffsets[i] = uint64(i) * UnitSize
	}
}

// Encrypt makes units, back to back, of the blocks at Places: it generates the fields and
// encrypts both. None of what is written overlaps anything else; so it is with the
// methods below.
func (r *Run) Encrypt(s *Schedule, units []byte) {
	r.encrypt(s, r.places(), line(units, r.N, UnitSize, &unitOffsets))
}

// EncryptTo is Encrypt for blocks that are back to back and units at Places.
func (r *Run) EncryptTo(s *Schedule, blocks []byte) {
	r.encrypt(s, line(blocks, r.N, BlockSize, &blockOffsets), r.places())
}

// Decrypt makes blocks, back to back, of the units at Places: it decrypts them and compares
// the fields with what they should be. It returns the bits, out of mask, in which any of
// them differs, all differences or-ed together; mask and result are a field's bytes as
// they stand in memory, read as a little-endian number. Zero means that everything is
// right. Otherwise Fields says where it is not.
func (r *Run) Decrypt(s *Schedule, blocks []byte, mask uint64) (diff uint64) {
	return r.decrypt(s, r.places(), line(blocks, r.N, BlockSize, &blockOffsets), mask)
}

// DecryptTo is Decrypt for units that are back to back and blocks at Places.
func (r *Run) DecryptTo(s *Schedule, units []byte, mask uint64) (diff uint64) {
	return r.decrypt(s, line(units, r.N, UnitSize, &unitOffsets), r.places(), mask)
}

func (r *Run) encrypt(s *Schedule, src, dst side) {
	if r.N == 0 {
		return
	}
	var a run
	r.prepare(&a, src, dst)
	late := r.split(&a, src, BlockSize, UnitSize)
	readSide(src, r.N, BlockSize)
	writeSide(dst, r.N, UnitSize)
	encrypt(s, &a)
	scatter(late)
}

func (r *Run) decrypt(s *Schedule, src, dst side, mask uint64) uint64 {
	if r.N == 0 {
		return 0
	}
	var a run
	r.prepare(&a, src, dst)
	late := r.split(&a, src, UnitSize, BlockSize)
	a.fields = &r.Fields[0]
	for i := range a.mask {
		a.mask[i][0] = mask
	}
	readSide(src, r.N, UnitSize)
	writeSide(dst, r.N, BlockSize)
	decrypt(s, &a)
	scatter(late)
	return a.diff
}

// split prepares the splits, of in bytes where they are read and out bytes where they are
// written. What is to be read too early for the kernel is put together here; what it would
// write too late is returned.
func (r *Run) split(a *run, src side, in, out int) (late []split) {
	all, size, write := r.splits[:r.nSplits], in, src.base != nil
	if write {
		a.scatter, size = 1, out
	}
	a.splits = &r.splits[0]
	r.splits[len(all)].at = noSplit
	for i := range all {
		s := &all[i]
		if s.unit >= uint64(r.N) || i > 0 && s.unit <= all[i-1].unit || s.lengths[0]+s.lengths[1] != uint64(size) {
			panic("fused: a split that is none")
		}
		switch {
		case write && s.unit+splitBehind >= uint64(r.N):
			if late == nil {
				late = all[i:]
			}
			s.at = noSplit
		case write:
			s.at = 8 * (s.unit + splitBehind)
		case s.unit < splitAhead:
			a.splits = &r.splits[i+1]
			whole, pieces := s.memory()
			copy(whole[copy(whole, pieces[0]):], pieces[1])
		default:
			s.at = 8 * (s.unit - splitAhead)
		}
	}
	accessSplits(all, write)
	return late
}

// scatter takes apart what the kernel has not.
func scatter(late []split) {
	for i := range late {
		whole, pieces := late[i].memory()
		copy(pieces[1], whole[copy(pieces[0], whole):])
	}
}

func (s *split) memory() (whole []byte, pieces [2][]byte) {
	for i := range pieces {
		pieces[i] = unsafe.Slice(s.pieces[i], s.lengths[i])
	}
	return unsafe.Slice(s.place, s.lengths[0]+s.lengths[1]), pieces
}

func (r *Run) prepare(a *run, src, dst side) {
	if uint(r.N) > MaxUnits {
		panic("fused: more units than a run can have")
	}
	a.src, a.dst, a.consts, a.n = src, dst, table, uint64(r.N)
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
