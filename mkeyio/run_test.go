package mkeyio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/softmkey/softmkey/internal/base/geometry"
	"github.com/softmkey/softmkey/internal/mkeytest"
	"github.com/softmkey/softmkey/mkey"
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

// TestOracle compares random jobs, in small chunks and between random kinds of input and
// output, with the oracle for whole streams.
func TestOracle(t *testing.T) {
	count := 400
	switch {
	case os.Getenv("SOFTMKEY_LONG") != "":
		count = 10_000
	case testing.Short():
		count = 60
	}
	serial, refused := 0, 0
	for seed := range uint64(count) {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := newCase(rand.New(rand.NewPCG(seed, 3)))
			if c.shape.serial {
				serial++
			}
			if !c.compare(t) {
				refused++
			}
		})
		if !ok {
			break
		}
	}
	t.Logf("%d jobs: %d as one transfer, %d refused for their length", count, serial, refused)
}

// testCase is a random job with its input and the expected output.
type testCase struct {
	r      *rand.Rand
	job    StreamJob
	shape  shape
	oracle mkeytest.Oracle
	input  []byte
	want   []byte
	bad    []sig.Error
	sound  bool // AES-XTS can process the length
}

func newCase(r *rand.Rand) *testCase {
	c := &testCase{r: r}
	if r.IntN(6) > 0 {
		c.oracle.Signature = mkeytest.RandomSignature(r)
	}
	if r.IntN(2) > 0 {
		c.oracle.Crypto, c.oracle.Cipher = mkeytest.RandomCrypto(r, c.oracle.Signature)
	}
	c.job = StreamJob{
		Direction: Direction(r.IntN(2)),
		Signature: c.oracle.Signature,
		Crypto:    c.oracle.Crypto,
		KeepGoing: r.IntN(3) > 0,
		Workers:   r.IntN(5),
		chunk:     1 + r.Int64N(20_000),
		keyless:   r.IntN(3) == 0,
	}
	var err error
	if c.shape, err = newShape(&c.job); err != nil {
		panic(err)
	}

	c.job.keyless = c.job.keyless && !c.shape.serial

	// The opposite direction produces correct input from data; a few blocks of it are
	// then damaged.
	data := make([]byte, r.IntN(60_000))
	if r.IntN(3) == 0 {
		data = data[:len(data)/4160*4160]
	}
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	signIn := mkeytest.Oracle{}
	if s := c.job.Signature; s != nil {
		if f := map[Direction]*sig.Format{TX: s.Memory, RX: s.Wire}[c.job.Direction]; f != nil {
			signIn.Signature = &mkey.Signature{Wire: f}
		}
	}
	for {
		c.input, _, _ = signIn.TX(data)
		if c.spoil(); c.run() || len(data) == 0 || r.IntN(30) == 0 {
			return c
		}
		data = data[:len(data)-1] // AES-XTS cannot process that length
	}
}

// spoil encrypts the input if the job requires it, and flips bits in it.
func (c *testCase) spoil() {
	if c.shape.unitInInput {
		crypt := mkeytest.Oracle{Crypto: c.job.Crypto, Cipher: c.oracle.Cipher}
		opposite := crypt.RX
		if c.job.Direction == RX {
			opposite = crypt.TX
		}
		if sound, _, ok := opposite(c.input); ok {
			c.input = sound
		}
	}
	mkeytest.Flip(c.r, c.input, []int{0, 0, 1, 3, 40}[c.r.IntN(5)])
}

// run executes the job with the oracle.
func (c *testCase) run() bool {
	if c.job.Direction == TX {
		c.want, c.bad, c.sound = c.oracle.TX(c.input)
	} else {
		c.want, c.bad, c.sound = c.oracle.RX(c.input)
	}
	return c.sound
}

