package mkey

import (
	"math/bits"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/geometry"
)

// streams maps positions between a key's three streams: the data, the memory
// domain and the wire domain, which are the data with fields after its blocks.
type streams struct {
	mem, wire    geometry.Stream[uint64]
	unit         uint64 // data unit of the crypto, 0: none
	unitInMemory bool   // the units are cut from the memory stream, else from the wire stream
}

func newStreams(s *signature, c *Crypto) streams {
	var g streams
	if s != nil {
		g.mem, g.wire = geometry.Of[uint64](s.Memory), geometry.Of[uint64](s.Wire)
		// A domain without a signature has the other's blocks, which gives its block
		// boundaries, and fields of no length.
		if s.Memory == nil {
			g.mem.Block = g.wire.Block
		}
		if s.Wire == nil {
			g.wire.Block = g.mem.Block
		}
	}
	if c != nil {
		g.unit = uint64(c.DataUnitSize)
		g.unitInMemory = true
		if s != nil {
			g.unitInMemory = c.OnMemory(&s.Signature)
		}
	}
	return g
}

// span is a transfer: the same range in the three streams.
type span struct {
	wire0, wire1 uint64
	data0, data1 uint64
	mem0, mem1   uint64

	// whole is the data offset up to which blocks count as complete. A last block without
	// its field counts as not complete.
	whole uint64
}

// span maps the n wire bytes from offset. A transfer starts at a boundary of
// blocks and data units (spec: signature, "Streams, blocks, fields"). If exact,
// n is the transfer's length and must be a job that AES-XTS can process;
// otherwise n is the largest length that may arrive.
func (g *streams) span(offset, n uint64, exact bool) (s span, err error) {
	end, carry := bits.Add64(offset, n, 0)
	if carry != 0 || end > maxStream {
		return s, failure.New("mkey access", syscall.EFAULT, "range %d+%d: streams are at most %d bytes long", offset, n, uint64(maxStream))
	}
	s.wire0, s.wire1 = offset, end
	s.data0, s.data1 = g.wire.Data(offset), g.wire.Data(end)
	s.mem0, s.mem1, s.whole = g.mem.Len(s.data0), g.mem.Len(s.data1), s.data1
	if g.wire.Field != 0 && end > 0 && g.wire.Len(s.data1) > end {
		s.whole--
		if s.data1%g.mem.Block == 0 {
			s.mem1 -= g.mem.Field
		}
	}
	if g.wire.Block != 0 && offset%g.wire.Stride() != 0 {
		return s, failure.New("mkey access", syscall.EFAULT, "offset %d: a transfer starts at a block of the wire domain, a multiple of %d", offset, g.wire.Stride())
	}
	if g.unit == 0 {
		return s, nil
	}
	start, job := s.wire0, n
	if g.unitInMemory {
		start, job = s.mem0, s.mem1-s.mem0
		if g.mem.Field != 0 && s.data0%g.mem.Block != 0 {
			return s, failure.New("mkey access", syscall.EFAULT, "offset %d: with encrypted memory a transfer starts at a block of the memory domain, every %d bytes of data", offset, g.mem.Block)
		}
	}
	if start%g.unit != 0 {
		return s, failure.New("mkey access", syscall.EFAULT, "offset %d: a transfer starts at a data unit, a multiple of %d bytes of the encrypted stream", offset, g.unit)
	}
	if exact {
		return s, geometry.CheckJob(job, g.unit)
	}
	return s, nil
}

// maxStream keeps every position, with fields of any size added, in 63 bits.
const maxStream = 1 << 56

// wireLength returns the length of the longest wire stream for a memory domain of n bytes.
func (g *streams) wireLength(n uint64) uint64 {
	n = min(n, 2*maxStream) // so that nothing below overflows
	d := g.mem.Data(n)
	if g.mem.Len(d) <= n {
		return min(maxStream, g.wire.Len(d))
	}
	// Memory ends after a block's data or within its field, so that block is
	// not complete. If the wire stream may end with the block's data alone, it
	// has all of the data, otherwise one byte less.
	d--
	w := g.wire.Len(d) + 1
	if g.wire.Field != 0 && (d+1)%g.wire.Block == 0 {
		return min(maxStream, w)
	}
	return min(maxStream, w-1)
}
