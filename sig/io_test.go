package sig_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/softmkey/softmkey/sig"
)

// TestReaderWriter compares Writer and Reader with Protect and Strip,
// for streams with every kind of end and pieces of every size, with and without
// a damaged byte.
func TestReaderWriter(t *testing.T) {
	r := newRand(t, 0x61)
	for range 400 {
		f := randomFormat(r, sig.Type(1+r.IntN(4)), pick(r, 8, 40, 512, 520, 4096, 65536))
		f.Flags &^= sig.AppEscape | sig.AppRefEscape // a damaged tag must not hide a block
		data := make([]byte, r.IntN(pick(r, 3*f.BlockSize, 100_000)))
		fill(r, data)
		want := make([]byte, f.StreamLen(int64(len(data))))
		must(f.Protect(want, data))
		var stream bytes.Buffer
		w := must(sig.NewWriter(&stream, f))
		for left := data; len(left) > 0; {
			n := min(len(left), 1+r.IntN(pick(r, 10, 1000, 100_000)))
			if m, err := w.Write(left[:n]); m != n || err != nil {
				t.Fatal(m, err)
			}
			left = left[n:]
		}
		noErr(t, errors.Join(w.Close(), w.Close()))
		if !bytes.Equal(stream.Bytes(), want) {
			t.Fatalf("%v: the stream of %d bytes differs", f, len(data))
		}
		if _, err := w.Write([]byte{1}); !errors.Is(err, syscall.EBADF) {
			t.Errorf("a write after Close: %v", err)
		}
		if len(want) > 0 && r.IntN(3) == 0 {
			want[r.IntN(len(want))] ^= 1 << r.IntN(8)
		}
		stripped := make([]byte, len(data))
		_, bad := f.Strip(stripped, want)
		good := stripped
		var first *sig.Error
		if errors.As(bad, &first) {
			good = stripped[:int(first.Block)*f.BlockSize]
		}
		read := must(sig.NewReader(iotest.HalfReader(bytes.NewReader(want)), f))
		got, err := io.ReadAll(read)
		if !bytes.Equal(got, good) || fmt.Sprint(err) != fmt.Sprint(bad) {
			t.Fatalf("%v: %d bytes are read, want %d; %v, want %v", f, len(got), len(good), err, bad)
		}
	}
}

// TestReaderContract runs the standard library's tests of readers.
func TestReaderContract(t *testing.T) {
	f := sig.Format{Type: sig.T10DIF}
	data := make([]byte, 70_000)
	fill(newRand(t, 0x62), data)
	stream := make([]byte, f.StreamLen(int64(len(data))))
	must(f.Protect(stream, data))
	r := must(sig.NewReader(iotest.OneByteReader(bytes.NewReader(stream)), f))
	if err := iotest.TestReader(r, data); err != nil {
		t.Error(err)
	}
}

// shortWriter takes some bytes, and then fails.
type shortWriter struct{ left int }

func (w *shortWriter) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.left -= n
	if n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

// TestReaderWriterErrors checks formats and streams that are refused, and errors of the other
// end.
func TestReaderWriterErrors(t *testing.T) {
	f := sig.Format{Type: sig.CRC32}
	for _, bad := range []sig.Format{{}, {BlockSize: 520}, {Type: sig.CRC32, BlockSize: 4}, {Type: 9}} {
		for _, err := range []error{
			second(sig.NewReader(bytes.NewReader(nil), bad)), second(sig.NewWriter(io.Discard, bad)),
		} {
			if !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%+v: %v", bad, err)
			}
		}
	}
	stream := make([]byte, 3*516)
	noErr(t, f.Generate(stream))
	read := func(src io.Reader) (int, error) {
		r := must(sig.NewReader(src, f))
		b, err := io.ReadAll(r)
		if _, again := r.Read(make([]byte, 1)); err != nil && again != err {
			t.Errorf("%v, and then %v", err, again)
		}
		return len(b), err
	}
	if n, err := read(bytes.NewReader(stream[:2*516+514])); n != 1024 || !errors.Is(err, syscall.EINVAL) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("truncated in a field: %d, %v", n, err)
	}
	if n, err := read(bytes.NewReader(stream[:2*516+512])); n != 1024 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("without the last field: %d, %v", n, err)
	}
	if n, err := read(io.MultiReader(bytes.NewReader(stream[:600]), iotest.ErrReader(syscall.EIO))); n != 512 || err != syscall.EIO {
		t.Errorf("a source that fails: %d, %v", n, err)
	}
	w := must(sig.NewWriter(&shortWriter{left: 40_000}, f))
	n, err := io.Copy(w, io.LimitReader(bytes.NewReader(make([]byte, 1<<20)), 1<<20))
	if !errors.Is(err, syscall.ENOSPC) || n > 100_000 {
		t.Errorf("a destination that fails: %d, %v", n, err)
	}
	if err := w.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Close after an error: %v", err)
	}
	w = must(sig.NewWriter(&shortWriter{}, f))
	w.Write([]byte("the end"))
	if err := w.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Close that cannot write: %v", err)
	}
}

