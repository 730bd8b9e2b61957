package fullio_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/softmkey/softmkey/internal/base/fullio"
)

// fixed returns the same count and error from every method.
type fixed struct {
	n   int
	err error
}

func (f fixed) Read([]byte) (int, error)           { return f.n, f.err }
func (f fixed) Write([]byte) (int, error)          { return f.n, f.err }
func (f fixed) ReadAt([]byte, int64) (int, error)  { return f.n, f.err }
func (f fixed) WriteAt([]byte, int64) (int, error) { return f.n, f.err }

func TestBrokenContracts(t *testing.T) {
	boom := errors.New("boom")
	p := make([]byte, 8)
	wrong := errors.New("any error")
	for _, tc := range []struct {
		f                            fixed
		read, readAt, write, writeAt error
	}{
		{fixed{8, nil}, nil, nil, nil, nil},
		{fixed{8, io.EOF}, nil, nil, io.EOF, io.EOF},
		{fixed{0, nil}, io.ErrNoProgress, io.ErrUnexpectedEOF, io.ErrShortWrite, io.ErrShortWrite},
		{fixed{4, nil}, nil, io.ErrUnexpectedEOF, io.ErrShortWrite, io.ErrShortWrite},
		{fixed{4, boom}, boom, boom, boom, boom},
		{fixed{4, io.EOF}, io.EOF, io.ErrUnexpectedEOF, io.EOF, io.EOF},
		{fixed{0, io.EOF}, io.EOF, io.ErrUnexpectedEOF, io.EOF, io.EOF},
		{fixed{9, nil}, wrong, wrong, wrong, wrong},
		{fixed{-1, nil}, wrong, wrong, wrong, wrong},
	} {
		check := func(method string, got, want error) {
			t.Helper()
			if want == wrong && (got == nil || !strings.HasPrefix(got.Error(), method+" returned")) || want != wrong && !errors.Is(got, want) || want == nil && got != nil {
				t.Errorf("%+v: %s: %v, want %v", tc.f, method, got, want)
			}
		}
		_, err := fullio.Read(tc.f, p)
		check("Read", err, tc.read)
		_, err = fullio.ReadAt(tc.f, p, 0)
		check("ReadAt", err, tc.readAt)
		check("Write", fullio.Write(tc.f, p), tc.write)
		check("WriteAt", fullio.WriteAt(tc.f, p, 0), tc.writeAt)
	}
	if n, err := fullio.Read(iotest.OneByteReader(strings.NewReader("12345678")), p); n != 8 || err != nil {
		t.Error(n, err)
	}
}

// An error that comes with the last bytes is returned, and one that wraps io.EOF is no end.
func TestReadErrors(t *testing.T) {
	broken := errors.New("disk error")
	for name, err := range map[string]error{"another error": broken, "a wrapped EOF": fmt.Errorf("link lost: %w", io.EOF)} {
		once := true
		r := readerFunc(func(p []byte) (int, error) {
			if once {
				once = false
				return len(p), err
			}
			return 0, io.EOF
		})
		if n, got := fullio.Read(r, make([]byte, 8)); n != 8 || got != err {
			t.Errorf("%s with the last bytes: %d, %v", name, n, got)
		}
		at := readerAtFunc(func([]byte, int64) (int, error) { return 3, err })
		if n, got := fullio.ReadAt(at, make([]byte, 8), 0); n != 3 || got != err {
			t.Errorf("%s of ReadAt: %d, %v", name, n, got)
		}
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

type readerAtFunc func(p []byte, off int64) (int, error)

func (f readerAtFunc) ReadAt(p []byte, off int64) (int, error) { return f(p, off) }
