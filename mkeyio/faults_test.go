package mkeyio

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/softmkey/softmkey/internal/mkeytest"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// TestFaults makes the reader or the writer fail.
func TestFaults(t *testing.T) {
	boom := errors.New("boom")
	data := make([]byte, 1<<20)
	j := Protect(sig.Format{Type: sig.CRC64})
	j.chunk = 10_000
	for name, ends := range map[string]struct {
		dst Output
		src Input
	}{
		"read":     {To(io.Discard), From(io.MultiReader(bytes.NewReader(data), iotest.ErrReader(boom)))},
		"read at":  {To(io.Discard), FromAt(failAt{boom}, 1<<20)},
		"write":    {To(failAt{boom}), From(bytes.NewReader(data))},
		"write at": {ToAt(failAt{boom}), FromAt(bytes.NewReader(data), 1<<20)},
	} {
		if _, err := Run(t.Context(), j, ends.dst, ends.src); !errors.Is(err, boom) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := Run(t.Context(), j, To(io.Discard), FromAt(bytes.NewReader(data), 2<<20))
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an input that became shorter: %v", err)
	}
}

// failAt fails after half a megabyte.
type failAt struct{ err error }

func (f failAt) ReadAt(p []byte, off int64) (int, error)  { return f.at(p, off) }
func (f failAt) WriteAt(p []byte, off int64) (int, error) { return f.at(p, off) }
func (f failAt) Write([]byte) (int, error)                { return 0, f.err }

func (f failAt) at(p []byte, off int64) (int, error) {
	if off > 1<<19 {
		return 0, f.err
	}
	return len(p), nil
}

// TestCancel cancels the context while the reader or the writer blocks, and while neither
// does.
func TestCancel(t *testing.T) {
	j := Protect(sig.Format{Type: sig.T10DIF})
	stop := errors.New("stop")
	t.Run("read", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		r, w := io.Pipe()
		defer w.Close()
		go func() {
			w.Write(make([]byte, 1000))
			cancel(stop)
		}()
		if _, err := Run(ctx, j, To(io.Discard), From(r)); !errors.Is(err, stop) {
			t.Error(err)
		}
	})
	t.Run("write", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		r, w := io.Pipe()
		defer r.Close()
		go func() {
			r.Read(make([]byte, 1))
			cancel(stop)
		}()
		if _, err := Run(ctx, j, To(w), From(bytes.NewReader(make([]byte, 1<<22)))); !errors.Is(err, stop) {
			t.Error(err)
		}
	})
	t.Run("at", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		j := j
		j.Progress = func(int64) { cancel(stop) }
		if _, err := Run(ctx, j, ToAt(new(atBuffer)), FromAt(endless{}, 1<<40)); !errors.Is(err, stop) {
			t.Error(err)
		}
	})
}