// stuck returns no byte and no error.
type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

// tooMany returns a count that is larger than its buffer.
type tooMany struct{}

func (tooMany) Read(p []byte) (int, error) { return len(p) + 1, nil }

// TestReaderOfBrokenSources reads from sources that break the contract of io.Reader, and from one
// that reports that it was truncated, as a decompressor does.
func TestReaderOfBrokenSources(t *testing.T) {
	f := sig.Format{Type: sig.CRC32C}
	data := make([]byte, 516)
	noErr(t, f.Generate(data))
	for name, tc := range map[string]struct {
		r    io.Reader
		want error
	}{
		"no progress": {stuck{}, io.ErrNoProgress},
		"too many":    {tooMany{}, nil},
		"truncated":   {io.MultiReader(bytes.NewReader(data), iotest.ErrReader(io.ErrUnexpectedEOF)), io.ErrUnexpectedEOF},
	} {
		r := must(sig.NewReader(tc.r, f))
		if _, err := io.ReadAll(r); err == nil || tc.want != nil && !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

// TestCopy copies through Writer.ReadFrom and Reader.WriteTo, after calls of Write and Read, from sources that give single
// bytes, too.
func TestCopy(t *testing.T) {
	f := sig.Format{Type: sig.CRC32C, BlockSize: 520}
	for _, n := range []int{0, 1, 519, 520, 33_280, 100_000} {
		data := make([]byte, n)
		fill(newRand(t, uint64(n)), data)
		for _, narrow := range []bool{false, true} {
			source := func(b []byte) io.Reader {
				if narrow {
					return iotest.OneByteReader(bytes.NewReader(b))
				}
				return struct{ io.Reader }{bytes.NewReader(b)}
			}
			var stream, back bytes.Buffer
			w := must(sig.NewWriter(&stream, f))
			head := data[:min(n, 700)]
			must(w.Write(head))
			if m, err := w.ReadFrom(source(data[len(head):])); m != int64(n-len(head)) || err != nil {
				t.Errorf("%d bytes: %d, %v", n, m, err)
			}
			noErr(t, w.Close())
			want := make([]byte, f.StreamLen(int64(n)))
			must(f.Protect(want, data))
			if !bytes.Equal(stream.Bytes(), want) {
				t.Errorf("%d bytes: another stream", n)
			}
			r := must(sig.NewReader(source(want), f))
			first := make([]byte, min(n, 3))
			must(io.ReadFull(r, first))
			if m, err := r.WriteTo(&back); m != int64(n-len(first)) || err != nil || !bytes.Equal(append(first, back.Bytes()...), data) {
				t.Errorf("%d bytes back: %d, %v", n, m, err)
			}
		}
	}
	stream := make([]byte, f.StreamLen(1040))
	noErr(t, f.Generate(stream))
	stream[530] ^= 1
	var bad *sig.Error
	if n, err := must(sig.NewReader(bytes.NewReader(stream), f)).WriteTo(io.Discard); n != 520 || !errors.As(err, &bad) {
		t.Errorf("a bad block: %d, %v", n, err)
	}
	w := must(sig.NewWriter(io.Discard, f))
	if n, err := w.ReadFrom(io.MultiReader(bytes.NewReader(make([]byte, 9)), iotest.ErrReader(syscall.EIO))); n != 9 || err != syscall.EIO {
		t.Errorf("a source that fails: %d, %v", n, err)
	}
}