func (c *testCase) compare(t *testing.T) bool {
	var bad []mkey.BadBlock
	c.job.Bad = func(b *mkey.BadBlock) { bad = append(bad, *b) }
	var progress int64
	c.job.Progress = func(n int64) {
		if n < progress {
			t.Errorf("progress goes back from %d to %d", progress, n)
		}
		progress = n
	}
	in, inKind := c.source(t)
	out, outKind, result := c.sink(t)
	report, err := Run(t.Context(), c.job, out, in)
	what := fmt.Sprintf("%v from %s to %s, %d bytes, chunks of %d, %d workers, keep going %t\nsignature %+v\ncrypto %+v",
		c.job.Direction, inKind, outKind, len(c.input), c.shape.chunk, c.job.Workers, c.job.KeepGoing, c.job.Signature, c.job.Crypto)
	if !c.sound {
		// If the length is not known in advance, a bad block may be reported
		// first.
		_, known := in.Size()
		if found := report.First != nil && !known && !c.job.KeepGoing; !found && !errors.Is(err, syscall.EMSGSIZE) {
			t.Errorf("a length that AES-XTS cannot do: %v\n%s", err, what)
		}
		return false
	}
	want := c.bad
	if !c.job.KeepGoing {
		want = want[:min(len(want), 1)]
	}
	checkErrors(t, c.job.Direction, bad, want, report, err, what)
	if len(want) > 0 && !c.job.KeepGoing {
		return true
	}
	if got := result(); !bytes.Equal(got, c.want) {
		t.Errorf("output of %d bytes differs from %d wanted\n%s", len(got), len(c.want), what)
	}
	if report.BytesIn != int64(len(c.input)) || report.BytesOut != int64(len(c.want)) || progress != report.BytesIn {
		t.Errorf("report %+v, progress %d\n%s", report, progress, what)
	}
	return true
}

func checkErrors(t *testing.T, d Direction, got []mkey.BadBlock, want []sig.Error, report JobReport, err error, what string) {
	t.Helper()
	domain := mkey.MemoryDomain
	if d == RX {
		domain = mkey.WireDomain
	}
	equal := slices.EqualFunc(got, want, func(g mkey.BadBlock, w sig.Error) bool { return g.Sig == w && g.Domain == domain })
	if !equal || report.Errors != int64(len(want)) {
		t.Errorf("told of %d bad blocks %v, report %d, want %v\n%s", len(got), got, report.Errors, want, what)
		return
	}
	var bad *mkey.BadBlock
	switch {
	case len(want) == 0:
		if err != nil || report.First != nil {
			t.Errorf("%v, first bad block %v\n%s", err, report.First, what)
		}
	case !errors.As(err, &bad) || *bad != got[0] || *report.First != got[0]:
		t.Errorf("error %v, first in the report %v, want %v\n%s", err, report.First, got[0], what)
	}
}

// source returns the input as a random kind of reader.
func (c *testCase) source(t *testing.T) (Input, string) {
	switch c.r.IntN(4) {
	case 0:
		return From(bytes.NewReader(c.input)), "reader"
	case 1:
		return From(iotest.HalfReader(bytes.NewReader(c.input))), "slow reader"
	case 2:
		return FromAt(bytes.NewReader(c.input), int64(len(c.input))), "reader at"
	}
	name := filepath.Join(t.TempDir(), "in")
	skip := c.r.IntN(100)
	noErr(t, os.WriteFile(name, append(make([]byte, skip), c.input...), 0o600))
	f := must(os.Open(name))
	t.Cleanup(func() { f.Close() })
	must(f.Seek(int64(skip), io.SeekStart))
	return must(FromFile(f)), "file"
}

// create makes a file that is closed at the end of the test.
func create(t *testing.T, name string) *os.File {
	t.Helper()
	f := must(os.Create(filepath.Join(t.TempDir(), name)))
	t.Cleanup(func() { f.Close() })
	return f
}

// sink returns an output of a random kind and a function that returns the bytes written
// to it.
func (c *testCase) sink(t *testing.T) (Output, string, func() []byte) {
	switch c.r.IntN(3) {
	case 0:
		var b bytes.Buffer
		return To(&b), "writer", b.Bytes
	case 1:
		var b atBuffer
		return ToAt(&b), "writer at", func() []byte { return b.bytes }
	}
	f := create(t, "out")
	f.WriteString("what stood there before") // the job must replace this content
	return must(ToFile(f)), "file", func() []byte {
		b, err := os.ReadFile(f.Name())
		if err != nil {
			t.Error(err)
		}
		return b
	}
}

// atBuffer is an io.WriterAt in memory.
type atBuffer struct {
	mu    sync.Mutex
	bytes []byte
}

