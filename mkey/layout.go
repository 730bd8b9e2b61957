package mkey

import (
	"math/bits"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/keydoor"
)

// Layout lists the memory that makes up a key's memory domain: a [List] or an
// [Interleaved] pattern (mlx5dv_wr_mkey_configure(3), "Data layout setters").
type Layout interface {
	// entries returns the number of entries that the layout takes in a key and in the
	// work request that configures it.
	entries() int
	compile() (*layout, error)
}

// Segment is an entry of a [List]: Length bytes of Memory from Addr.
type Segment struct {
	Memory Memory
	Addr   uint64
	Length uint64
}

// List is a layout of segments one after another.
type List []Segment

// Entry is an entry of an [Interleaved] layout: each repetition takes the next Count
// bytes and leaves out the Skip bytes after them (struct mlx5dv_mr_interleaved).
type Entry struct {
	Memory Memory
	Addr   uint64
	Count  uint32
	Skip   uint32
}

// Interleaved is a layout that takes Count bytes from each entry, in the order
// of the entries, and does so Repeat times. It joins blocks and fields of
// separate buffers, for example.
type Interleaved struct {
	Repeat  uint32
	Entries []Entry
}

// layout is the compiled form of a List or an Interleaved: a pattern of pieces
// that is repeated. A list is a pattern with one repetition.
type layout struct {
	pieces []piece
	period uint64 // bytes of one repetition
	repeat uint64
	total  uint64 // period * repeat
}

// piece is an entry of a layout. Empty entries have none.
type piece struct {
	target
	ref    reference // the target is looked up at each use; nil: the target is fixed
	bytes  Bytes     // the target, if it is a slice that contains the whole piece, so that no access can be refused; else nil
	addr   uint64
	length uint64
	step   uint64 // distance from an address to that of the next repetition
	start  uint64 // position within the repetition
}

// target is the memory of a piece.
type target struct {
	mem    Memory
	key    *Key           // mem, if it is a key
	copied keydoor.Copied // mem, if it can only be copied
}

func targetOf(m Memory) target {
	switch m := m.(type) {
	case *Key:
		return target{mem: m, key: m}
	case keydoor.Copied:
		return target{mem: m, copied: m}
	}
	return target{mem: m}
}

// add appends a piece to the pattern.
func (l *layout) add(m Memory, p piece) {
	p.target = targetOf(m)
	switch m := m.(type) {
	case reference:
		p.ref = m
	case Bytes:
		if l.repeat > 0 && m.Reach(p.addr, (l.repeat-1)*p.step+p.length, 0) == nil {
			p.bytes = m
		}
	}
	p.start = l.period
	l.pieces = append(l.pieces, p)
	l.period += p.length
}

func (l List) entries() int { return len(l) }

func (l List) compile() (*layout, error) {
	c := &layout{pieces: make([]piece, 0, len(l))}
	return c, l.compileTo(c)
}

// compileTo is compile into a layout whose pieces may be overwritten.
func (l List) compileTo(c *layout) error {
	*c = layout{pieces: c.pieces[:0], repeat: 1}
	for i, s := range l {
		if err := checkMemory("list", i, s.Memory); err != nil {
			return err
		}
		if s.Length == 0 {
			continue // an empty entry is legal; its memory is not used
		}
		if c.period+s.Length < c.period || s.Addr+s.Length < s.Addr {
			return failure.New(opConfigure, syscall.EINVAL, "list entry %d, %d+%d: addresses and the sum of lengths must fit 64 bits", i, s.Addr, s.Length)
		}
		c.add(s.Memory, piece{addr: s.Addr, length: s.Length})
	}
	c.total = c.period
	return nil
}

// entries is one more than the entries of the pattern, because the header of a strided
// layout takes one (mlx5dv_wr_mkey_configure(3)).
func (l Interleaved) entries() int { return len(l.Entries) + 1 }

func (l Interleaved) compile() (*layout, error) {
	c := &layout{pieces: make([]piece, 0, len(l.Entries)), repeat: uint64(l.Repeat)}
	for i, s := range l.Entries {
		if err := checkMemory("interleaved", i, s.Memory); err != nil {
			return nil, err
		}
		if s.Count == 0 {
			continue
		}
		step := uint64(s.Count) + uint64(s.Skip)
		hi, span := bits.Mul64(step, uint64(l.Repeat))
		if hi != 0 || s.Addr+span < s.Addr {
			return nil, failure.New(opConfigure, syscall.EINVAL, "interleaved entry %d, address %d, repeated %d times every %d bytes: addresses must fit 64 bits", i, s.Addr, l.Repeat, step)
		}
		c.add(s.Memory, piece{addr: s.Addr, length: uint64(s.Count), step: step})
	}
	hi, total := bits.Mul64(c.period, c.repeat)
	if hi != 0 {
		return nil, failure.New(opConfigure, syscall.EINVAL, "%d repetitions of %d bytes: the layout's length must fit 64 bits", l.Repeat, c.period)
	}
	c.total = total
	return c, nil
}

// checkMemory refuses an entry without memory.
func checkMemory(layout string, i int, m Memory) error {
	if isNil(m) {
		return failure.New(opConfigure, syscall.EINVAL, "%s entry %d names no memory", layout, i)
	}
	return nil
}

// dereference replaces a pointer to a layout by the layout, and refuses a nil pointer.
func dereference(l *Layout) error {
	switch p := (*l).(type) {
	case *List:
		if p != nil {
			*l = *p
			return nil
		}
	case *Interleaved:
		if p != nil {
			*l = *p
			return nil
		}
	default:
		return nil
	}
	return failure.New(opConfigure, syscall.EINVAL, "a layout of type %T that is nil", *l)
}
