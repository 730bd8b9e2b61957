package sig_test

import (
	"sync"
	"testing"

	"github.com/softmkey/softmkey/sig"
)

// TestPrepared mixes formats in calls with one block, on several goroutines. Each call must have the result of its own
// format, whatever was prepared before: fields equal those of a Transform that was made for the format.
func TestPrepared(t *testing.T) {
	var formats []sig.Format
	for kind := sig.T10DIF; kind <= sig.NVMe64; kind++ {
		for _, size := range []int{0, 512, 520, 4096} {
			f := sig.Format{Type: kind, BlockSize: size}
			formats = append(formats, f)
			if _, ref := f.TagBits(); ref == 0 {
				continue
			}
			for _, ref := range []uint64{1, 0xFFFE, 0xFFFF} {
				f.RefTag = ref
				formats = append(formats, f, f.From(3))
				g := f
				g.AppTag, g.Flags = 7, sig.Plain
				formats = append(formats, g)
			}
		}
	}
	var running sync.WaitGroup
	for g := range 4 {
		running.Go(func() {
			for i := range 2000 {
				f := formats[(i*7+g*13)%len(formats)]
				buf, want := make([]byte, 3*f.Stride()), make([]byte, 3*f.Stride())
				for k := range buf {
					buf[k] = byte(k*i + g)
				}
				copy(want, buf)
				fresh, err := sig.NewTransform(sig.TransformConfig{Out: f})
				if err != nil {
					t.Error(err)
					return
				}
				b := sig.Interleaved(f, want)
				fresh.Run(b, b, 3, 0, nil)
				if err := f.Generate(buf); err != nil || string(buf) != string(want) {
					t.Errorf("%v: another field, %v", f, err)
				}
				if err := f.Verify(buf); err != nil {
					t.Errorf("%v: %v", f, err)
				}
				if _, ref := f.TagBits(); ref > 0 {
					other := f
					other.RefTag ^= 2
					if err := other.Verify(buf); err == nil {
						t.Errorf("%v: the stream of %v is good", other, f)
					}
				}
			}
		})
	}
	running.Wait()
	// A format that is not valid is refused, also if another with its name was prepared.
	for _, f := range []sig.Format{{Type: sig.CRC32, RefTag: 1}, {Type: sig.T10DIF, RefTag: 1 << 32}, {Type: sig.T10DIF, BlockSize: 511}} {
		if f.Generate(make([]byte, 520)) == nil || f.Verify(make([]byte, 520)) == nil {
			t.Errorf("%+v was accepted", f)
		}
	}
}

// TestCallAllocates measures calls with one block of a format that was used before.
func TestCallAllocates(t *testing.T) {
	f := sig.Format{Type: sig.T10DIF}
	buf := make([]byte, f.Stride())
	block := uint64(0)
	if n := testing.AllocsPerRun(100, func() {
		block++
		g := f.From(block)
		if g.Generate(buf) != nil || g.Verify(buf) != nil {
			t.Error("failed")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
