package mkeyio_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/sig"
)

// apart returns the blocks and the fields of a stream, as loops over its bytes find them.
func apart(f sig.Format, stream []byte) (data, fields []byte) {
	for at := 0; at < len(stream); at += f.Stride() {
		data = append(data, stream[at:][:f.Block()]...)
		fields = append(fields, stream[at+f.Block():][:f.FieldSize()]...)
	}
	return data, fields
}

func atOffsets(b []byte) mkeyio.Input { return mkeyio.FromAt(bytes.NewReader(b), int64(len(b))) }

// grown is a file that grows with what is written to it.
type grown struct {
	mu sync.Mutex
	b  []byte
}

func (g *grown) WriteAt(p []byte, off int64) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if need := int(off) + len(p); need > len(g.b) {
		g.b = append(g.b, make([]byte, need-len(g.b))...)
	}
	return copy(g.b[off:], p), nil
}

// TestSeparate runs jobs between streams in one place and in two. The two together must be the stream of a job in
// one place.
func TestSeparate(t *testing.T) {
	ctx := context.Background()
	const length = 3<<20 + 24*4096
	data := make([]byte, length)
	rand.NewChaCha8([32]byte{3}).Read(data)
	for _, text := range []string{"t10dif:512,app=0x5678,ref=2048", "crc32c:4096", "crc64:1024", "nvme16:4096,meta=64,pi-first", "nvme64:4096,meta=64"} {
		f, other := must(sig.ParseFormat(text)), must(sig.ParseFormat("t10dif:2048,ref=5"))
		stream := run(t, mkeyio.Protect(f), data)
		wantData, wantFields := apart(f, stream)
		do := func(job mkeyio.StreamJob, dst mkeyio.Output, src mkeyio.Input) mkeyio.JobReport {
			t.Helper()
			r, err := mkeyio.Run(ctx, job, dst, src)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			return r
		}
		fields, whole := &grown{}, &grown{}
		to := must(mkeyio.ToFields(f, mkeyio.ToAt(fields)))
		for name, src := range map[string]mkeyio.Input{"at offsets": atOffsets(data), "in order": mkeyio.From(bytes.NewReader(data))} {
			fields.b = nil
			if do(mkeyio.Protect(f), to, src); !bytes.Equal(fields.b, wantFields) {
				t.Errorf("%s, %s: other fields", text, name)
			}
		}
		src := must(mkeyio.FromSeparate(f, atOffsets(data), atOffsets(wantFields)))
		if r := do(mkeyio.Strip(f), mkeyio.CheckOnly(), src); r.Blocks != int64(length/f.Block()) || r.BytesIn != int64(len(stream)) {
			t.Errorf("%s: %+v", text, r)
		}
		if do(mkeyio.Strip(f), mkeyio.ToAt(whole), src); !bytes.Equal(whole.b, data) {
			t.Errorf("%s: strip gives other data", text)
		}
		whole.b = nil
		if do(mkeyio.Convert(f, f), mkeyio.ToAt(whole), src); !bytes.Equal(whole.b, stream) {
			t.Errorf("%s: two files make another stream", text)
		}
		dataFile, fieldsFile := file(t), file(t)
		out := func(f sig.Format) mkeyio.Output {
			return must(mkeyio.ToSeparate(f, must(mkeyio.ToFile(dataFile)), must(mkeyio.ToFile(fieldsFile))))
		}
		do(mkeyio.Convert(f, f), out(f), atOffsets(stream))
		if got, _ := os.ReadFile(dataFile.Name()); !bytes.Equal(got, wantData) {
			t.Errorf("%s: other data in two files", text)
		}
		if got, _ := os.ReadFile(fieldsFile.Name()); !bytes.Equal(got, wantFields) {
			t.Errorf("%s: other fields in two files", text)
		}
		do(mkeyio.Convert(f, other), out(other), src)
		_, wantOther := apart(other, run(t, mkeyio.Convert(f, other), stream))
		if got, _ := os.ReadFile(fieldsFile.Name()); !bytes.Equal(got, wantOther) {
			t.Errorf("%s: other fields of %v", text, other)
		}
	}
}

func file(t *testing.T) *os.File {
	t.Helper()
	f := must(os.Create(filepath.Join(t.TempDir(), "file")))
	t.Cleanup(func() { f.Close() })
	return f
}