// TestGoroutines ends jobs in every way. A remaining goroutine would end the test with a
// deadlock.
func TestGoroutines(t *testing.T) {
	data := make([]byte, 1<<18)
	boom := errors.New("boom")
	for name, ends := range map[string]struct {
		dst Output
		src Input
	}{
		"whole stream": {To(io.Discard), From(bytes.NewReader(data))},
		"bad block":    {ToAt(new(atBuffer)), FromAt(bytes.NewReader(data), int64(len(data)))},
		"refused":      {To(io.Discard), FromAt(bytes.NewReader(data), 520*7+519)},
		"read fault":   {To(io.Discard), From(io.MultiReader(bytes.NewReader(data), iotest.ErrReader(boom)))},
		"write fault":  {To(failAt{boom}), From(bytes.NewReader(data))},
		"canceled":     {To(io.Discard), FromAt(endless{}, 520<<30)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := Strip(sig.Format{Type: sig.T10DIF, Flags: sig.Type3})
				if j.chunk = 5000; name == "bad block" {
					j.Signature.Wire.AppTag = 1
				}
				ctx := t.Context()
				if name == "canceled" {
					canceled, cancel := context.WithCancel(ctx)
					ctx, j.Progress = canceled, func(int64) { cancel() }
				}
				if _, err := Run(ctx, j, ends.dst, ends.src); err == nil && name != "whole stream" {
					t.Error("no error")
				} else if name == "whole stream" && err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// endless is a reader of zeros without end.
type endless struct{}

func (endless) ReadAt(p []byte, _ int64) (int, error) { return len(p), nil }

// broken breaks the contracts of io: the counts of its methods are too small, or too large.
type broken struct{ read, write int }

func (b broken) Read(p []byte) (int, error)             { return b.read, nil }
func (b broken) Write(p []byte) (int, error)            { return b.write, nil }
func (b broken) ReadAt(p []byte, _ int64) (int, error)  { return len(p), nil }
func (b broken) WriteAt(p []byte, _ int64) (int, error) { return b.write, nil }

// TestBrokenContracts checks that a count which is too small is an error of each output and input,
// and one that is too large no panic.
func TestBrokenContracts(t *testing.T) {
	f := sig.Format{Type: sig.T10DIF}
	data := make([]byte, 5120)
	plain := FromAt(bytes.NewReader(data), int64(len(data)))
	c := must(xts.New(append(make([]byte, 16), bytes.Repeat([]byte{1}, 16)...)))
	for _, n := range []int{0, 100, 1 << 20} {
		for name, out := range map[string]Output{"To": To(broken{write: n}), "ToAt": ToAt(broken{write: n})} {
			if report, err := Run(t.Context(), Protect(f), out, plain); err == nil || n == 100 && !errors.Is(err, io.ErrShortWrite) {
				t.Errorf("%s, count %d: %v, %+v", name, n, err, report)
			}
		}
		v := must(NewView(Protect(f), broken{write: n}, 520))
		if m, err := v.WriteAt(make([]byte, 512), 0); err == nil {
			t.Errorf("View, count %d: %d, %v", n, m, err)
		}
		e := Encryption{DEK: mkeytest.DEK{Cipher: c}, Unit: 512}
		for name, out := range map[string]Output{"To": To(broken{write: n}), "ToAt": ToAt(broken{write: n})} {
			if report, err := e.Encrypt(t.Context(), out, FromAt(bytes.NewReader(data), 100)); n != 100 && err == nil {
				t.Errorf("Encrypt, %s, count %d: %v, %+v", name, n, err, report)
			}
		}
	}
	if _, err := Run(t.Context(), Protect(f), To(io.Discard), From(broken{read: 1 << 30})); err == nil {
		t.Error("a Reader's count that is too large: no error")
	}
	if _, err := Run(t.Context(), Protect(f), To(io.Discard), From(broken{})); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a Reader that returns (0, nil): %v", err)
	}
	truncated := iotest.ErrReader(io.ErrUnexpectedEOF) // as a decompressor reports it
	if _, err := Run(t.Context(), Protect(f), To(io.Discard), From(io.MultiReader(bytes.NewReader(data), truncated))); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a truncated source: %v", err)
	}
}

func TestOutputTooLong(t *testing.T) {
	_, err := Run(t.Context(), Protect(sig.Format{Type: sig.T10DIF}), To(io.Discard), FromAt(endless{}, math.MaxInt64))
	if !errors.Is(err, syscall.EINVAL) {
		t.Errorf("%v, want EINVAL", err)
	}
	if v, err := NewView(Strip(sig.Format{Type: sig.T10DIF}), broken{}, math.MaxInt64); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("%v, %v, want EINVAL", v, err)
	}
}

// TestStopsAtBadBlock ends jobs at a bad block. The report then has that block and those before it, and no others:
// with every worker, direction and kind of job.
func TestStopsAtBadBlock(t *testing.T) {
	const bad = 5000
	in, out := sig.Format{Type: sig.T10DIF}, sig.Format{Type: sig.CRC64, BlockSize: 4096}
	stream := make([]byte, in.StreamLen(8192*512))
	if err := in.Generate(stream); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{3, bad + 1} { // exempt blocks before and after
		copy(stream[n*in.Stride()+in.Block()+2:], "\xff\xff") // the application tag
	}
	stream[bad*in.Stride()] ^= 1
	for name, job := range map[string]StreamJob{"strip": Strip(in), "convert": Convert(in, out), "direct": Convert(in, sig.Format{Type: sig.T10DIF, RefTag: 1})} {
		for _, dst := range []Output{CheckOnly(), To(io.Discard)} {
			for _, src := range []Input{From(bytes.NewReader(stream)), FromAt(bytes.NewReader(stream), int64(len(stream)))} {
				r, err := Run(t.Context(), job, dst, src)
				var b *mkey.BadBlock
				if !errors.As(err, &b) || b.Sig.Block != bad || r.Errors != 1 || r.Blocks != bad+1 || r.BytesIn != (bad+1)*int64(in.Stride()) || r.Escaped != 1 {
					t.Errorf("%s: %v: %+v", name, err, r)
				}
			}
		}
	}
}
