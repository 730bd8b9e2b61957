package sig

import (
	"math"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/geometry"
)

// StreamLen returns the length of the stream of blocks and fields that holds data
// bytes of data. A last block that is not complete has no field. A length that an
// int64 cannot hold is returned as math.MaxInt64.
func (f Format) StreamLen(data int64) int64 {
	if s := f.stream(); s.Field == 0 || data/s.Block <= (math.MaxInt64-data)/s.Field {
		return s.Len(data)
	}
	return math.MaxInt64
}

// DataLen returns the bytes of data in a stream of the given length. Bytes of a
// field that is cut off by the stream's end do not count.
func (f Format) DataLen(stream int64) int64 {
	return f.stream().Data(stream)
}

func (f Format) stream() geometry.Stream[int64] {
	return geometry.Stream[int64]{Block: int64(f.Block()), Field: int64(f.FieldSize())}
}

// Generate computes the field of every block of buf, a stream of blocks and fields, and
// writes it after the block. An incomplete last block gets none; a whole one needs the room for its field.
func (f Format) Generate(buf []byte) error {
	const op = "sig generate"
	p, err := f.prepare(op, false)
	if err != nil {
		return err
	}
	return p.stream(op, buf, &outcome{})
}

// signed refuses a Format of Type NoSignature, which is the zero value. If a program
// forgot to set the Format, its stream would otherwise pass as correct without
// a check.
func (f Format) signed(op string) error {
	if f.Type == NoSignature {
		return failure.New(op, syscall.EINVAL, "the format is %v: there is no signature to generate or to check", f.Type)
	}
	return nil
}

// Protect copies src, plain data, to dst and adds a field after every block. It
// returns the number of bytes written, StreamLen of the length of src; dst must
// have room for them. An incomplete last block is copied without a field. dst
// and src must not overlap: Protect panics if they do.
func (f Format) Protect(dst, src []byte) (int, error) {
	return Format{BlockSize: f.BlockSize}.convert("sig protect", f, dst, src)
}

// Verify checks the field of every block of buf, a stream of blocks and fields. It
// returns the first bad block as an *Error. A last block that is not complete has
// no field and is not checked. A stream that lacks the field of its last block, or a part of
// it, was truncated, which is an *operr.Error that is also io.ErrUnexpectedEOF.
func (f Format) Verify(buf []byte) error { return f.VerifyEach(buf, nil) }

// VerifyEach is Verify for every bad block: it calls each for them, in rising order, until it
// returns false. Its error is an *operr.Error, after which nothing was checked.
func (f Format) VerifyEach(buf []byte, each func(Error) bool) error {
	const op = "sig verify"
	o := outcome{keep: each == nil, each: each}
	p, err := f.prepare(op, true)
	if err == nil {
		err = p.stream(op, buf, &o)
	}
	if err != nil {
		return err
	}
	return o.err()
}

// Strip checks the stream src as Verify does and copies only its data to dst.
// It returns the number of bytes written, DataLen of the length of src; dst
// must have room for them. All data is copied even if a block is bad; the error
// is then an *Error with the first bad block. dst and src must not overlap: Strip panics
// if they do.
func (f Format) Strip(dst, src []byte) (int, error) {
	return f.convert("sig strip", Format{BlockSize: f.BlockSize}, dst, src)
}

// cut returns the number of complete blocks in a stream of n bytes, and the number of
// data bytes after them.
func (f Format) cut(op string, n int) (blocks, tail int, err error) {
	if err := f.Validate(); err != nil {
		return 0, 0, err
	}
	if err := f.stream().Truncated(op, int64(n)); err != nil {
		return 0, 0, err
	}
	return n / f.Stride(), n % f.Stride(), nil
}
