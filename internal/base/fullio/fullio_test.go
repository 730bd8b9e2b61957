package fullio_test

import (
	"errors"
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