// TestSeparateRefused: sizes that do not belong together, parts of blocks, and ends of another format.
func TestSeparateRefused(t *testing.T) {
	f := must(sig.ParseFormat("t10dif"))
	for sizes, want := range map[[2]int]string{
		{5120, 72}:  "5120 bytes of data, and 72 bytes of fields: each block of 512 bytes must have a field of 8 bytes, which makes 80 bytes of fields",
		{5120, 88}:  "88 bytes of fields",
		{5120, 79}:  "79 bytes of fields",
		{5120, 0}:   "0 bytes of fields",
		{0, 8}:      "8 bytes of fields",
		{5000, 72}:  "5000 bytes of data, and fields apart from it: must be whole blocks of 512 bytes",
		{5000, 80}:  "5000 bytes",
		{40960, 64}: "64 bytes",
	} {
		_, err := mkeyio.FromSeparate(f, atOffsets(make([]byte, sizes[0])), atOffsets(make([]byte, sizes[1])))
		if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", sizes, err)
		}
	}
	for name, err := range map[string]error{
		"a format without fields": second(mkeyio.FromSeparate(sig.Format{}, atOffsets(nil), atOffsets(nil))),
		"data in order":           second(mkeyio.FromSeparate(f, mkeyio.From(strings.NewReader("")), atOffsets(nil))),
		"fields in order":         second(mkeyio.ToSeparate(f, mkeyio.ToAt(&grown{}), mkeyio.To(io.Discard))),
		"no fields":               second(mkeyio.ToFields(f, mkeyio.Output{})),
	} {
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	out := must(mkeyio.ToFields(f, mkeyio.ToAt(&grown{})))
	odd := make([]byte, 1300)
	for name, src := range map[string]mkeyio.Input{"at offsets": atOffsets(odd), "in order": mkeyio.From(bytes.NewReader(odd))} {
		_, err := mkeyio.Run(context.Background(), mkeyio.Protect(f), out, src)
		if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "1300 bytes of data, and fields apart from it: must be whole blocks of 512 bytes") {
			t.Errorf("a part of a block, %s: %v", name, err)
		}
	}
	if _, err := mkeyio.Run(context.Background(), mkeyio.Protect(must(sig.ParseFormat("crc32"))), out, atOffsets(make([]byte, 512))); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an output of another format: %v", err)
	}
	in := must(mkeyio.FromSeparate(f, atOffsets(make([]byte, 4096)), atOffsets(make([]byte, 64))))
	if _, err := mkeyio.Run(context.Background(), mkeyio.Strip(must(sig.ParseFormat("t10dif:4096"))), mkeyio.CheckOnly(), in); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an input of another format: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestSeparateStore reads and writes random ranges of a stream in two places, as those of a plain copy.
func TestSeparateStore(t *testing.T) {
	f := must(sig.ParseFormat("nvme16:512,meta=24"))
	const blocks = 5000
	data, fields := &bytesStore{b: make([]byte, blocks*512)}, &bytesStore{b: make([]byte, blocks*24)}
	s := mkeyio.SeparateStore(f, data, fields)
	model := make([]byte, blocks*f.Stride())
	r, content := rand.New(rand.NewPCG(1, 7)), rand.NewChaCha8([32]byte{1})
	for range 500 {
		at := r.IntN(len(model))
		n := r.IntN(min(len(model)-at, 1<<r.IntN(22)) + 1)
		if r.IntN(2) == 0 {
			at, n = at/f.Stride()*f.Stride(), n/f.Stride()*f.Stride()
		}
		if r.IntN(2) == 0 {
			content.Read(model[at:][:n])
			if k, err := s.WriteAt(model[at:][:n], int64(at)); k != n || err != nil {
				t.Fatalf("write %d+%d: %d, %v", at, n, k, err)
			}
			continue
		}
		got := make([]byte, n)
		if k, err := s.ReadAt(got, int64(at)); k != n || err != nil || !bytes.Equal(got, model[at:][:n]) {
			t.Fatalf("read %d+%d: %d, %v", at, n, k, err)
		}
	}
	wantData, wantFields := apart(f, model)
	if !bytes.Equal(data.b, wantData) || !bytes.Equal(fields.b, wantFields) {
		t.Error("other content")
	}
	fields.b = fields.b[:len(fields.b)-1] // truncated
	if _, err := s.ReadAt(make([]byte, 1), int64(len(model))-1); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("truncated fields: %v", err)
	}
}

// TestSeparateView: a view writes and repairs blocks and fields in two places.
func TestSeparateView(t *testing.T) {
	f := must(sig.ParseFormat("t10dif:512,app=7,ref=9"))
	data := make([]byte, 300*512)
	content := rand.NewChaCha8([32]byte{9})
	content.Read(data)
	_, b := apart(f, run(t, mkeyio.Protect(f), data))
	blocks, fields := &bytesStore{b: bytes.Clone(data)}, &bytesStore{b: b}
	v := must(mkeyio.NewView(mkeyio.Protect(f), mkeyio.SeparateStore(f, blocks, fields), f.StreamLen(int64(len(data)))))
	defer v.Close()
	content.Read(data[1000:][:70000])
	must(v.WriteAt(data[1000:][:70000], 1000))
	want := bytes.Clone(fields.b)
	fields.b[250*8+3] ^= 1
	if _, err := v.ReadAt(make([]byte, 512), 250*512); err == nil {
		t.Error("a bad field was not found")
	}
	if err := v.Repair(250*512, 512); err != nil || !bytes.Equal(fields.b, want) || !bytes.Equal(blocks.b, data) {
		t.Errorf("repair: %v, or other bytes have changed", err)
	}
	_, again := apart(f, run(t, mkeyio.Protect(f), data))
	if !bytes.Equal(fields.b, again) {
		t.Error("other fields")
	}
}
