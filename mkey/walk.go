package mkey

import (
	"sort"
	"syscall"

	"github.com/softmkey/softmkey/operr"
)

// maxDepth is how many keys may stand on each other, the outermost included.
const maxDepth = 8

// place is a position in a layout: the turn, the piece and the offset within it.
type place struct {
	turn   uint64
	index  int
	within uint64
}

// locate finds the place of pos < total.
func (l *layout) locate(pos uint64) (p place) {
	if l.repeat > 1 {
		p.turn, pos = pos/l.period, pos%l.period
	}
	if len(l.pieces) > 1 {
		p.index = sort.Search(len(l.pieces), func(i int) bool { return l.pieces[i].start > pos }) - 1
	}
	p.within = pos - l.pieces[p.index].start
	return p
}

// cursor walks along a layout: it remembers where it was last, so that reading on
// there needs no search.
type cursor struct {
	layout *layout
	visit  *visit // of the stream that the cursor belongs to
	need   Access // that the memory must grant
	place  place
	start  uint64 // of the piece at place, in the layout
	end    uint64 // of that piece; 0: the cursor has not been anywhere
}

// at returns the first contiguous piece of the n > 0 bytes from pos. A piece that can only
// be copied is in the visit, and the slice is empty.
func (c *cursor) at(pos, n uint64) ([]byte, error) {
	l := c.layout
	switch {
	case c.end > pos && pos >= c.start:
		c.place.within = pos - c.start
	case c.end == pos && pos != 0 && pos < l.total:
		c.next()
	default:
		if err := l.bounds(pos, n); err != nil {
			return nil, err
		}
		c.place = l.locate(pos)
		c.start = pos - c.place.within
		c.end = c.start + l.pieces[c.place.index].length
	}
	return l.reach(c.place, n, c.need, 1, c.visit)
}

// next goes to the beginning of the next piece, which there is.
func (c *cursor) next() {
	p := &c.place
	p.within = 0
	if p.index++; p.index == len(c.layout.pieces) {
		p.index = 0
		p.turn++
	}
	c.start = c.end
	c.end += c.layout.pieces[p.index].length
}

// at returns the first contiguous piece of the n > 0 bytes from pos. The keys that it
// goes through become part of the visit. The visit may be nil: then memory that can only
// be copied is refused.
func (l *layout) at(pos, n uint64, need Access, depth int, v *visit) ([]byte, error) {
	if err := l.bounds(pos, n); err != nil {
		return nil, err
	}
	return l.reach(l.locate(pos), n, need, depth, v)
}

// reach returns at most n bytes from a place, at most to the end of its piece.
func (l *layout) reach(at place, n uint64, need Access, depth int, v *visit) ([]byte, error) {
	p := &l.pieces[at.index]
	n = min(n, p.length-at.within)
	addr := p.addr + at.turn*p.step + at.within
	if p.bytes != nil {
		return p.bytes[addr : addr+n], nil
	}
	t, err := p.resolve()
	if err != nil {
		return nil, err
	}
	if t.key != nil {
		inner, err := t.key.inner(need, depth, v)
		if err != nil {
			return nil, err
		}
		return inner.at(addr, n, need, depth+1, v)
	}
	if t.copied != nil && v != nil {
		space, at, err := t.copied.Space(addr, n, need)
		if err != nil {
			return nil, err
		}
		if space != nil {
			v.space, v.addr, v.n = space, at, n
			return nil, nil
		}
	}
	b, err := t.mem.At(addr, n, need)
	switch {
	case err != nil:
		return nil, err
	case len(b) == 0 || uint64(len(b)) > n:
		return nil, operr.New("mkey access", syscall.EFAULT, "memory at %d gave %d bytes where 1 to %d were asked for", addr, len(b), n)
	}
	return b, nil
}

// check reports whether the n bytes from pos may be reached, and whether some of them can
// only be copied.
func (l *layout) check(pos, n uint64, need Access, depth int) (copied bool, err error) {
	c := checker{need: need}
	err = c.layout(l, pos, n, depth)
	return c.copied, err
}

// checker is a walk over everything that a range touches.
type checker struct {
	need   Access
	copied bool // some of it can only be copied

	// trying is set while gaps are looked at together with what lies between them,
	// which may be a great deal longer than the range and is given up after so many
	// steps.
	trying bool
	steps  int
}

// mostSteps is how much looking at gaps may cost. It is some microseconds.
const mostSteps = 256

var errSteps error = operr.New("mkey access", syscall.EAGAIN, "gaps were given up")

