package sig_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"sync"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/sig"
)

// noErr ends the test if err is not nil.
func noErr(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newRand(t testing.TB, seed uint64) *rand.Rand {
	t.Helper()
	t.Logf("seed %#x", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func fill(r *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

// panics checks that a call panics.
func panics(t *testing.T, name string, call func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", name)
		}
	}()
	call()
}

// collector stores all errors, up to a limit.
type collector struct {
	bad   []sig.Error
	limit int
}

func (c *collector) add(e sig.Error) bool {
	c.bad = append(c.bad, e)
	return c.limit == 0 || len(c.bad) < c.limit
}

// memory is the memory of one side of a run, with a margin around it.
type memory struct {
	buf, sep []byte
	b        sig.Blocks
}

func randomMemory(r *rand.Rand, f sig.Format, size, n int) memory {
	field := f.FieldSize()
	stride := size + field + pick(r, 0, 0, r.IntN(50))
	off := r.IntN(70)
	m := memory{buf: make([]byte, off+n*stride+30)}
	fill(r, m.buf)
	m.b = sig.Blocks{Data: m.buf[off:], DataStride: stride}
	switch {
	case field == 0:
	case r.IntN(2) == 0:
		m.b.Fields, m.b.FieldStride = m.buf[off+size:], stride
	default:
		m.b.FieldStride = field + pick(r, 0, 8, r.IntN(60))
		m.sep = make([]byte, n*m.b.FieldStride+8)
		fill(r, m.sep)
		m.b.Fields = m.sep
	}
	return m
}

// clone returns a copy of m with the same layout.
func (m memory) clone() memory {
	c := memory{bytes.Clone(m.buf), bytes.Clone(m.sep), m.b}
	c.b.Data = c.buf[len(m.buf)-len(m.b.Data):]
	if m.sep != nil {
		c.b.Fields = c.sep
	} else if m.b.Fields != nil {
		c.b.Fields = c.buf[len(m.buf)-len(m.b.Fields):]
	}
	return c
}

// TestTransformOracle compares Transform.Run with the oracle: random formats on
// both sides, masks, layouts and block numbers, with fields that are right,
// nearly right, escaped or random.
func TestTransformOracle(t *testing.T) {
	r := newRand(t, 0x51)
	rounds := 6000
	if testing.Short() {
		rounds = 600
	}
	for range rounds {
		size := 8 * (1 + r.IntN(12))
		if r.IntN(10) == 0 {
			size = pick(r, sig.KeyBlockSizes()...)
		}
		c := sig.TransformConfig{
			In:        randomFormat(r, sig.Type(r.IntN(5)), size),
			Out:       randomFormat(r, sig.Type(r.IntN(5)), size),
			CheckMask: new(randomMask(r)),

			KeepEscapes: r.IntN(2) == 0,
		}
		if r.IntN(3) == 0 {
			c.Out = c.In
		}
		if c.In.Type == sig.NoSignature && c.Out.Type == sig.NoSignature {
			continue
		}
		if c.In.Type == c.Out.Type && r.IntN(2) == 0 {
			c.CopyMask = new(randomMask(r))
		}
		n := 1 + r.IntN(20)
		if r.IntN(50) == 0 {
			n = 120 + r.IntN(160) // longer than one batch
		}
		first := pick(r, 0, uint64(r.Uint32()), r.Uint64())
		checkTransform(t, r, c, n, first)
	}
}

func checkTransform(t *testing.T, r *rand.Rand, c sig.TransformConfig, n int, first uint64) {
	t.Helper()
	tr, err := sig.NewTransform(c)
	if err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	size := c.In.BlockSize
	src := randomMemory(r, c.In, size, n)
	damage(r, c.In, src.b, n, first)

	dst := randomMemory(r, c.Out, size, n)
	inPlace := r.IntN(3) == 0
	if inPlace {
		dst = src
		switch {
		case c.Out.FieldSize() == 0:
			dst.b.Fields = nil
		case c.Out.FieldSize() != c.In.FieldSize():
			dst.sep = make([]byte, 8*n)
			dst.b.Fields, dst.b.FieldStride = dst.sep, 8
		}
	}

	wantSrc := src.clone()
	wantDst := dst.clone()
	if inPlace {
		wantDst.b.Data = wantSrc.b.Data
		if c.Out.FieldSize() == c.In.FieldSize() {
			wantDst = wantSrc
		}
	}
	want := oracleRun(c, wantDst.b, wantSrc.b, n, first)

	got := collector{limit: pick(r, 0, 0, 1, 2)}
	noErr(t, tr.Run(dst.b, src.b, n, first, got.add))
	if got.limit > 0 && len(want) > got.limit {
		want = want[:got.limit]
	}
	if len(got.bad)+len(want) > 0 && !reflect.DeepEqual(got.bad, want) {
		t.Fatalf("%+v, %d blocks from %d: reported\n%+v, want\n%+v", c, n, first, got.bad, want)
	}
	same := bytes.Equal(src.buf, wantSrc.buf) && bytes.Equal(src.sep, wantSrc.sep)
	if !inPlace || dst.sep != nil {
		same = same && bytes.Equal(dst.sep, wantDst.sep)
	}
	if !inPlace {
		same = same && bytes.Equal(dst.buf, wantDst.buf)
	}
	if !same {
		t.Fatalf("%+v, %d blocks from %d, in place %v: memory differs", c, n, first, inPlace)
	}
}

// damage writes the fields of a source and changes some of them.
func damage(r *rand.Rand, f sig.Format, b sig.Blocks, n int, first uint64) {
	if f.Type == sig.NoSignature {
		return
	}
	often := pick(r, 0, 1, 3, 10)
	for i := range n {
		at := b.Fields[i*b.FieldStride:][:f.FieldSize()]
		copy(at, oracleField(f, b.Data[i*b.DataStride:][:f.BlockSize], first+uint64(i)).bytes(f.Type))
		if r.IntN(10) >= often {
			continue
		}
		switch r.IntN(5) {
		case 0:
			fill(r, at)
		case 1:
			b.Data[i*b.DataStride+r.IntN(f.BlockSize)] ^= 1 << r.IntN(8)
		case 2:
			at[r.IntN(len(at))] ^= 1 << r.IntN(8)
		case 3: // sometimes escaped
			fill(r, at)
			for j := 2; j < len(at); j++ {
				at[j] = 0xFF
			}
			if r.IntN(2) == 0 {
				at[len(at)-1] = 0xFE
			}
		case 4:
			at[r.IntN(len(at))] = 0xFF
		}
	}
}

func TestTransformRefused(t *testing.T) {
	dif := sig.Format{Type: sig.T10DIF}
	for _, test := range []struct {
		name string
		c    sig.TransformConfig
	}{
		{"no signature", sig.TransformConfig{}},
		{"bad input", sig.TransformConfig{In: sig.Format{Type: sig.CRC32, BlockSize: 7}}},
		{"bad output", sig.TransformConfig{Out: sig.Format{Type: sig.CRC32, Seed: 3}}},
		{"block sizes", sig.TransformConfig{In: dif, Out: sig.Format{Type: sig.T10DIF, BlockSize: 4096}}},
		{"copy mask, one side", sig.TransformConfig{In: dif, CopyMask: new(sig.Mask)}},
		{"copy mask, types", sig.TransformConfig{In: dif, Out: sig.Format{Type: sig.CRC64}, CopyMask: new(sig.Mask)}},
	} {
		tr, err := sig.NewTransform(test.c)
		var op *operr.Error
		if tr != nil || !errors.Is(err, syscall.EINVAL) || !errors.As(err, &op) {
			t.Errorf("%s: %v, %v; want EINVAL", test.name, tr, err)
		}
	}
}

// A side without a signature uses the block size of the other side and ignores its own.
func TestTransformNoneSide(t *testing.T) {
	tr, err := sig.NewTransform(sig.TransformConfig{
		In:  sig.Format{BlockSize: 4096},
		Out: sig.Format{Type: sig.CRC32C, BlockSize: 520},
	})
	if err != nil {
		t.Fatal(err)
	}
	if tr.BlockSize() != 520 || tr.In().Stride() != 520 || tr.Out().Stride() != 524 {
		t.Errorf("block size %d, strides %d and %d", tr.BlockSize(), tr.In().Stride(), tr.Out().Stride())
	}
}

func TestRunPanics(t *testing.T) {
	f := sig.Format{Type: sig.T10DIF}
	tr := must(sig.NewTransform(sig.TransformConfig{Out: f}))
	buf := make([]byte, 4*520)
	good := sig.Interleaved(f, buf)
	for _, test := range []struct {
		name     string
		dst, src sig.Blocks
		n        int
	}{
		{"too many", good, good, 5},
		{"far too many", good, good, int(^uint(0) >> 1)},
		{"short stride", sig.Blocks{Data: buf, DataStride: 8, Fields: buf, FieldStride: 8}, good, 2},
		{"huge stride", sig.Blocks{Data: buf, DataStride: int(^uint(0)>>1) - 1, Fields: buf, FieldStride: 8}, good, 4},
		{"no fields", sig.Blocks{Data: buf, DataStride: 520}, good, 1},
		{"in place, strides", good, sig.Blocks{Data: buf, DataStride: 512}, 2},
	} {
		panics(t, test.name, func() { tr.Run(test.dst, test.src, test.n, 0, nil) })
	}
	tr.Run(sig.Blocks{}, sig.Blocks{}, 0, 0, nil) // empty run
}

// TestAllocations checks that the operations which a stream repeats do not
// allocate.
func TestAllocations(t *testing.T) {
	for _, f := range []sig.Format{
		{Type: sig.T10DIF}, {Type: sig.T10DIF, Guard: sig.GuardCSUM}, {Type: sig.CRC32}, {Type: sig.CRC32C}, {Type: sig.CRC64},
		{Type: sig.CRC64, BlockSize: 16384},
	} {
		data := make([]byte, 64<<10)
		stream := make([]byte, f.StreamLen(int64(len(data))))
		to := sig.Format{Type: sig.CRC32C, BlockSize: 4096}
		other := make([]byte, to.StreamLen(int64(len(data))))
		each := func(sig.Error) bool { return true }
		tr := must(sig.NewTransform(sig.TransformConfig{In: f, Out: f}))
		n := len(stream) / f.Stride()
		dst := make([]byte, len(stream))
		for _, op := range []struct {
			name string
			run  func()
		}{
			{"Protect", func() { f.Protect(stream, data) }},
			{"Generate", func() { f.Generate(stream) }},
			{"Verify", func() { f.Verify(stream) }},
			{"VerifyEach", func() { f.VerifyEach(stream, each) }},
			{"Strip", func() { f.Strip(data, stream) }},
			{"Convert", func() { f.Convert(to, other, stream) }},
			{"Run", func() { tr.Run(sig.Interleaved(f, dst), sig.Interleaved(f, stream), n, 7, each) }},
		} {
			if got := testing.AllocsPerRun(20, op.run); got != 0 {
				t.Errorf("%v: %s allocates %v times", f, op.name, got)
			}
		}
	}
}

// TestConcurrency shares a transform among goroutines, for the race detector.
func TestConcurrency(t *testing.T) {
	f := sig.Format{Type: sig.T10DIF}
	tr := must(sig.NewTransform(sig.TransformConfig{In: f}))
	stream := make([]byte, 200*f.Stride())
	noErr(t, f.Generate(stream))
	b := sig.Interleaved(f, stream)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			data := make([]byte, 200*512)
			if err := tr.Run(sig.Separate(sig.Format{}, data, nil), b, 200, 0, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// A mask or the flags may leave nothing of a field to check.
func TestChecks(t *testing.T) {
	for _, tt := range []struct {
		format string
		mask   sig.Mask
		want   bool
	}{
		{"t10dif", sig.MaskAll, true}, {"t10dif", sig.MaskRef, true}, {"t10dif,type3", sig.MaskRef, false}, {"t10dif,type3", sig.MaskGuard, true},
		{"t10dif,no-app-check", sig.MaskApp, false}, {"t10dif,no-guard-check", sig.MaskGuard, false}, {"crc32", sig.MaskGuard, true}, {"crc32", 0x0F, false},
		{"crc32c", 0x0F, false}, {"crc64", 0x01, true}, {"nvme64", sig.MaskAll, true},
	} {
		f, err := sig.ParseFormat(tt.format)
		if err != nil {
			t.Errorf("%s: %v", tt.format, err)
			continue
		}
		x, err := sig.NewTransform(sig.TransformConfig{In: f, CheckMask: &tt.mask})
		if err != nil {
			t.Errorf("%s, %#x: %v", tt.format, tt.mask, err)
		} else if got := x.Checks(); got != tt.want {
			t.Errorf("%s, mask %#x: checks %v, want %v", tt.format, tt.mask, got, tt.want)
		}
	}
}
