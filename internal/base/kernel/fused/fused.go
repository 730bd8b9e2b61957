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

// Pass says what one pass over the units of a run does. In its input, a unit is a block of
// 512 bytes, with its field if Check is set. In its output, a unit is a block, with its
// field if Generate is set.
//
// If Sealed is set, the fields on the encrypted side are encrypted with their blocks, so
// that a data unit of AES-XTS has 520 bytes. A sealed pass that encrypts generates, one
// that decrypts checks; each can do both. Otherwise data units have 512 bytes, and the
// pass either checks the input's fields or generates the output's.
type Pass struct {
	Decrypt, Sealed, Check, Generate bool

	In, Out Tags // of the fields that are checked, and of those that are generated

	// Mask selects the bits of a field that are checked. It is the bytes of a field
	// as in memory, read as a little-endian number.
	Mask uint64
}

// Tags describes the fields of a run.
type Tags struct {
	// Tag is the first block's field as a big-endian number with a guard of zero:
	// application tag << 32 | reference tag. Each further block adds Step to the
	// reference tag, modulo 2^32. If Ones is set, the guard starts from 0xFFFF.
	Tag  uint64
	Step uint32
	Ones bool
}

// From returns the tags of the blocks from number on, for t of block 0.
func (t Tags) From(number uint64) Tags {
	t.Tag = t.Tag&(0xFFFF<<32) | uint64(uint32(t.Tag)+t.Step*uint32(number))
	return t
}

// Valid reports whether there is a kernel for the pass.
func (p *Pass) Valid() bool {
	switch {
	case !p.Sealed:
		return p.Check != p.Generate
	case p.Decrypt:
		return p.Check
	}
	return p.Generate
}

// InSize returns the size of a unit in the input.
func (p *Pass) InSize() int { return sizeOf(p.Check) }

// OutSize returns the size of a unit in the output.
func (p *Pass) OutSize() int { return sizeOf(p.Generate) }

func sizeOf(field bool) int {
	if field {
		return UnitSize
	}
	return BlockSize
}

// Run is a run of up to MaxUnits units. On one side, in memory, each unit has its own
// address. On the other side they are contiguous.
type Run struct {
	N      int
	Lo, Hi uint64 // tweak number of the first unit; each further unit adds 1, modulo 2^128

	// Places holds the addresses of the units in memory. The first N are valid.
	Places [MaxUnits]*byte

	// Fields receives the decrypted fields of a sealed pass that checks and does not
	// generate, as in memory.
	Fields [MaxUnits][FieldSize]byte

	splits  [MaxSplits + 1]split
	nSplits int

	// args is here and not on the stack, because a call through a variable would move it to
	// the heap.
	args run
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

// Schedule is the expanded pair of keys, in the layout of package aesxts's AVX-512 tier, which has the type under an
// unexported name: aesxts.ScheduleOf returns its address.
type Schedule struct {
	Enc1, Dec1, Enc2 [15][16]byte   // round keys of key1, of key1 for the equivalent inverse cipher in order of use, and of key2
	Rounds           uint64         // 10 or 14
	Shifts           bool           // selects the kernels without carry-less multiplications for tweaks
	_                [39]byte       // pads to a whole cache line
	Wide             [2][7][64]byte // see package aesxts
}

// run holds the arguments and results of the assembly.
type run struct {
	src, dst side
	consts   *consts
	n        uint64
	lo, hi   uint64
	fields   *[FieldSize]byte
	diff     uint64 // result: OR of the differences of all checked fields
	splits   *split
	scatter  uint64 // 1: splits are scattered after writing; 0: gathered before reading
	_        [4]uint64
	in, out  tags
	mask     [4][2]uint64 // bits of a field to compare, as in memory, in the low halves
}

// tags is a Tags for the kernels. The numbers are in the low halves.
type tags struct {
	first [4][2]uint64 // tags of the first four blocks, with the guard's seed
	step  [4][2]uint64 // increment for four blocks
}

func (t *tags) set(from Tags) {
	seed := uint64(0)
	if from.Ones {
		seed = seedGuard << 48
	}
	for i := range t.first {
		ref := uint32(from.Tag) + uint32(i)*from.Step
		t.first[i][0] = seed | from.Tag&(0xFFFF<<32) | uint64(ref)
		t.step[i][0] = uint64(4 * from.Step)
	}
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

// contiguous returns the side of n contiguous units of size bytes.
func contiguous(b []byte, n, size int) side {
	if len(b) < n*size {
		panic("fused: the run does not fit its memory")
	}
	offsets := &unitOffsets
	if size == BlockSize {
		offsets = &blockOffsets
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

// From processes the units at Places and writes the results to line, contiguously. It
// returns the OR of all differences (XOR) between the fields and the expected ones, within
// the pass's mask: zero means that all fields are right. The memory that is written must
// not overlap other arguments.
func (r *Run) From(s *Schedule, p *Pass, line []byte) (diff uint64) {
	return r.process(s, p, r.places(), contiguous(line, r.N, p.OutSize()))
}

// To is From for contiguous units in line, with the results at Places.
func (r *Run) To(s *Schedule, p *Pass, line []byte) (diff uint64) {
	return r.process(s, p, contiguous(line, r.N, p.InSize()), r.places())
}

func (r *Run) process(s *Schedule, p *Pass, src, dst side) uint64 {
	switch {
	case !p.Valid():
		panic("fused: no kernel for this pass")
	case uint(r.N) > MaxUnits:
		panic("fused: more units than a run can have")
	case r.N == 0:
		return 0
	}
	a := &r.args
	*a = run{src: src, dst: dst, consts: table, n: uint64(r.N), lo: r.Lo, hi: r.Hi, fields: &r.Fields[0]}
	a.in.set(p.In)
	a.out.set(p.Out)
	for i := range a.mask {
		a.mask[i][0] = p.Mask
	}
	late := r.split(a, src, p.InSize(), p.OutSize())
	readSide(src, r.N, p.InSize())
	writeSide(dst, r.N, p.OutSize())
	execute(s, p, a)
	a.src, a.dst = side{}, side{} // the run keeps no references to memory
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
