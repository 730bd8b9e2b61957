package mkeyio

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/sig"
)

// blocksOf returns the number of bytes that a file occupies on disk.
func blocksOf(f *os.File) int64 {
	return must(f.Stat()).Sys().(*syscall.Stat_t).Blocks * 512
}

// TestHoles checks and strips a stream that consists almost entirely of a hole. With a
// constant reference tag of 0, the field of a block of zeros is zero.
func TestHoles(t *testing.T) {
	const blocks, island = 1 << 19, 345678
	f := sig.Format{Type: sig.T10DIF, Flags: sig.Type3}
	in := create(t, "in")
	noErr(t, in.Truncate(blocks*520))
	stream := make([]byte, 3*520)
	copy(stream[600:], "an island")
	noErr(t, f.Generate(stream))
	must(in.WriteAt(stream, island*520))

	src := must(FromFile(in))
	if src.sparse == nil {
		t.Errorf("%s takes %d bytes and is not known to have holes", in.Name(), blocksOf(in))
	}
	report, err := Run(t.Context(), Strip(f), CheckOnly(), src)
	if err != nil || report.Blocks != blocks {
		t.Errorf("check: %v, %+v", err, report)
	}

	out := create(t, "out")
	dst := must(ToFile(out))
	must(Run(t.Context(), Strip(f), dst, src))
	if n := blocksOf(out); n > 4*holeSize {
		t.Errorf("%d bytes of zeros take %d on disk", blocks*512, n)
	}
	if info, err := out.Stat(); err != nil || info.Size() != blocks*512 {
		t.Errorf("the output has %d bytes, want %d (%v)", info.Size(), blocks*512, err)
	}
	got := make([]byte, 512)
	if _, err := out.ReadAt(got, (island+1)*512); err != nil || !bytes.Equal(got, stream[520:1032]) {
		t.Errorf("the island is lost: %v", err)
	}

	// Set one bit in the middle of the hole.
	must(in.WriteAt([]byte{1}, 520*500_000))
	var bad *mkey.BadBlock
	if _, err := Run(t.Context(), Strip(f), CheckOnly(), src); !errors.As(err, &bad) || bad.Sig.Block != 500_000 {
		t.Errorf("a flipped bit in block 500000: %v", err)
	}
}

// TestTruncatedHole truncates a file that ends with a hole. The missing part
// must not count as a hole.
func TestTruncatedHole(t *testing.T) {
	in := create(t, "in")
	noErr(t, in.Truncate(10<<20))
	src := must(FromFile(in))
	noErr(t, in.Truncate(5<<20))
	if _, err := Run(t.Context(), StreamJob{}, To(io.Discard), src); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v, want %v", err, io.ErrUnexpectedEOF)
	}
}
