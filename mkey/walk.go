package mkey

import (
	"sort"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/rdma"
)

// maxDepth is the limit of nesting: the largest number of keys inside each
// other, the outermost included.
const maxDepth = 8

// place is a position in a layout: the repetition of the pattern, the piece and the offset
// within the piece.
type place struct {
	rep    uint64
	index  int
	within uint64
}

// locate returns the place of a position before the layout's end.
func (l *layout) locate(pos uint64) (p place) {
	if l.repeat > 1 {
		p.rep, pos = pos/l.period, pos%l.period
	}
	if len(l.pieces) > 1 {
		p.index = sort.Search(len(l.pieces), func(i int) bool { return l.pieces[i].start > pos }) - 1
	}
	p.within = pos - l.pieces[p.index].start
	return p
}

// cursor is the last place that a stream used in a layout. Sequential access needs no
// search.
type cursor struct {
	layout *layout
	visit  *visit      // of the stream that the cursor belongs to
	need   rdma.Access // right that the memory must grant
	place  place
	start  uint64 // position in the layout of the piece at place
	end    uint64 // end of that piece; 0: the cursor was not used yet
}

// at returns the first contiguous part of the n > 0 bytes from pos. If that part can only be
// copied, at returns an empty slice, and sets the visit's space, addr and n.
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

// next moves the cursor to the next piece. The cursor must not be in the last one.
func (c *cursor) next() {
	p := &c.place
	p.within = 0
	if p.index++; p.index == len(c.layout.pieces) {
		p.index = 0
		p.rep++
	}
	c.start = c.end
	c.end += c.layout.pieces[p.index].length
}

// at returns the first contiguous part of the n > 0 bytes from pos, as cursor.at does. Nested
// keys on the way become part of the visit. Without a visit, v is nil, memory that can only
// be copied is refused.
func (l *layout) at(pos, n uint64, need rdma.Access, depth int, v *visit) ([]byte, error) {
	if err := l.bounds(pos, n); err != nil {
		return nil, err
	}
	return l.reach(l.locate(pos), n, need, depth, v)
}

// reach returns at most n bytes from a place, up to the end of its piece.
func (l *layout) reach(at place, n uint64, need rdma.Access, depth int, v *visit) ([]byte, error) {
	p := &l.pieces[at.index]
	n = min(n, p.length-at.within)
	addr := p.addr + at.rep*p.step + at.within
	if p.bytes != nil {
		return p.bytes[addr : addr+n], nil
	}
	t, err := p.resolve()
	if err != nil {
		return nil, err
	}
	if t.key != nil {
		inner, err := t.key.inner(need, depth, v)
		if err == nil {
			addr, err = inner.offset(addr)
		}
		if err != nil {
			return nil, err
		}
		return inner.layout.at(addr, n, need, depth+1, v)
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
		return nil, failure.New("mkey access", syscall.EFAULT, "memory at %d gave %d bytes where 1 to %d were asked for", addr, len(b), n)
	}
	return b, nil
}

// check returns an error if the n bytes from pos may not be accessed, and reports whether
// some of them can only be copied.
func (l *layout) check(pos, n uint64, need rdma.Access, depth int) (copied bool, err error) {
	c := checker{need: need}
	err = c.layout(l, pos, n, depth)
	return c.copied, err
}

// checker checks every piece of memory that a range touches.
type checker struct {
	need   rdma.Access
	copied bool // some of the memory can only be copied

	// spanning is set while one check covers a whole strided span, gaps
	// included. Below a nested key, the span can touch many more pieces than
	// the range itself. The check is therefore abandoned when steps, the number
	// of checks left, falls below 0.
	spanning bool
	steps    int
}

// mostSteps limits the check of a span to some microseconds.
const mostSteps = 256

var errSteps error = failure.New("mkey access", syscall.EAGAIN, "the check of a strided span takes too many steps")