func (b *atBuffer) WriteAt(p []byte, off int64) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := int(off) + len(p) - len(b.bytes); n > 0 {
		b.bytes = append(b.bytes, make([]byte, n)...)
	}
	return copy(b.bytes[off:], p), nil
}

// TestOffset runs the second part of a stream as a separate job.
func TestOffset(t *testing.T) {
	for seed := range uint64(100) {
		c := newCase(rand.New(rand.NewPCG(seed, 4)))
		if !c.sound || c.shape.serial {
			continue
		}
		if c.r.IntN(3) == 0 {
			c.job.chunk = 1
			c.shape, _ = newShape(&c.job)
		}
		data := c.shape.in.Data(int64(len(c.input))) / c.shape.chunk / 2 * c.shape.chunk
		c.job.Offset = uint64(c.shape.wire.Len(data))
		c.job.KeepGoing = true
		skip := c.shape.in.Len(data)
		if c.job.Crypto != nil && skip%16 != int64(0) {
			continue // AES-XTS may refuse the length of the part alone
		}
		c.input = c.input[skip:]
		c.want = c.want[c.shape.out.Len(data):]
		first := uint64(skip)
		c.bad = slices.DeleteFunc(c.bad, func(e sig.Error) bool { return e.Offset < first })
		t.Run(fmt.Sprint(seed), func(t *testing.T) { c.compare(t) })
	}
}

func TestOffsetRefused(t *testing.T) {
	f := sig.Format{Type: sig.T10DIF}
	for _, offset := range []uint64{1, 512, 519, 521, 1 << 57} {
		j := Protect(f)
		j.Offset = offset
		_, err := Run(t.Context(), j, To(io.Discard), From(bytes.NewReader(nil)))
		if !errors.Is(err, syscall.EFAULT) {
			t.Errorf("offset %d: %v", offset, err)
		}
	}
	j := Convert(f, sig.Format{Type: sig.CRC32C, BlockSize: 4096})
	j.Offset = 4100 / 2
	if _, err := Run(t.Context(), j, To(io.Discard), From(bytes.NewReader(nil))); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("a block of one domain only: %v", err)
	}
}

// TestOneTransfer compares a long stream, in chunks of the usual size, with one
// transfer of one key.
func TestOneTransfer(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 5))
	const length = 5 << 20
	for i := range 6 {
		c := &testCase{r: r, job: StreamJob{Direction: TX, KeepGoing: true}}
		c.job.Signature = mkeytest.RandomSignature(r)
		if i%2 == 0 {
			c.job.Crypto, _ = mkeytest.RandomCrypto(r, c.job.Signature)
		}
		var err error
		c.shape = must(newShape(&c.job))
		c.input = make([]byte, c.shape.memory.Len(length/c.shape.chunk*c.shape.chunk))
		for i := range c.input {
			c.input[i] = byte(i * i >> 8)
		}
		k := must(newKey(&c.job, mkey.Bytes(c.input)))
		n, _, _ := c.shape.length(int64(len(c.input)))
		c.want = make([]byte, n)
		tx := must(k.NewReader(0, int64(n)))
		must(tx.ReadAt(c.want, 0))
		in, _ := c.source(t)
		out, _, result := c.sink(t)
		report, err := Run(t.Context(), c.job, out, in)
		if bad := (*mkey.BadBlock)(nil); err != nil && !errors.As(err, &bad) {
			t.Fatal(err)
		}
		if report.Errors != int64(tx.Bad()) || !bytes.Equal(result(), c.want) {
			t.Errorf("%+v, %d bad blocks: chunks of %d (serial: %t) and one transfer differ", report, tx.Bad(), c.shape.chunk, c.shape.serial)
		}
		tx.Close()
	}
}

// TestCheckOnly compares a job that only checks with one that also writes.
func TestCheckOnly(t *testing.T) {
	for seed := range uint64(150) {
		c := newCase(rand.New(rand.NewPCG(seed, 6)))
		if !c.sound || !c.shape.in.Signed() {
			continue
		}
		var bad []mkey.BadBlock
		c.job.Bad = func(b *mkey.BadBlock) { bad = append(bad, *b) }
		in, _ := c.source(t)
		report, err := Run(t.Context(), c.job, CheckOnly(), in)
		want := c.bad
		if !c.job.KeepGoing {
			want = want[:min(len(want), 1)]
		}
		checkErrors(t, c.job.Direction, bad, want, report, err, fmt.Sprintf("seed %d", seed))
		if report.BytesOut != 0 {
			t.Errorf("seed %d: %d bytes of output", seed, report.BytesOut)
		}
	}
}

