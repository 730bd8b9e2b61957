package fused

import "unsafe"

// Sizes of the parts of a unit, in bytes.
const (
	BlockSize = 512
	FieldSize = 8
	UnitSize  = BlockSize + FieldSize
)

// MaxUnits is the largest number of units in a run, MaxSplits the largest number of split
// units among them.
const (
	MaxUnits  = 128
	MaxSplits = 32
)

// Run is a run of up to MaxUnits units. On one side, in memory, each block or unit has
// its own address. On the other side they are contiguous.
type Run struct {
	N      int
	Lo, Hi uint64 // tweak number of the first unit; each further unit adds 1, modulo 2^128

	// Places holds the addresses of the blocks (512 bytes) or units (520 bytes) in
	// memory. The first N are valid.
	Places [MaxUnits]*byte

	// Tag is the first block's field as a big-endian number with a guard of zero:
	// application tag << 32 | reference tag. Each further block adds Step to the
	// reference tag, modulo 2^32. If Ones is set, the guard starts from 0xFFFF.
	Tag  uint64
	Step uint32
	Ones bool

	// Fields receives the fields found after the blocks when decrypting, as in
	// memory.
	Fields [MaxUnits][FieldSize]byte

	splits  [MaxSplits + 1]split
	nSplits int
}

// Reset removes all units from the run and drops its references to memory.
func (r *Run) Reset() {
	clear(r.Places[:r.N])
	clear(r.splits[:r.nSplits])
	r.N, r.nSplits = 0, 0
}

// Split declares that a unit or block is in two pieces of memory, neither of them empty.
// Before the unit is read, its pieces are gathered in room; after it was written, they
// are scattered from there. The caller provides room for UnitSize bytes. Splits must be
// declared in rising order.
func (r *Run) Split(unit int, room *byte, first, second []byte) {
	r.Places[unit] = room
	s := &r.splits[r.nSplits]
	r.nSplits++
	s.unit, s.place = uint64(unit), room
	s.pieces[0], s.lengths[0] = &first[0], uint64(len(first))
	s.pieces[1], s.lengths[1] = &second[0], uint64(len(second))
}

// Schedule is the expanded pair of keys, in the layout of package aesxts's AVX-512 tier.
type Schedule struct {
	Enc1, Dec1, Enc2 [15][16]byte   // round keys of key1, of key1 for the equivalent inverse cipher in order of use, and of key2
	Rounds           uint64         // 10 or 14
	_                [40]byte       // pads to a whole cache line
	Wide             [2][6][64]byte // see package aesxts
}

// run holds the arguments and results of the assembly.
type run struct {
	src, dst side
	consts   *consts
	n        uint64
	lo, hi   uint64
	fields   *[FieldSize]byte
	diff     uint64 // result of decryption: OR of the differences of all fields
	splits   *split
	scatter  uint64 // 1: splits are scattered after writing; 0: gathered before reading
	_        [4]uint64
	tags     [4][2]uint64 // tags of the first four blocks, in the low halves, with the guard's seed
	step     [4][2]uint64 // increment for four blocks
	mask     [4][2]uint64 // decryption: the bits of a field to compare, as in memory
}

// split is a unit in two pieces. The kernel gathers or scatters it before it processes
// the unit at table offset at. noSplit ends the list.
type split struct {
	at      uint64
	unit    uint64
	place   *byte
	pieces  [2]*byte
	lengths [2]uint64
}

// A split is gathered splitAhead units before it is read, and scattered splitBehind units
// after it was written. The stores are then complete and the data is in the cache.
// splitBehind also allows for the last AES block of a unit, which is written late.
const (
	splitAhead  = 2
	splitBehind = 8

	noSplit = ^uint64(0)
)

// side gives the addresses of the blocks or units: base plus an offset from a table of
// MaxUnits offsets or, if base is nil, addresses from the table.
type side struct {
	base  *byte
	table unsafe.Pointer
}

func (r *Run) places() side { return side{nil, unsafe.Pointer(&r.Places)} }

// line returns the side of n contiguous pieces of size bytes.
func line(b []byte, n, size int, offsets *[MaxUnits + 2]uint64) side {
	if len(b) < n*size {
		panic("fused: the run does not fit its memory")
	}
	return side{unsafe.SliceData(b), unsafe.Pointer(offsets)}
}

// Offsets of contiguous blocks and units. A kernel reads two entries ahead.
var blockOffsets, unitOffsets [MaxUnits + 2]uint64

func init() {
	for i := range blockOffsets {
		blockOffsets[i] = uint64(i) * BlockSize
		unitOffsets[i] = uint64(i) * UnitSize
	}
}

// Encrypt generates the fields of the blocks at Places, encrypts blocks and fields, and
// writes the units to units, contiguously. The memory that it writes must not overlap
// other arguments; that applies to the methods below too.
func (r *Run) Encrypt(s *Schedule, units []byte) {
	r.encrypt(s, r.places(), line(units, r.N, UnitSize, &unitOffsets))
}

// EncryptTo is Encrypt for contiguous blocks, with the units at Places.
func (r *Run) EncryptTo(s *Schedule, blocks []byte) {
	r.encrypt(s, line(blocks, r.N, BlockSize, &blockOffsets), r.places())
}

// Decrypt decrypts the units at Places, writes the blocks to blocks, contiguously, and
// compares the fields with the expected ones. It returns the OR of all differences (XOR)
// within mask: zero means that all fields are right. mask and the result are the bytes of
// a field as in memory, read as a little-endian number. If the result is not zero, Fields
// shows the bad blocks.
func (r *Run) Decrypt(s *Schedule, blocks []byte, mask uint64) (diff uint64) {
	return r.decrypt(s, r.places(), line(blocks, r.N, BlockSize, &blockOffsets), mask)
}

// DecryptTo is Decrypt for contiguous units, with the blocks at Places.
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

// split prepares the splits, of in bytes when read and out bytes when written. It gathers
// those that the kernel would read too early, and returns those that the kernel would
// scatter too late.
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

// scatter scatters the splits that the kernel did not.
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

// ScheduleAt returns the schedule at p. Package aesxts has the same type under an
// unexported name.
func ScheduleAt(p unsafe.Pointer) *Schedule { return (*Schedule)(p) }
