package mkey

import (
	"math"
	"math/bits"
	"sort"
	"syscall"

	"github.com/softmkey/softmkey/internal/operr"
)

// maxDepth is how many keys may stand below each other.
const maxDepth = 8

// Layout says where the bytes of a key's memory domain stand: a [List] or an
// [Interleaved] pattern (mlx5dv_wr_mkey_configure(3), "Data layout setters").
type Layout interface {
	// entries is how many entries the layout takes in a key and in the work
	// request that configures it.
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

// Strided is an entry of an [Interleaved] layout: Count bytes are used, Skip
// bytes are passed over before the entry's next turn.
type Strided struct {
	Memory Memory
	Addr   uint64
	Count  uint32
	Skip   uint32
}

// Interleaved is a layout that takes Count bytes from each entry in turn and
// does so Repeat times: data and fields from separate buffers, for example.
type Interleaved struct {
	Repeat  uint32
	Entries []Strided
}

// layout is the compiled form of both: a pattern of pieces which is repeated,
// a list being a pattern with one turn.
type layout struct {
	pieces []piece
	period uint64 // bytes of one turn
	repeat uint64
	total  uint64 // period * repeat
}

type piece struct {
	mem    Memory
	addr   uint64
	length uint64
	step   uint64 // from one turn to the next
	start  uint64 // within the turn
}

func (l List) entries() int { return len(l) }

func (l List) compile() (*layout, error) {
	c := &layout{pieces: make([]piece, 0, len(l)), repeat: 1}
	for i, s := range l {
		if s.Memory == nil {
			return nil, operr.New("mkey configure", syscall.EINVAL, "list entry %d names no memory", i)
		}
		if s.Length == 0 {
			continue // an empty entry is legal and never looked up
		}
		if c.period+s.Length < c.period || s.Addr+s.Length < s.Addr {
			return nil, operr.New("mkey configure", syscall.EINVAL, "list entry %d, %d+%d: addresses and the sum of lengths must fit 64 bits", i, s.Addr, s.Length)
		}
		c.pieces = append(c.pieces, piece{mem: s.Memory, addr: s.Addr, length: s.Length, start: c.period})
		c.period += s.Length
	}
	c.total = c.period
	return c, nil
}

// entries counts one more than the pattern has: the header of a strided layout
// takes an entry of its own (mlx5dv_wr_mkey_configure(3)).
func (l Interleaved) entries() int { return len(l.Entries) + 1 }

func (l Interleaved) compile() (*layout, error) {
	c := &layout{pieces: make([]piece, 0, len(l.Entries)), repeat: uint64(l.Repeat)}
	for i, s := range l.Entries {
		if s.Memory == nil {
			return nil, operr.New("mkey configure", syscall.EINVAL, "interleaved entry %d names no memory", i)
		}
		if s.Count == 0 {
			continue
		}
		step := uint64(s.Count) + uint64(s.Skip)
		hi, span := bits.Mul64(step, uint64(l.Repeat))
		if hi != 0 || s.Addr+span < s.Addr {
			return nil, operr.New("mkey configure", syscall.EINVAL, "interleaved entry %d, address %d, %d turns of %d bytes: addresses must fit 64 bits", i, s.Addr, l.Repeat, step)
		}
		c.pieces = append(c.pieces, piece{mem: s.Memory, addr: s.Addr, length: uint64(s.Count), step: step, start: c.period})
		c.period += uint64(s.Count)
	}
	hi, total := bits.Mul64(c.period, c.repeat)
	if hi != 0 {
		return nil, operr.New("mkey configure", syscall.EINVAL, "%d turns of %d bytes: the layout's length must fit 64 bits", l.Repeat, c.period)
	}
	c.total = total
	return c, nil
}

// locate finds the piece that holds pos < total: the turn, the piece's index and
// the offset within the piece.
func (l *layout) locate(pos uint64) (turn uint64, index int, within uint64) {
	if l.repeat > 1 {
		turn, pos = pos/l.period, pos%l.period
	}
	if len(l.pieces) > 1 {
		index = sort.Search(len(l.pieces), func(i int) bool { return l.pieces[i].start > pos }) - 1
	}
	return turn, index, pos - l.pieces[index].start
}

// at returns the first contiguous piece of the n > 0 bytes from pos.
func (l *layout) at(pos, n uint64, need Access, depth int) ([]byte, error) {
	if err := l.bounds(pos, n); err != nil {
		return nil, err
	}
	turn, i, within := l.locate(pos)
	p := &l.pieces[i]
	n = min(n, p.length-within)
	addr := p.addr + turn*p.step + within
	inner, err := follow(p.mem, need, depth)
	switch {
	case err != nil:
		return nil, err
	case inner != nil:
		return inner.at(addr, n, need, depth+1)
	}
	return p.mem.At(addr, n, need)
}

// check reports whether the n bytes from pos may be reached. A strided entry is
// checked once, from the first to the last byte that the range touches, and so
// with the gaps between its turns.
func (l *layout) check(pos, n uint64, need Access, depth int) error {
	if err := l.bounds(pos, n); err != nil || n == 0 {
		return err
	}
	first, i0, w0 := l.locate(pos)
	last, i1, w1 := l.locate(pos + n - 1)
	for i := range l.pieces {
		p := &l.pieces[i]
		// The turns in which the range touches this piece, and the first and
		// last byte that it touches.
		from, to := first, last
		begin, end := uint64(0), p.length
		switch {
		case i < i0:
			from++
		case i == i0:
			begin = w0
		}
		switch {
		case i > i1:
			if to == 0 {
				continue
			}
			to--
		case i == i1:
			end = w1 + 1
		}
		if from > to || to == math.MaxUint64 {
			continue
		}
		lo := p.addr + from*p.step + begin
		hi := p.addr + to*p.step + end
		if err := l.checkPiece(p, lo, hi-lo, need, depth); err != nil {
			return err
		}
	}
	return nil
}

func (l *layout) checkPiece(p *piece, addr, n uint64, need Access, depth int) error {
	inner, err := follow(p.mem, need, depth)
	switch {
	case err != nil:
		return err
	case inner != nil:
		return inner.check(addr, n, need, depth+1)
	}
	return p.mem.Reach(addr, n, need)
}

func (l *layout) bounds(pos, n uint64) error {
	if pos > l.total || n > l.total-pos || (n > 0 && len(l.pieces) == 0) {
		return operr.New("mkey", syscall.EFAULT, "range %d+%d lies outside of the %d bytes of the key's memory domain", pos, n, l.total)
	}
	return nil
}

// keyOf returns the key that m stands for, or nil if m is plain memory.
func keyOf(m Memory) (*Key, error) {
	switch m := m.(type) {
	case *Key:
		return m, nil
	case nested:
		return m.MKey()
	}
	return nil, nil
}

// follow returns the layout of the key that m stands for, or nil if m is plain
// memory. The nested key must grant need itself, as must the memory below it.
func follow(m Memory, need Access, depth int) (*layout, error) {
	k, err := keyOf(m)
	if k == nil || err != nil {
		return nil, err
	}
	if depth >= maxDepth {
		return nil, errDepth()
	}
	p, err := k.usable(need)
	if err != nil {
		return nil, err
	}
	return p.layout, p.nestable()
}

func errDepth() error {
	return operr.New("mkey", syscall.EINVAL, "keys are nested more than %d deep, or in a circle", maxDepth)
}

// checkNesting applies, when a key is configured, the rules for the keys named
// in its layout to the configurations posted for them so far.
func (l *layout) checkNesting(outer *Key, depth int) error {
	for i := range l.pieces {
		k, err := keyOf(l.pieces[i].mem)
		if err != nil {
			// A number that names nothing is found when it is used: the key may
			// be made, or gone, by then.
			continue
		}
		if k == nil {
			continue
		}
		if k == outer || depth >= maxDepth {
			return errDepth()
		}
		p := k.posted.Load()
		if p == nil || p.layout == nil {
			continue
		}
		if err := p.nestable(); err != nil {
			return err
		}
		if err := p.layout.checkNesting(outer, depth+1); err != nil {
			return err
		}
	}
	return nil
}
