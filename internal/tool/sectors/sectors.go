// Package sectors reads and writes sectors that have bytes beside their data which nobody checks: those of drives with
// 520, 522, 524 or 528 bytes for 512 of data, for example. The bytes are left out when sectors are read, and are zeros when
// they are written.
package sectors

import (
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/bytesize"
	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/fullio"
)

// Format describes a sector.
type Format struct {
	Block int  // bytes of data
	Extra int  // bytes beside them
	First bool // the extra bytes come before the data
}

// Bounds of a Format. Blocks are a multiple of 8 bytes, as those of signatures.
const (
	maxBlock = 8 << 20
	maxExtra = 64 << 10
)

// Parse reads what follows "none:" on the command line: BLOCK+EXTRA, and ",meta-first" if the extra bytes come
// before the data.
func Parse(s string) (Format, error) {
	size, options, more := strings.Cut(s, ",")
	block, extra, _ := strings.Cut(size, "+")
	b, ok := bytesize.Parse(block)
	if !ok || b == 0 || b%8 != 0 || b > maxBlock {
		return Format{}, fmt.Errorf("block size %q: must be a multiple of 8 bytes, at most %d", block, maxBlock)
	}
	e, ok := bytesize.Parse(extra)
	if !ok || e == 0 || e > maxExtra {
		return Format{}, fmt.Errorf("%q bytes beside the block: must be 1 to %d", extra, maxExtra)
	}
	if more && options != "meta-first" {
		return Format{}, fmt.Errorf("no option %q; the only option is meta-first", options)
	}
	return Format{Block: int(b), Extra: int(e), First: more}, nil
}

// String returns the format as the command line has it.
func (f Format) String() string {
	s := fmt.Sprintf("none:%d+%d", f.Block, f.Extra)
	if f.First {
		s += ",meta-first"
	}
	return s
}

// Size returns the bytes of a sector.
func (f Format) Size() int { return f.Block + f.Extra }

// at returns where the data begins in a sector.
func (f Format) at() int {
	if f.First {
		return f.Extra
	}
	return 0
}

// Len returns the bytes of the sectors that hold n bytes of data, which must be whole blocks.
func (f Format) Len(n int64) (int64, error) {
	if n%int64(f.Block) != 0 {
		return 0, failure.New("sectors", syscall.EINVAL, "%d bytes of data: must be whole blocks of %d bytes, for sectors of %d bytes", n, f.Block, f.Size())
	}
	return n / int64(f.Block) * int64(f.Size()), nil
}

// DataLen returns the bytes of data in n bytes, which must be whole sectors.
func (f Format) DataLen(n int64) (int64, error) {
	if n%int64(f.Size()) != 0 {
		return 0, f.partial(n)
	}
	return n / int64(f.Size()) * int64(f.Block), nil
}

func (f Format) partial(n int64) error {
	return failure.New("sectors", syscall.EINVAL, "%d bytes: must be whole sectors of %d bytes, which are %d of data and %d beside it", n, f.Size(), f.Block, f.Extra)
}

// step is about how many bytes are read or written at a time.
const step = 256 << 10

// room returns a buffer for some sectors, at most n.
func (f Format) room(n int) []byte { return make([]byte, min(n, max(step/f.Size(), 1))*f.Size()) }

// gather copies the data of sectors to dst, from byte skip of the first one on, until dst is full or the sectors
// end. It returns the number of bytes.
func (f Format) gather(dst, sectors []byte, skip int) (n int) {
	for ; n < len(dst) && len(sectors) > 0; sectors, skip = sectors[f.Size():], 0 {
		n += copy(dst[n:], sectors[f.at():][skip:f.Block])
	}
	return n
}

// ReaderAt returns a reader of the data in sectors.
func (f Format) ReaderAt(r io.ReaderAt) io.ReaderAt { return readerAt{f, r} }

type readerAt struct {
	f Format
	r io.ReaderAt
}

// ReadAt implements io.ReaderAt.
func (r readerAt) ReadAt(p []byte, off int64) (n int, err error) {
	block, size := int64(r.f.Block), int64(r.f.Size())
	buf := r.f.room(len(p)/r.f.Block + 2)
	for n < len(p) {
		first, skip := (off+int64(n))/block, (off+int64(n))%block
		want := min((skip+int64(len(p)-n)+block-1)/block*size, int64(len(buf)))
		if _, err := fullio.ReadAt(r.r, buf[:want], first*size); err != nil {
			return n, err
		}
		n += r.f.gather(p[n:], buf[:want], int(skip))
	}
	return n, nil
}

// Reader returns a reader of the data in sectors. A stream that ends within a sector is an *operr.Error.
func (f Format) Reader(r io.Reader) io.Reader { return &reader{f: f, r: r, buf: f.room(step)} }

type reader struct {
	f    Format
	r    io.Reader
	buf  []byte
	left []byte // sectors in buf that are not returned yet
	skip int    // bytes of the first of them that were returned
	n    int64  // bytes that were read
	err  error
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	for len(r.left) == 0 && len(p) > 0 {
		if r.err != nil {
			return 0, r.err
		}
		n, err := fullio.Read(r.r, r.buf)
		r.n += int64(n)
		whole := n / r.f.Size() * r.f.Size()
		if r.left, r.err = r.buf[:whole], err; err == io.EOF && whole < n {
			r.err = r.f.partial(r.n)
		}
	}
	n := r.f.gather(p, r.left, r.skip)
	done := r.skip + n
	r.left, r.skip = r.left[done/r.f.Block*r.f.Size():], done%r.f.Block
	return n, nil
}

// Writer writes data as sectors.
type Writer struct {
	f   Format
	w   io.Writer
	buf []byte
	in  int   // bytes of data in the last sector of buf, if it is not complete
	n   int64 // bytes of data so far
}

// NewWriter returns a Writer of sectors to w.
func (f Format) NewWriter(w io.Writer) *Writer { return &Writer{f: f, w: w} }

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (n int, err error) {
	zeros := make([]byte, w.f.Extra)
	for n < len(p) {
		if w.in == 0 && w.f.First {
			w.buf = append(w.buf, zeros...)
		}
		k := min(w.f.Block-w.in, len(p)-n)
		w.buf = append(w.buf, p[n:n+k]...)
		n, w.n, w.in = n+k, w.n+int64(k), (w.in+k)%w.f.Block
		if w.in != 0 {
			return n, nil
		}
		if !w.f.First {
			w.buf = append(w.buf, zeros...)
		}
		if len(w.buf) >= step {
			if err := w.flush(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

func (w *Writer) flush() error {
	err := fullio.Write(w.w, w.buf)
	w.buf = w.buf[:0]
	return err
}

// Close writes the last sectors. It does not close the writer below, and refuses data that ends within a block.
func (w *Writer) Close() error {
	if _, err := w.f.Len(w.n); err != nil {
		return err
	}
	return w.flush()
}
