package mkeyio

import (
	"fmt"
	"io"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/fullio"
	"github.com/softmkey/softmkey/sig"
)

// separate is a stream of blocks and fields that is kept in two places: the blocks follow one
// another in data, and the fields in fields. It implements io.ReaderAt and io.WriterAt.
type separate struct {
	stream       domain
	data, fields half
	rooms        sync.Pool // *[]byte: blocks, and after them their fields
}

// half is one of the two places. A job uses it in one direction, a View in both.
type half struct {
	io.ReaderAt
	io.WriterAt // nil: what is written goes nowhere
}

func newSeparate(f sig.Format, data, fields half) *separate {
	return &separate{stream: domain{Block: int64(f.Block()), Field: int64(f.FieldSize())}, data: data, fields: fields}
}

// FromSeparate returns a stream of blocks and fields in the format f whose blocks are in data and
// whose fields are in fields, as the separate metadata of NVMe. Both must be inputs at offsets. data must have
// whole blocks, and fields a field for each: other sizes are EINVAL.
func FromSeparate(f sig.Format, data, fields Input) (Input, error) {
	const op = "mkeyio run"
	if err := f.Validate(); err != nil {
		return Input{}, err
	}
	block, field := int64(f.Block()), int64(f.FieldSize())
	blocks := data.size / block
	switch {
	case field == 0:
		return Input{}, failure.New(op, syscall.EINVAL, "separate fields of %v: it has none", f)
	case data.at == nil || fields.at == nil:
		return Input{}, failure.New(op, syscall.EINVAL, "separate fields: the data and the fields must be inputs at offsets, of known sizes")
	case data.size%block != 0:
		return Input{}, failure.New(op, syscall.EINVAL, "%d bytes of data, and fields apart from it: must be whole blocks of %d bytes", data.size, block)
	case fields.size%field != 0 || fields.size/field != blocks:
		return Input{}, failure.New(op, syscall.EINVAL, "%d bytes of data, and %d bytes of fields: each block of %d bytes must have a field of %d bytes, which makes %d bytes of fields", data.size, fields.size, block, field, blocks*field)
	}
	s := newSeparate(f, half{ReaderAt: inputAt{&data}}, half{ReaderAt: inputAt{&fields}})
	return Input{at: s, size: data.size + fields.size}, nil
}

// ToSeparate returns an output that puts the blocks of a stream in the format f into data, and its fields into
// fields. Both must be outputs at offsets. [Run] refuses a stream that does not end with a whole block.
func ToSeparate(f sig.Format, data, fields Output) (Output, error) {
	return toSeparate(f, &data, fields)
}

// ToFields returns an output that keeps the fields of a stream and not its blocks, for a job whose input
// has the data already. The rules are those of [ToSeparate].
func ToFields(f sig.Format, fields Output) (Output, error) { return toSeparate(f, nil, fields) }

func toSeparate(f sig.Format, data *Output, fields Output) (Output, error) {
	const op = "mkeyio run"
	if err := f.Validate(); err != nil {
		return Output{}, err
	}
	switch {
	case f.FieldSize() == 0:
		return Output{}, failure.New(op, syscall.EINVAL, "separate fields of %v: it has none", f)
	case data != nil && data.at == nil || fields.at == nil:
		return Output{}, failure.New(op, syscall.EINVAL, "separate fields: the data and the fields must be outputs at offsets")
	}
	to := half{}
	if data != nil {
		to.WriterAt = outputAt{data}
	}
	s := newSeparate(f, to, half{WriterAt: outputAt{&fields}})
	return Output{at: s, halves: &halves{s.stream, data, &fields}}, nil
}

// SeparateStore returns the store of a [View] whose blocks are in data and whose fields are in fields. Its
// size, for [NewView], is that of the stream: [sig.Format.StreamLen] of the data. A write reaches data first,
// and then fields. If the program is killed in between, the blocks of that write have new data and old
// fields: a read reports them. It panics if f has no fields.
func SeparateStore(f sig.Format, data, fields Store) Store {
	if f.FieldSize() == 0 {
		panic(fmt.Sprintf("mkeyio: separate fields of %v", f))
	}
	return newSeparate(f, half{data, data}, half{fields, fields})
}

// inputAt and outputAt read and write the ends of a job as files.
type (
	inputAt  struct{ in *Input }
	outputAt struct{ out *Output }
)

