package sig

import (
	"cmp"
	"io"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/fullio"
)

// ioStep is the approximate number of bytes of data that a Reader or Writer
// processes at a time.
const ioStep = 32 << 10

// ioBlocks returns how many blocks of f are processed at a time.
func ioBlocks(f Format) int { return max(1, ioStep/f.Block()) }

// newPass returns the transform of a stream in one direction. f must have a signature.
func newPass(op string, f Format, c TransformConfig) (*Transform, error) {
	if err := f.signed(op); err != nil {
		return nil, err
	}
	return NewTransform(c)
}

// Reader reads the data of a stream of blocks and fields, and checks the fields.
type Reader struct {
	src    io.Reader
	strip  *Transform
	in     []byte // buffer for some blocks with their fields
	room   []byte // buffer for the data of those blocks
	data   []byte // the part of room that was not returned yet
	number uint64 // number of the next block
	err    error  // returned after data
}

// NewReader returns a Reader of the stream src in the format f. It returns EINVAL if f is not
// valid or has no signature.
func NewReader(src io.Reader, f Format) (*Reader, error) {
	t, err := newPass("sig read", f, TransformConfig{In: f})
	if err != nil {
		return nil, err
	}
	n := ioBlocks(f)
	return &Reader{src: src, strip: t, in: make([]byte, n*f.Stride()), room: make([]byte, n*f.Block())}, nil
}

// Read implements [io.Reader]. The data before a bad block is returned, and
// then the block's *Error. The bad block and the rest of the stream are not
// returned. The rules for the end of the stream are those of [Format.Strip]: an
// incomplete last block is not checked, and a stream without the whole field of its last
// block is an *operr.Error. Errors of the source are returned unchanged.
func (r *Reader) Read(p []byte) (int, error) {
	if r.src == nil {
		return 0, failure.Zero("sig read", "NewReader")
	}
	if len(p) == 0 {
		return 0, nil
	}
	for len(r.data) == 0 && r.err == nil {
		r.fill()
	}
	if len(r.data) == 0 {
		return 0, r.err
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	return n, nil
}

// WriteTo implements [io.WriterTo]: it writes the data of the rest of the stream to w, without a copy. It returns the errors
// that Read returns, but io.EOF, and those of w.
func (r *Reader) WriteTo(w io.Writer) (n int64, err error) {
	if r.src == nil {
		return 0, failure.Zero("sig read", "NewReader")
	}
	for {
		if len(r.data) > 0 {
			m, err := w.Write(r.data)
			n, r.data = n+int64(m), r.data[m:]
			if err == nil && len(r.data) > 0 {
				err = io.ErrShortWrite
			}
			if err != nil {
				return n, err
			}
		}
		if r.err == io.EOF {
			return n, nil
		} else if r.err != nil {
			return n, r.err
		}
		r.fill()
	}
}

// fill reads and checks the next blocks.
func (r *Reader) fill() {
	n, err := fullio.Read(r.src, r.in)
	r.data, r.err = stripBlocks(r.strip, r.room, r.in[:n], r.number, err == io.EOF)
	r.number += uint64(n / r.strip.in.Stride())
	if r.err == nil {
		r.err = err
	}
}

// stripBlocks copies the data of src, blocks from number first on, to dst. It
// returns the data before the first bad block, with that block's error. At the
// end of the stream, the data of an incomplete block is copied, and a part of a
// field is an error.
func stripBlocks(t *Transform, dst, src []byte, first uint64, end bool) ([]byte, error) {
	f := t.in
	n, tail := len(src)/f.Stride(), len(src)%f.Stride()
	if err := t.Run(Interleaved(t.out, dst), Interleaved(f, src), n, first, nil); err != nil {
		return dst[:int(err.(*Error).Block-first)*f.Block()], err
	}
	data := dst[:n*f.Block()]
	if !end || tail == 0 {
		return data, nil
	}
	if err := f.stream().Truncated("sig read", int64(first)*int64(f.Stride())+int64(len(src))); err != nil {
		return data, err
	}
	return append(data, src[n*f.Stride():]...), nil
}

// Writer writes data as a stream of blocks and fields.
type Writer struct {
	dst     io.Writer
	protect *Transform
	data    []byte // data of blocks that are not complete
	out     []byte
	number  uint64 // number of the next block
	err     error
}

// NewWriter returns a Writer that writes a stream in the format f to dst. It returns EINVAL if
// f is not valid or has no signature. Close must be called: it writes the stream's end.
//
// Nothing protects the data behind the last whole block: it is written without a field, and readers do not check it.
// To protect all data, write zeros behind it up to the end of a block, and store the length of the data elsewhere.
func NewWriter(dst io.Writer, f Format) (*Writer, error) {
	t, err := newPass("sig write", f, TransformConfig{Out: f})
	if err != nil {
		return nil, err
	}
	n := ioBlocks(f)
	return &Writer{dst: dst, protect: t, data: make([]byte, 0, n*f.Block()), out: make([]byte, n*f.Stride())}, nil
}

// Write implements [io.Writer]. Data is written to the destination when some blocks are
// complete. Once an error was returned, every later call returns the same error.
func (w *Writer) Write(p []byte) (n int, err error) {
	if w.dst == nil {
		return 0, failure.Zero("sig write", "NewWriter")
	}
	for len(p) > 0 && w.err == nil {
		m := min(len(p), cap(w.data)-len(w.data))
		w.data = append(w.data, p[:m]...)
		p, n = p[m:], n+m
		if len(w.data) == cap(w.data) {
			w.flush()
		}
	}
	return n, w.err
}

// ReadFrom implements [io.ReaderFrom]: it writes what it reads from r until io.EOF, without a copy of the data. Close is still
// to be called.
func (w *Writer) ReadFrom(r io.Reader) (n int64, err error) {
	if w.dst == nil {
		return 0, failure.Zero("sig write", "NewWriter")
	}
	for w.err == nil {
		m, err := fullio.Read(r, w.data[len(w.data):cap(w.data)])
		n, w.data = n+int64(m), w.data[:len(w.data)+m]
		if len(w.data) == cap(w.data) {
			w.flush()
		}
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return n, cmp.Or(w.err, err)
		}
	}
	return n, w.err
}

// flush writes the complete blocks of w.data, and the data after them, if there is any.
func (w *Writer) flush() {
	f := w.protect.out
	n := len(w.data) / f.Block()
	w.protect.Run(Interleaved(f, w.out), Interleaved(w.protect.in, w.data), n, w.number, nil)
	out := append(w.out[:n*f.Stride()], w.data[n*f.Block():]...)
	w.data, w.number = w.data[:0], w.number+uint64(n)
	w.err = fullio.Write(w.dst, out)
}

// errWriterClosed is the error of Write after Close.
var errWriterClosed error = failure.New("sig write", syscall.EBADF, "the writer was closed")

// Close writes the rest of the data. An incomplete last block has no field, and nobody can
// check it. Close does not close the destination. It returns the error of an earlier call; a
// second Close does nothing.
func (w *Writer) Close() error {
	if w.dst == nil {
		return failure.Zero("sig write", "NewWriter")
	}
	if w.err == errWriterClosed {
		return nil
	}
	if w.err == nil && len(w.data) > 0 {
		w.flush()
	}
	err := w.err
	w.err = errWriterClosed
	return err
}