func (c *checker) layout(l *layout, pos, n uint64, depth int) error {
	if err := l.bounds(pos, n); err != nil || n == 0 {
		return err
	}
	first, last := l.locate(pos), l.locate(pos+n-1)
	pieces, base := l.pieces, 0
	if first.turn == last.turn {
		pieces, base = l.pieces[first.index:last.index+1], first.index
	}
	for i := range pieces {
		p := &pieces[i]
		if p.bytes != nil {
			continue
		}
		// The turns in which the range touches the piece, where it begins in the
		// first of them and where it ends in the last.
		t := turns{from: first.turn, to: last.turn + 1, end: p.length}
		switch i += base; {
		case i < first.index:
			t.from++
		case i == first.index:
			t.begin = first.within
		}
		switch {
		case i > last.index:
			t.to--
		case i == last.index:
			t.end = last.within + 1
		}
		if t.from < t.to {
			if err := c.piece(p, t, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

// turns is the part of a piece that a range touches: turns from..to-1, from begin in
// the first of them, to end in the last.
type turns struct{ from, to, begin, end uint64 }

func (c *checker) piece(p *piece, t turns, depth int) error {
	tg, err := p.resolve()
	if err != nil {
		return err
	}
	c.copied = c.copied || tg.copied != nil
	var inner *layout
	if tg.key != nil {
		if inner, err = tg.key.inner(c.need, depth, nil); err != nil {
			return err
		}
	}
	mem := tg.mem
	lo := p.addr + t.from*p.step + t.begin
	hi := p.addr + (t.to-1)*p.step + t.end
	if t.from == t.to-1 || p.step == p.length {
		return c.reach(mem, inner, lo, hi-lo, depth)
	}
	// Mostly what lies between the turns may be reached as well, and one look is
	// enough.
	if !c.trying {
		c.trying, c.steps = true, mostSteps
		err = c.reach(mem, inner, lo, hi-lo, depth)
		c.trying = false
	} else {
		err = c.reach(mem, inner, lo, hi-lo, depth)
	}
	if err == nil || c.trying && c.steps < 0 {
		return err
	}
	for turn := t.from; turn < t.to; turn++ {
		lo, hi := uint64(0), p.length
		if turn == t.from {
			lo = t.begin
		}
		if turn == t.to-1 {
			hi = t.end
		}
		if err := c.reach(mem, inner, p.addr+turn*p.step+lo, hi-lo, depth); err != nil {
			return err
		}
	}
	return nil
}

// reach looks at a contiguous range of a piece's memory.
func (c *checker) reach(mem Memory, inner *layout, addr, n uint64, depth int) error {
	if c.trying {
		if c.steps--; c.steps < 0 {
			return errSteps
		}
	}
	if inner != nil {
		return c.layout(inner, addr, n, depth+1)
	}
	return mem.Reach(addr, n, c.need)
}

func (l *layout) bounds(pos, n uint64) error {
	if pos > l.total || n > l.total-pos {
		return operr.New("mkey access", syscall.EFAULT, "range %d+%d lies outside of the %d bytes of the key's memory domain", pos, n, l.total)
	}
	return nil
}

// resolve returns the memory of a piece. A reference is looked up.
func (p *piece) resolve() (target, error) {
	if p.ref == nil {
		return p.target, nil
	}
	m, err := p.ref.Target()
	if err != nil {
		return target{}, err
	}
	t := targetOf(m)
	if m == nil || t.key == nil && t.mem == Memory((*Key)(nil)) {
		return target{}, operr.New("mkey access", syscall.EFAULT, "a reference in the layout names no memory")
	}
	return t, nil
}

// inner returns the layout of a key that stands in another's at a depth. The key must
// grant need itself, as must the memory below it. It becomes part of the visit, which
// may be nil.
func (k *Key) inner(need Access, depth int, v *visit) (*layout, error) {
	if depth >= maxDepth {
		return nil, errDepth("mkey")
	}
	p, err := k.usable(need)
	if err != nil {
		return nil, err
	}
	if err := k.nestable("mkey", p); err != nil {
		return nil, err
	}
	if v != nil && !v.enter(p.tenure) {
		return nil, k.errFree()
	}
	return p.layout, nil
}

func errDepth(op string) error {
	return operr.New(op, syscall.EINVAL, "keys are nested more than %d deep, or in a circle", maxDepth)
}

// checkKinds refuses a layout for outer that names a key which can never stand there:
// outer itself, and a key made for crypto.
func (l *layout) checkKinds(outer *Key) error {
	for i := range l.pieces {
		t, err := l.pieces[i].resolve()
		k := t.key
		if err != nil || k == nil {
			continue // a reference may become good until it is used
		}
		if k == outer {
			return errDepth(opConfigure)
		}
		if err := k.nestable(opConfigure, nil); err != nil {
			return err
		}
	}
	return nil
}

// nesting looks, when a configuration is put in force, at the keys that its layout
// names, as they are configured then. Changes after that are found when the key is used.
type nesting struct {
	outer *Key
	depth map[*Key]int // of the keys whose layouts were walked; 0: the walk is below the key now
}

// checkNesting refuses a layout for outer that leads back to it, is nested too deep
// or names a key that cannot be nested.
func (l *layout) checkNesting(outer *Key) error {
	w := nesting{outer: outer}
	_, err := w.walk(l, 1)
	return err
}

// walk returns how many keys stand on each other from a layout's key down, which
// has above-1 keys on it.
func (w *nesting) walk(l *layout, above int) (depth int, err error) {
	depth = 1
	for i := range l.pieces {
		t, err := l.pieces[i].resolve()
		k := t.key
		if err != nil || k == nil {
			continue // a reference may become good until it is used
		}
		below, err := w.key(k, above+1)
		if err != nil {
			return 0, err
		}
		depth = max(depth, 1+below)
	}
	return depth, nil
}

// key is walk for a key that has above-1 keys on it.
func (w *nesting) key(k *Key, above int) (depth int, err error) {
	depth, seen := w.depth[k]
	switch {
	case k == w.outer || above > maxDepth || seen && depth == 0 || above-1+depth > maxDepth:
		return 0, errDepth(opConfigure)
	case seen:
		return depth, nil
	}
	if w.depth == nil {
		w.depth = make(map[*Key]int)
	}
	w.depth[k] = 0
	p := k.plan.Load()
	if err := k.nestable(opConfigure, p); err != nil {
		return 0, err
	}
	depth = 1
	if p != nil && p.layout != nil {
		if depth, err = w.walk(p.layout, above); err != nil {
			return 0, err
		}
	}
	w.depth[k] = depth
	return depth, nil
}
