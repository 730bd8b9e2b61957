package mkeyio

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/fullio"
)

// Input is the source of a stream: see [From], [FromAt] and [FromFile]. The
// zero value is not a source, and [Run] refuses it.
type Input struct {
	seq  io.Reader
	at   io.ReaderAt
	base int64 // offset in at of the stream's first byte
	size int64 // length of the stream in at

	sparse *os.File // at, if it is a file with holes

	// Padded; 0: the stream is not padded.
	block int64
	data  int64 // bytes before the padding: of an input at offsets its length, of others what was read
}

// From returns r as an input. It is read in order, to its end.
func From(r io.Reader) Input { return Input{seq: r} }

// FromAt returns the first size bytes of r as an input. Several goroutines read it.
func FromAt(r io.ReaderAt, size int64) Input { return Input{at: r, size: size} }

// FromFile returns a file as an input, from its current offset to its end. Regular files
// and block devices are read at offsets by several goroutines, other files in order.
func FromFile(f *os.File) (Input, error) {
	info, err := f.Stat()
	if err != nil {
		return Input{}, err
	}
	device := info.Mode()&(os.ModeDevice|os.ModeCharDevice) == os.ModeDevice
	if !device && (!info.Mode().IsRegular() || info.Size() == 0) {
		return From(f), nil // files of /proc have no size, and some of them no end to seek
	}
	base, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return Input{}, err
	}
	end, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = f.Seek(base, io.SeekStart)
	}
	switch {
	case err != nil:
		return Input{}, err
	case end <= base:
		// The file is at its end, or it is a kernel file such as those of
		// /proc, which report no size.
		return From(f), nil
	}
	in := Input{at: f, base: base, size: end - base}
	if hasHoles(info) {
		in.sparse = f
	}
	return in, nil
}

// Padded returns the input followed by bytes of 0 up to a multiple of block bytes, so that its
// last block is whole. It panics if block is not positive.
func (in Input) Padded(block int) Input {
	if block <= 0 {
		panic(fmt.Sprintf("mkeyio: padding to blocks of %d bytes", block))
	}
	in.block = int64(block)
	if in.at != nil {
		in.data = in.size
		in.size += in.missing()
	}
	return in
}

// missing returns the number of bytes of padding after the data.
func (in *Input) missing() int64 { return (in.block - in.data%in.block) % in.block }

// check refuses the zero value, and an input of a nil reader or file.
func (in *Input) check() error {
	switch {
	case in.seq == nil && in.at == nil:
		return failure.New("mkeyio run", syscall.EINVAL, "no input: From, FromAt and FromFile make one")
	case in.size < in.data:
		return failure.New("mkeyio run", syscall.EINVAL, "input of %d bytes, padded to blocks of %d: would be longer than %d bytes", in.data, in.block, int64(math.MaxInt64))
	case in.size < 0:
		return failure.New("mkeyio run", syscall.EINVAL, "input of %d bytes: must not be negative", in.size)
	}
	return nil
}

// Size returns the length of the stream in bytes, if it is known.
func (in *Input) Size() (n int64, known bool) { return in.size, in.at != nil }

// readAt fills p with the stream's bytes from off.
func (in *Input) readAt(p []byte, off int64) error {
	if in.block != 0 && off+int64(len(p)) > in.data {
		n := max(in.data-off, 0)
		clear(p[n:])
		p = p[:n]
	}
	off += in.base
	if in.sparse != nil && isHole(in.sparse, off, int64(len(p))) {
		clear(p)
		return nil
	}
	n, err := fullio.ReadAt(in.at, p, off)
	if err == io.ErrUnexpectedEOF { // not the error of an input within this one
		return fmt.Errorf("the input ends at byte %d: it became shorter while it was read: %w", off+int64(n), io.ErrUnexpectedEOF)
	}
	return err
}

// readNext fills p with the next bytes and returns their number, which is below len(p) at
// the end of the stream.
func (in *Input) readNext(p []byte) (int, error) {
	n, err := fullio.Read(in.seq, p)
	if err == io.EOF { // an error that wraps it is one of the source
		err = nil
	}
	if in.block != 0 {
		in.data += int64(n)
		if err == nil && n < len(p) { // the end, in a chunk of whole blocks
			pad := min(int(in.missing()), len(p)-n)
			clear(p[n:][:pad])
			n, in.data = n+pad, in.data+int64(pad)
		}
	}
	return n, err
}

// Output is the destination of a stream: see [To], [ToAt], [ToFile] and
// [CheckOnly]. The zero value is not a destination, and [Run] refuses it.
type Output struct {
	seq       io.Writer
	at        io.WriterAt
	file      *os.File // at, if ToFile made the output from a file
	halves    *halves  // the outputs behind at, if the fields are separate
	checkOnly bool
}

// CheckOnly returns the output of a job that only checks its input.
func CheckOnly() Output { return Output{checkOnly: true} }

// To returns w as an output. It is written in order.
func To(w io.Writer) Output { return Output{seq: w} }

// ToAt returns w as an output. Several goroutines write it, each byte once and
// in any order.
func ToAt(w io.WriterAt) Output { return Output{at: w} }

// ToFile returns a file as an output. [Run] replaces the content of a regular file:
// the file becomes as long as the stream, and gets holes for long runs of zeros.
// Everything else is written in order: a pipe, a device, and a file in append mode,
// which keeps its content. ToFile itself does not change the file.
func ToFile(f *os.File) (Output, error) {
	info, err := f.Stat()
	if err != nil {
		return Output{}, err
	}
	if !info.Mode().IsRegular() || appends(f) {
		return To(f), nil
	}
	return Output{at: f, file: f}, nil
}

// check refuses the zero value, and an output of a nil writer or file.
func (out *Output) check() error {
	if out.seq == nil && out.at == nil && !out.checkOnly {
		return failure.New("mkeyio run", syscall.EINVAL, "no output: To, ToAt and ToFile make one, and CheckOnly is the output of a job that only checks")
	}
	return nil
}

// resize gives a file its length. A longer file gets a hole at its end.
func (out *Output) resize(n int64) error {
	if out.halves != nil {
		return out.halves.resize(n)
	}
	if out.file == nil {
		return nil
	}
	return out.file.Truncate(n)
}

// holeSize is the length and alignment of the runs of zeros that become holes. It
// is larger than any block of a file system, and large enough that holes do not fragment a
// file.
const holeSize = 64 << 10

var zeros [holeSize]byte

// writeAt writes p at off, except for runs of zeros that become holes in a file.
func (out *Output) writeAt(p []byte, off int64) error {
	if out.file == nil {
		return fullio.WriteAt(out.at, p, off)
	}
	for len(p) > 0 {
		run, zero := span(p, off)
		if !zero {
			if err := fullio.WriteAt(out.at, p[:run], off); err != nil {
				return err
			}
		}
		p, off = p[run:], off+int64(run)
	}
	return nil
}

// span returns the length of the longest prefix of p that is written, or that becomes a
// hole, and which of the two it is.
func span(p []byte, off int64) (n int, zero bool) {
	for n < len(p) {
		piece := int(min(holeSize-(off+int64(n))%holeSize, int64(len(p)-n)))
		z := bytes.Equal(p[n:n+piece], zeros[:piece])
		if n > 0 && z != zero {
			break
		}
		n, zero = n+piece, z
	}
	return n, zero
}
