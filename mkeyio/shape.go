package mkeyio

import (
	"math"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/geometry"
)

const (
	// chunkSize is the approximate number of bytes of data in a chunk. A
	// worker's input and output should fit its second-level cache together.
	// Below half a megabyte, the cost of threads that wake each other is larger
	// than the gain. Protecting 1 GiB of page cache with two cores took 0.46 s
	// with 256 KiB, 0.40 s with 512 KiB, and no less with more; cp took 0.38 s.
	chunkSize = 512 << 10

	// chunkLimit is the longest chunk. Two blocks of one size and any data unit
	// have a common boundary at least every 4.3 MiB (4052 and 4160 bytes).
	chunkLimit = 8 << 20
)

// domain is the stream of a domain.
type domain = geometry.Stream[int64]

// shape is the geometry of a job: its two streams, and the chunks that they are cut into.
type shape struct {
	memory, wire domain
	receives     bool   // the direction is RX
	in, out      domain // input and output: memory and wire, by direction

	unit         int64 // data unit of the crypto; 0: no crypto
	unitInMemory bool  // the units are cut from the memory stream, else from the wire stream
	unitInInput  bool

	// The stream begins at these positions of the domains.
	memory0, wire0, in0, out0 int64

	// chunk is the length of a chunk in bytes of data. It is a boundary of both domains or,
	// if serial, of the input only.
	chunk  int64
	serial bool
}

func newShape(j *StreamJob) (shape, error) {
	s := shape{receives: j.Direction == RX}
	s.memory, s.wire = domain{Block: 1}, domain{Block: 1}
	if j.Signature != nil {
		s.memory, s.wire = geometry.Of[int64](j.Signature.Memory), geometry.Of[int64](j.Signature.Wire)
	}
	s.in, s.out = s.memory, s.wire
	if s.receives {
		s.in, s.out = s.wire, s.memory
	}
	if j.Crypto != nil {
		s.unit = int64(j.Crypto.DataUnitSize)
		s.unitInMemory = j.Crypto.OnMemory(j.Signature)
		s.unitInInput = s.unitInMemory == (j.Direction == TX)
	}
	// Each worker holds chunks of at least a block in memory.
	if b := max(s.in.Block, s.out.Block); b > chunkLimit {
		return s, failure.New("mkeyio run", syscall.EINVAL, "blocks of %d bytes: must be at most %d", b, int64(chunkLimit))
	}
	if err := s.begin(j.Offset); err != nil {
		return s, err
	}
	s.cut(j.chunk)
	return s, nil
}

// begin sets the positions of a stream that begins at a wire offset.
func (s *shape) begin(offset uint64) error {
	const limit = 1 << 56 // length of a key's streams
	if offset > limit {
		return failure.New("mkeyio run", syscall.EFAULT, "offset %d: streams are at most %d bytes long", offset, int64(limit))
	}
	s.wire0 = int64(offset)
	data := s.wire.Data(s.wire0)
	s.memory0 = s.memory.Len(data)
	s.in0, s.out0 = s.memory0, s.wire0
	if s.receives {
		s.in0, s.out0 = s.wire0, s.memory0
	}
	crypt := s.wire0
	if s.unitInMemory {
		crypt = s.memory0
	}
	if s.wire0%s.wire.Stride() != 0 || data%s.memory.Block != 0 || s.unit != 0 && crypt%s.unit != 0 {
		return failure.New("mkeyio run", syscall.EFAULT, "offset %d: a stream begins at a block and a data unit of both domains", offset)
	}
	return nil
}

// cut chooses the length of a chunk. want is the approximate length, or 0 for
// the default.
func (s *shape) cut(want int64) {
	if want == 0 {
		want = chunkSize
	}
	units := s.wire
	if s.unitInMemory {
		units = s.memory
	}
	align := units.Boundary(geometry.LCM(s.in.Block, s.out.Block), s.unit)
	if s.serial = align > chunkLimit; s.serial {
		align = s.in.Block
		if s.unitInInput {
			align = s.in.Boundary(align, s.unit)
		}
	}
	s.chunk = max(want/align, 1) * align
}

// length returns the length of the output for n bytes of input, and the number of data
// bytes in it after the last complete block.
func (s *shape) length(n int64) (out, tail int64, err error) {
	if err := s.in.Truncated("mkeyio run", n); err != nil {
		return 0, 0, err
	}
	data := s.in.Data(n)
	if s.out.Signed() && data/s.out.Block > (math.MaxInt64-data)/s.out.Field {
		return 0, 0, failure.New("mkeyio run", syscall.EINVAL, "input of %d bytes: the output would be longer than %d bytes", n, int64(math.MaxInt64))
	}
	for _, d := range []domain{s.in, s.out} {
		if d.Signed() {
			tail = max(tail, data%d.Block)
		}
	}
	return s.out.Len(data), tail, nil
}

// blocks returns the number of blocks in n bytes of input that are checked or, if the input
// has no signature, signed.
func (s *shape) blocks(n int64) int64 {
	switch {
	case s.in.Signed():
		return n / s.in.Stride()
	case s.out.Signed():
		return s.in.Data(n) / s.out.Block
	}
	return 0
}