// TestDirect compares jobs with block sizes that keys do not support with package sig.
func TestDirect(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 7))
	for range 60 {
		from, to := *mkeytest.RandomFormat(r), *mkeytest.RandomFormat(r)
		from.BlockSize, to.BlockSize = 8<<r.IntN(12), 8*(1+r.IntN(200))
		if r.IntN(4) == 0 {
			to.BlockSize = from.BlockSize
		}
		if geometry.LCM(int64(from.BlockSize), int64(to.BlockSize)) > chunkLimit {
			continue
		}
		data := make([]byte, r.IntN(200_000))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		stream := make([]byte, from.StreamLen(int64(len(data))))
		must(from.Protect(stream, data))
		c := &testCase{r: r, input: stream}
		c.job = Convert(from, to)
		c.job.KeepGoing, c.job.chunk = true, 20_000
		c.want = make([]byte, to.StreamLen(int64(len(data))))
		must(from.Convert(to, c.want, stream))
		in, _ := c.source(t)
		out, _, result := c.sink(t)
		report, err := Run(t.Context(), c.job, out, in)
		if err != nil || !bytes.Equal(result(), c.want) || report.Blocks != int64(len(stream)/from.Stride()) {
			t.Errorf("%v to %v, %d bytes: %v, %+v", from, to, len(data), err, report)
		}
	}
}

func TestReportTail(t *testing.T) {
	t10 := sig.Format{Type: sig.T10DIF}
	crc4k := sig.Format{Type: sig.CRC32C, BlockSize: 4096}
	for _, tc := range []struct {
		job    StreamJob
		length int
		tail   int64
		blocks int64
	}{
		{Protect(t10), 0, 0, 0},
		{Protect(t10), 512, 0, 1},
		{Protect(t10), 1000, 488, 1},
		{Strip(t10), 520, 0, 1},
		{Strip(t10), 521, 1, 1},
		{Strip(t10), 1031, 511, 1},
		{Strip(t10), 1032, truncated, 0},
		{Strip(t10), 1039, truncated, 0},
		{Convert(t10, crc4k), 8 * 520, 0, 8},
		{Convert(t10, crc4k), 9 * 520, 512, 9},
		{Convert(crc4k, t10), 4100 + 700, 700, 1},
		{Convert(crc4k, t10), 4096, truncated, 0},
		{Convert(crc4k, t10), 4099, truncated, 0},
	} {
		tc.job.KeepGoing = true
		for _, in := range []Input{From(bytes.NewReader(make([]byte, tc.length))), FromAt(bytes.NewReader(make([]byte, tc.length)), int64(tc.length))} {
			report, err := Run(t.Context(), tc.job, To(io.Discard), in)
			if tc.tail == truncated {
				if !errors.Is(err, syscall.EINVAL) || !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("%v of %d bytes: %v, want EINVAL and ErrUnexpectedEOF", tc.job.Signature, tc.length, err)
				}
				continue
			}
			if report.Tail != tc.tail || report.Blocks != tc.blocks {
				t.Errorf("%v of %d bytes: tail %d, %d blocks, want %d, %d", tc.job.Direction, tc.length, report.Tail, report.Blocks, tc.tail, tc.blocks)
			}
		}
	}
}

// truncated stands in the table of TestReportTail for a stream that ends before the end of a field.
const truncated = 1 << 40