func (c *checker) layout(l *layout, pos, n uint64, depth int) error {
	if err := l.bounds(pos, n); err != nil || n == 0 {
		return err
	}
	first, last := l.locate(pos), l.locate(pos+n-1)
	pieces, base := l.pieces, 0
	if first.rep == last.rep {
		pieces, base = l.pieces[first.index:last.index+1], first.index
	}
	for i := range pieces {
		p := &pieces[i]
		if p.bytes != nil {
			continue
		}
		// The repetitions in which the range touches the piece, where it begins in the
		// first of them, and where it ends in the last.
		t := reps{from: first.rep, to: last.rep + 1, end: p.length}
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

// reps describes the part of a piece that a range touches: repetitions
// from..to-1, from offset begin in the first of them to offset end in the last.
type reps struct{ from, to, begin, end uint64 }

func (c *checker) piece(p *piece, t reps, depth int) error {
	tg, err := p.resolve()
	if err != nil {
		return err
	}
	var inner *plan
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
	// The gaps are usually accessible, too. One check of the whole span is then
	// enough.
	if !c.spanning {
		c.spanning, c.steps = true, mostSteps
		err = c.reach(mem, inner, lo, hi-lo, depth)
		c.spanning = false
	} else {
		err = c.reach(mem, inner, lo, hi-lo, depth)
	}
	if err == nil || c.spanning && c.steps < 0 {
		return err
	}
	for rep := t.from; rep < t.to; rep++ {
		lo, hi := uint64(0), p.length
		if rep == t.from {
			lo = t.begin
		}
		if rep == t.to-1 {
			hi = t.end
		}
		if err := c.reach(mem, inner, p.addr+rep*p.step+lo, hi-lo, depth); err != nil {
			return err
		}
	}
	return nil
}

// reach checks a contiguous range of a piece's memory.
func (c *checker) reach(mem Memory, inner *plan, addr, n uint64, depth int) error {
	if c.spanning {
		if c.steps--; c.steps < 0 {
			return errSteps
		}
	}
	if inner != nil {
		addr, err := inner.offset(addr)
		if err != nil {
			return err
		}
		return c.layout(inner.layout, addr, n, depth+1)
	}
	if err := mem.Reach(addr, n, c.need); err != nil {
		return err
	}
	if m, ok := mem.(keydoor.Copied); ok && !c.copied {
		// A nil Space means that these bytes can be used in place, although the type of their
		// Memory is Copied.
		space, _, err := m.Space(addr, 1, c.need)
		if err != nil {
			return err
		}
		c.copied = space != nil
	}
	return nil
}

func (l *layout) bounds(pos, n uint64) error {
	if pos > l.total || n > l.total-pos {
		return failure.New("mkey access", syscall.EFAULT, "range %d+%d lies outside of the %d bytes of the key's memory domain", pos, n, l.total)
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
		return target{}, failure.New("mkey access", syscall.EFAULT, "a reference in the layout names no memory")
	}
	return t, nil
}

// inner returns the configuration of a key that is an entry of another key's layout, depth keys
// below the outermost. The key must grant need, and so must the memory below it. The key
// becomes part of the visit, unless v is nil.
func (k *Key) inner(need rdma.Access, depth int, v *visit) (*plan, error) {
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
	return p, nil
}

func errDepth(op string) error {
	return failure.New(op, syscall.EINVAL, "keys are nested more than %d deep, or in a circle", maxDepth)
}

// checkKinds refuses a layout for outer with an entry that can never be one: outer itself,
// and a key made for crypto.
func (l *layout) checkKinds(outer *Key) error {
	for i := range l.pieces {
		t, err := l.pieces[i].resolve()
		k := t.key
		if err != nil || k == nil {
			continue // it refers to no key now, and may refer to memory when it is used
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

// nesting checks the keys that a layout refers to, directly or through other keys, when a key is
// configured. Later changes of those keys are detected when the key is used.
type nesting struct {
	outer *Key
	depth map[*Key]int // depths of the keys that were checked; 0: the check of the key is in progress
}

// checkNesting refuses a layout for outer that contains outer at any depth, that is nested
// too deep, or that contains a key which cannot be nested.
func (l *layout) checkNesting(outer *Key) error {
	w := nesting{outer: outer}
	_, err := w.walk(l, 1)
	return err
}

// walk returns the depth of a layout: 1, plus the depth of the deepest key in it. above-1 is the
// number of keys between outer and the layout.
func (w *nesting) walk(l *layout, above int) (depth int, err error) {
	depth = 1
	for i := range l.pieces {
		t, err := l.pieces[i].resolve()
		k := t.key
		if err != nil || k == nil {
			continue // it refers to no key now, and may refer to memory when it is used
		}
		below, err := w.key(k, above+1)
		if err != nil {
			return 0, err
		}
		depth = max(depth, 1+below)
	}
	return depth, nil
}

// key is walk for the layout of key k.
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