// ReadAt implements io.ReaderAt.
func (r inputAt) ReadAt(p []byte, off int64) (int, error) {
	if err := r.in.readAt(p, off); err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteAt implements io.WriterAt.
func (w outputAt) WriteAt(p []byte, off int64) (int, error) {
	if err := w.out.writeAt(p, off); err != nil {
		return 0, err
	}
	return len(p), nil
}

// halves are the two outputs of a job with separate fields.
type halves struct {
	stream domain
	data   *Output // nil: none
	fields *Output
}

// resize gives both files the lengths that belong to a stream of n bytes.
func (h *halves) resize(n int64) error {
	blocks := n / h.stream.Stride()
	if h.data != nil {
		if err := h.data.resize(blocks * h.stream.Block); err != nil {
			return err
		}
	}
	return h.fields.resize(blocks * h.stream.Field)
}

// checkSeparate returns an error if the fields of an end are separate and it does not have the stream of the
// job's input or output.
func (s *shape) checkSeparate(dst Output, src Input) error {
	if in, ok := src.at.(*separate); ok && in.stream != s.in {
		return failure.New("mkeyio run", syscall.EINVAL, "an input with separate fields of %d bytes on blocks of %d: the job reads fields of %d bytes on blocks of %d", in.stream.Field, in.stream.Block, s.in.Field, s.in.Block)
	}
	if h := dst.halves; h != nil && h.stream != s.out {
		return failure.New("mkeyio run", syscall.EINVAL, "an output with separate fields of %d bytes on blocks of %d: the job writes fields of %d bytes on blocks of %d", h.stream.Field, h.stream.Block, s.out.Field, s.out.Block)
	}
	return nil
}

// checkEnd returns an error if a stream of n bytes ends with a part of a block, which cannot stand beside
// separate fields.
func (h *halves) checkEnd(n int64) error {
	if h == nil || n%h.stream.Stride() == 0 {
		return nil
	}
	return failure.New("mkeyio run", syscall.EINVAL, "%d bytes of data, and fields apart from it: must be whole blocks of %d bytes", h.stream.Data(n), h.stream.Block)
}

// step returns the number of blocks that are moved at a time.
func (s *separate) step() int64 { return max(pieceSize/s.stream.Stride(), 1) }

// room returns a buffer for n blocks and their fields, which the caller gives back to rooms.
func (s *separate) room(n int64) (room *[]byte, data, fields []byte) {
	room, _ = s.rooms.Get().(*[]byte)
	if size := n * s.stream.Stride(); room == nil || int64(cap(*room)) < size {
		b := make([]byte, size)
		room = &b
	}
	b := (*room)[:n*s.stream.Stride()]
	return room, b[:n*s.stream.Block], b[n*s.stream.Block:]
}

// ReadAt implements io.ReaderAt.
func (s *separate) ReadAt(p []byte, off int64) (n int, err error) {
	stride := s.stream.Stride()
	for n < len(p) {
		at, rest := off+int64(n), p[n:]
		first, skip := at/stride, at%stride
		blocks := min((skip+int64(len(rest))+stride-1)/stride, s.step())
		k := int(min(blocks*stride-skip, int64(len(rest))))
		if whole := int64(k) == blocks*stride; whole {
			err = s.readBlocks(rest[:k], first)
		} else {
			b := make([]byte, blocks*stride)
			err = s.readBlocks(b, first)
			copy(rest[:k], b[skip:])
		}
		if err != nil {
			return n, err
		}
		n += k
	}
	return n, nil
}

// readBlocks fills p with whole blocks and their fields.
func (s *separate) readBlocks(p []byte, first int64) error {
	block, field, stride := s.stream.Block, s.stream.Field, s.stream.Stride()
	n := int64(len(p)) / stride
	room, data, fields := s.room(n)
	defer s.rooms.Put(room)
	if _, err := fullio.ReadAt(s.data, data, first*block); err != nil {
		return err
	}
	if _, err := fullio.ReadAt(s.fields, fields, first*field); err != nil {
		return fmt.Errorf("fields: %w", err)
	}
	for i := range n {
		copy(p[i*stride:], data[i*block:][:block])
		copy(p[i*stride+block:], fields[i*field:][:field])
	}
	return nil
}

// WriteAt implements io.WriterAt.
func (s *separate) WriteAt(p []byte, off int64) (n int, err error) {
	block, field, stride := s.stream.Block, s.stream.Field, s.stream.Stride()
	for n < len(p) {
		number, in, rest := (off+int64(n))/stride, (off+int64(n))%stride, p[n:]
		whole := min(int64(len(rest))/stride, s.step())
		var k int64
		switch {
		case in == 0 && whole > 0:
			k = whole * stride
			err = s.writeBlocks(rest[:k], number)
		case in < block: // a part of a block or of a field
			k = min(int64(len(rest)), block-in)
			err = s.data.write(rest[:k], number*block+in)
		default:
			k = min(int64(len(rest)), stride-in)
			err = s.fields.write(rest[:k], number*field+in-block)
		}
		if err != nil {
			return n, err
		}
		n += int(k)
	}
	return n, nil
}

// writeBlocks writes whole blocks and their fields.
func (s *separate) writeBlocks(p []byte, first int64) error {
	block, field, stride := s.stream.Block, s.stream.Field, s.stream.Stride()
	n := int64(len(p)) / stride
	room, data, fields := s.room(n)
	defer s.rooms.Put(room)
	for i := range n {
		if s.data.WriterAt != nil {
			copy(data[i*block:], p[i*stride:][:block])
		}
		copy(fields[i*field:], p[i*stride+block:][:field])
	}
	if err := s.data.write(data, first*block); err != nil {
		return err
	}
	if err := s.fields.write(fields, first*field); err != nil {
		return fmt.Errorf("fields: %w", err)
	}
	return nil
}

func (h half) write(p []byte, off int64) error {
	if h.WriterAt == nil {
		return nil
	}
	return fullio.WriteAt(h.WriterAt, p, off)
}
