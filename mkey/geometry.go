package mkey

import (
	"math/bits"
	"syscall"

	"github.com/softmkey/softmkey/operr"
)

// geometry maps positions between a key's three streams: the data, the memory
// domain and the wire domain, which are the data with fields after its blocks.
type geometry struct {
	memBlock, memField   uint64 // field 0: the domain has data only
	wireBlock, wireField uint64
	unit                 uint64 // data unit of the crypto, 0: none
	unitInMemory         bool   // the units are cut from the memory stream, else from the wire stream
}

func newGeometry(s *signature, c *Crypto) geometry {
	var g geometry
	if s != nil {
		// A domain without a signature is thought of as having the other's
		// blocks with fields of no length, which gives its block boundaries.
		m, w := s.Memory, s.Wire
		if m != nil {
			g.memBlock, g.memField = uint64(m.BlockSize), uint64(m.FieldSize())
			g.wireBlock = g.memBlock
		}
		if w != nil {
			g.wireBlock, g.wireField = uint64(w.BlockSize), uint64(w.FieldSize())
			if m == nil {
				g.memBlock = g.wireBlock
			}
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

// toStream returns the position of data offset d in a stream with fields. Right
// after a block's last byte it is the position behind its field.
func toStream(d, block, field uint64) uint64 {
	if field == 0 {
		return d
	}
	return d + d/block*field
}

// toData returns the data offset of a position in a stream with fields; every
// byte of a field has that of the block's end.
func toData(pos, block, field uint64) uint64 {
	if field == 0 {
		return pos
	}
	q, r := pos/(block+field), pos%(block+field)
	return q*block + min(r, block)
}

func (g *geometry) memory(d uint64) uint64 { return toStream(d, g.memBlock, g.memField) }

func (g *geometry) data(wire uint64) uint64 { return toData(wire, g.wireBlock, g.wireField) }

// span is a transfer: the same range in the three streams.
type span struct {
	wire0, wire1 uint64
	data0, data1 uint64
	mem0, mem1   uint64

	// whole is the data offset up to which blocks count as whole: a block whose
	// field did not come along is a partial tail, as one that is short of data.
	whole uint64
}

// span maps the n wire bytes from offset. A transfer starts on a boundary of
// blocks and data units (spec: signature, "Streams, blocks, fields"). With exact,
// n is the transfer's length, else the most that may come.
func (g *geometry) span(offset, n uint64, exact bool) (s span, err error) {
	end, carry := bits.Add64(offset, n, 0)
	if carry != 0 || end > maxStream {
		return s, operr.New("mkey", syscall.EFAULT, "range %d+%d: streams are at most %d bytes long", offset, n, uint64(maxStream))
	}
	s.wire0, s.wire1 = offset, end
	s.data0, s.data1 = g.data(offset), g.data(end)
	s.mem0, s.mem1, s.whole = g.memory(s.data0), g.memory(s.data1), s.data1
	if g.wireField != 0 && end > 0 && toStream(s.data1, g.wireBlock, g.wireField) > end {
		s.whole--
		if s.data1%g.memBlock == 0 {
			s.mem1 -= g.memField
		}
	}
	if g.wireBlock != 0 && offset%(g.wireBlock+g.wireField) != 0 {
		return s, operr.New("mkey", syscall.EFAULT, "offset %d: a transfer starts at a block of the wire domain, a multiple of %d", offset, g.wireBlock+g.wireField)
	}
	if g.unit == 0 {
		return s, nil
	}
	start, job := s.wire0, n
	if g.unitInMemory {
		start, job = s.mem0, s.mem1-s.mem0
		if g.memField != 0 && s.data0%g.memBlock != 0 {
			return s, operr.New("mkey", syscall.EFAULT, "offset %d: with encrypted memory a transfer starts at a block of the memory domain, every %d bytes of data", offset, g.memBlock)
		}
	}
	if start%g.unit != 0 {
		return s, operr.New("mkey", syscall.EFAULT, "offset %d: a transfer starts at a data unit, a multiple of %d bytes of the encrypted stream", offset, g.unit)
	}
	if exact {
		return s, checkJob(job, g.unit)
	}
	return s, nil
}

// checkJob applies the job-size rule of mlx5dv_wr_set_mkey_crypto(3). The rule's
// words admit one thing that does not exist, a data unit of 8 bytes (528 bytes in
// units of 520): AES-XTS begins at 16, so that is refused like any other size.
func checkJob(job, unit uint64) error {
	if rest := job % unit; rest != 0 && (job%16 != 0 || rest > unit-16 || rest < 16) {
		return operr.New("mkey", syscall.EMSGSIZE, "%d bytes of encrypted stream in data units of %d: the last unit must be whole, or the bytes a multiple of 16 and the last unit 16 to %d", job, unit, unit-16)
	}
	return nil
}

// maxStream keeps every position, with fields of any size added, in 63 bits.
const maxStream = 1 << 56

// wireLength returns how many wire bytes, from the first, fit a memory domain of n
// bytes.
func (g *geometry) wireLength(n uint64) uint64 {
	n = min(n, 2*maxStream) // so that nothing below overflows
	d := toData(n, g.memBlock, g.memField)
	if g.memory(d) <= n {
		return min(maxStream, toStream(d, g.wireBlock, g.wireField))
	}
	// Memory ends with a block's data, or within its field. On the wire the block is
	// a tail: its data without a field if that can be left out, or one byte less.
	d--
	w := toStream(d, g.wireBlock, g.wireField) + 1
	if g.wireField != 0 && (d+1)%g.wireBlock == 0 {
		return min(maxStream, w)
	}
	return min(maxStream, w-1)
}