func TestRefused(t *testing.T) {
	f := sig.Format{Type: sig.T10DIF}
	for name, j := range map[string]StreamJob{
		"direction":       {Direction: 2},
		"nothing to do":   {Signature: &mkey.Signature{}},
		"protect nothing": Protect(sig.Format{}),
		"strip nothing":   Strip(sig.Format{BlockSize: 520}),
		"convert nothing": Convert(sig.Format{}, sig.Format{BlockSize: 4096}),
		"block size":      Protect(sig.Format{Type: sig.CRC32, BlockSize: 1023}),
		"boundaries":      Convert(sig.Format{Type: sig.CRC32, BlockSize: 8 * 1021}, sig.Format{Type: sig.CRC64, BlockSize: 8 * 1031}),
		"crypto, no DEK":  {Crypto: &mkey.Crypto{DataUnitSize: 512}},
		"no row of table": {Signature: &mkey.Signature{Memory: &f, Wire: &f}, Crypto: &mkey.Crypto{EncryptOnTX: true, DataUnitSize: 512, DEK: mkeytest.DEK{}}},
	} {
		var out bytes.Buffer
		_, err := Run(t.Context(), j, To(&out), From(bytes.NewReader(make([]byte, 4096))))
		if !errors.Is(err, syscall.EINVAL) || out.Len() > 0 {
			t.Errorf("%s: %v, %d bytes written", name, err, out.Len())
		}
	}
	_, err := Run(t.Context(), Protect(f), CheckOnly(), From(bytes.NewReader(nil)))
	if !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a check of data without a signature: %v", err)
	}
}

// TestMissingInputOrOutput leaves out the input or the output of a job, in each
// way that Go allows. The job must be refused, and a file at the other end must
// not change.
func TestMissingInputOrOutput(t *testing.T) {
	f := sig.Format{Type: sig.T10DIF}
	stream := mkeytest.Protect(&sig.Format{Type: sig.T10DIF, BlockSize: 512}, make([]byte, 5120))
	name := filepath.Join(t.TempDir(), "out")
	noErr(t, os.WriteFile(name, stream, 0o600))
	file := must(os.OpenFile(name, os.O_RDWR, 0))
	defer file.Close()
	dst := must(ToFile(file))
	src := FromAt(bytes.NewReader(stream), int64(len(stream)))
	for _, j := range []StreamJob{{}, Protect(f), Strip(f), Convert(f, f)} {
		for name, ends := range map[string]struct {
			dst Output
			src Input
		}{
			"no input": {dst, Input{}}, "From(nil)": {dst, From(nil)}, "FromAt(nil)": {dst, FromAt(nil, 5200)}, "FromAt(nil, 0)": {dst, FromAt(nil, 0)},
			"a negative size": {dst, FromAt(bytes.NewReader(stream), -1)}, "no output": {Output{}, src}, "To(nil)": {To(nil), src}, "ToAt(nil)": {ToAt(nil), src},
			"neither": {Output{}, Input{}}, "only a check, no input": {CheckOnly(), Input{}},
		} {
			if report, err := Run(t.Context(), j, ends.dst, ends.src); !errors.Is(err, syscall.EINVAL) || report != (JobReport{}) {
				t.Errorf("%s: %+v, %v", name, report, err)
			}
		}
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, stream) {
		t.Errorf("the output file has %d bytes, want the %d from before: %v", len(got), len(stream), err)
	}
}

// TestToFile uses a file in append mode as output, and a file for which Run is
// never called. The first keeps its contents before the new data, the second
// keeps all of them.
func TestToFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "out")
	noErr(t, os.WriteFile(name, []byte("begin"), 0o600))
	f := must(os.OpenFile(name, os.O_RDWR, 0))
	defer f.Close()
	must(ToFile(f))
	dst := must(ToFile(f))
	// A truncated input is detected before the output changes.
	if _, err := Run(t.Context(), Strip(sig.Format{Type: sig.CRC32}), dst, FromAt(bytes.NewReader(make([]byte, 514)), 514)); err == nil {
		t.Error("a truncated input is no error")
	}
	if b, err := os.ReadFile(name); err != nil || string(b) != "begin" {
		t.Errorf("%q, %v", b, err)
	}

	if runtime.GOOS == "windows" {
		t.Skip("append mode is not known here")
	}
	a := must(os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0))
	defer a.Close()
	dst = must(ToFile(a))
	data := bytes.Repeat([]byte("x"), 3<<20)
	must(Run(t.Context(), StreamJob{}, dst, FromAt(bytes.NewReader(data), int64(len(data)))))
	if b, err := os.ReadFile(name); err != nil || string(b) != "begin"+string(data) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}
