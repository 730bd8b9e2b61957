package sig

import (
	"sync/atomic"
)

// compiled holds transforms that generate or check the fields of one format, for calls of Generate and Verify with a
// few blocks: to compile a transform takes several times as long as a block. A transform replaces another one in its
// place, so that the memory is bounded.
var compiled [32]atomic.Pointer[Transform]

// prepared is a transform that generates or checks the fields of a format, and the format's reference tag, which may
// differ from the transform's: a block in the middle of a disk has a format of its own.
type prepared struct {
	*Transform
	format *Format // of the transform's signature
	side   *side
	ref    uint64
}

// prepare returns the transform of f for one of the operations, which is kept for the next call.
func (f *Format) prepare(op string, check bool) (prepared, error) {
	place := uint(f.Type)*5 + uint(f.BlockSize)>>9 + uint(f.Flags) + uint(f.Seed)
	if check {
		place += uint(len(compiled)) / 2
	}
	kept := &compiled[place%uint(len(compiled))]
	if t := kept.Load(); t != nil {
		p := t.prepared(check, f.RefTag)
		key := *f
		key.RefTag, key.BlockSize = p.format.RefTag, p.format.BlockSize
		if key == *p.format && f.Block() == t.size && (f.RefTag == key.RefTag || f.tagged() && f.RefTag&^f.refMask() == 0) {
			return p, nil
		}
	}
	if err := f.signed(op); err != nil {
		return prepared{}, err
	}
	c := TransformConfig{Out: *f}
	if check {
		c = TransformConfig{In: *f}
	}
	t := new(Transform)
	if err := t.compile(c); err != nil {
		return prepared{}, err
	}
	kept.Store(t)
	return t.prepared(check, f.RefTag), nil
}

func (t *Transform) prepared(check bool, ref uint64) prepared {
	if check {
		return prepared{t, &t.in, &t.inSide, ref}
	}
	return prepared{t, &t.out, &t.outSide, ref}
}

// stream passes the whole blocks of a stream.
func (p *prepared) stream(op string, buf []byte, o *outcome) error {
	stride := p.size + p.side.field
	n := len(buf) / stride
	if len(buf)-n*stride >= p.size {
		return p.format.stream().Truncated(op, int64(len(buf))) // not nil: the last block lacks a part of its field
	}
	b := Blocks{Data: buf, DataStride: stride, FieldStride: stride}
	if len(buf) > p.size {
		b.Fields = buf[p.size:]
	}
	p.pass(b, n, o)
	return nil
}

// pass generates or checks the fields of n blocks.
func (p *prepared) pass(b Blocks, n int, o *outcome) {
	if p.ref != p.format.RefTag {
		p.passFrom(b, n, o)
		return
	}
	p.run(b, b, n, 0, o)
}

// passFrom is pass with a transform of another reference tag. It is not a part of pass because of the large copy.
//
//go:noinline
func (p *prepared) passFrom(b Blocks, n int, o *outcome) {
	t := *p.Transform
	own := t.prepared(p.format == &p.in, p.ref)
	own.format.RefTag = p.ref
	*own.side = sideOf(own.format)
	t.run(b, b, n, 0, o)
}
