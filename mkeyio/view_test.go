package mkeyio_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/sig"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// bytesStore is a store in memory.
type bytesStore struct {
	mu sync.RWMutex
	b  []byte
}

func (s *bytesStore) ReadAt(p []byte, off int64) (int, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return bytes.NewReader(s.b).ReadAt(p, off)
}

func (s *bytesStore) WriteAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return copy(s.b[off:], p), nil
}

// viewJobs are the jobs of the tests, from the view to the store.
func viewJobs(t *testing.T) map[string]mkeyio.StreamJob {
	format := func(text string) *sig.Format { return new(must(sig.ParseFormat(text))) }
	key := bytes.Repeat([]byte{7}, 64)
	copy(key, "another half of the key of 512 bits")
	d := must(dek.New(key))
	t.Cleanup(func() { d.Close() })
	crypto := func(unit int, order mkey.Order) *mkey.Crypto {
		return &mkey.Crypto{EncryptOnTX: true, DataUnitSize: unit, DEK: d, Order: order}
	}
	signed := &mkey.Signature{Wire: format("t10dif:512,app=7,ref=9")}
	return map[string]mkeyio.StreamJob{
		"t10dif":           mkeyio.Protect(*format("t10dif:512,app=0x5678,ref=2048")),
		"crc32c:4096":      mkeyio.Protect(*format("crc32c:4096")),
		"crc64:1024":       mkeyio.Protect(*format("crc64:1024")), // not a block size of keys
		"protected":        mkeyio.Strip(*format("t10dif:512,ref=77")),
		"encrypted":        {Direction: mkeyio.TX, Crypto: crypto(4096, 0)},
		"signed+encrypted": {Direction: mkeyio.TX, Signature: signed, Crypto: crypto(520, mkey.SignatureBeforeCrypto)},
		"encrypted+signed": {Direction: mkeyio.TX, Signature: signed, Crypto: crypto(512, mkey.SignatureAfterCrypto)},
		"plain":            {},
	}
}

// run returns the output of a job: the oracle.
func run(t *testing.T, job mkeyio.StreamJob, in []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	must(mkeyio.Run(context.Background(), job, mkeyio.To(&out), mkeyio.From(bytes.NewReader(in))))
	return out.Bytes()
}

// TestView compares random reads and writes with a plain copy of the data, and at the end the store
// with the result of a job.
func TestView(t *testing.T) {
	for name, job := range viewJobs(t) {
		for _, length := range []int{2<<20 + 5*4096, 50 * 4096, 4096*3 + 1536} {
			r := rand.New(rand.NewPCG(1, uint64(length)))
			content := rand.NewChaCha8([32]byte{1, byte(length)})
			data := make([]byte, length)
			_, _ = content.Read(data) // never an error
			isFields := job.Direction == mkeyio.RX
			var model []byte // content of the view
			if isFields {
				model = run(t, mkeyio.Protect(*job.Signature.Wire), data)
			} else {
				model = data
			}
			store := &bytesStore{b: run(t, job, model)}
			v, err := mkeyio.NewView(job, store, int64(len(store.b)))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if v.Size() != int64(len(model)) {
				t.Fatalf("%s: %d bytes, want %d", name, v.Size(), len(model))
			}
			pick := func() (at, n int) {
				at = r.IntN(len(model))
				if n = r.IntN(min(len(model)-at, 9000) + 1); r.IntN(20) == 0 {
					n = r.IntN(len(model) - at + 1)
				}
				if isFields { // writes must have whole blocks with correct fields
					at, n = at/520*520, n/520*520
					n = min(n, len(model)-at)
				}
				return at, n
			}
			rounds := 200
			if testing.Short() {
				rounds = 60
			}
			for range rounds {
				at, n := pick()
				got := make([]byte, n)
				if k, err := v.ReadAt(got, int64(at)); k != n || err != nil || !bytes.Equal(got, model[at:at+n]) {
					t.Fatalf("%s: read %d at %d: %d bytes, %v", name, n, at, k, err)
				}
				at, n = pick()
				fresh := make([]byte, n)
				_, _ = content.Read(fresh)
				if isFields {
					f := job.Signature.Wire.From(uint64(at / 520))
					if n%520 != 0 {
						continue
					}
					if err := f.Generate(fresh); err != nil {
						t.Fatal(err)
					}
				}
				if k, err := v.WriteAt(fresh, int64(at)); k != n || err != nil {
					t.Fatalf("%s: write %d at %d: %d bytes, %v", name, n, at, k, err)
				}
				copy(model[at:], fresh)
			}
			if !bytes.Equal(store.b, run(t, job, model)) {
				t.Errorf("%s: the store differs", name)
			}
			got := make([]byte, len(model)+10)
			if n, err := v.ReadAt(got, 0); n != len(model) || err != io.EOF || !bytes.Equal(got[:n], model) {
				t.Errorf("%s: all: %d bytes, %v", name, n, err)
			}
			if _, err := v.WriteAt([]byte{1}, v.Size()); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("%s: beyond the end: %v", name, err)
			}
			if err := v.Close(); err != nil {
				t.Error(err)
			}
			if n, err := v.ReadAt(got, 0); n != 0 || !errors.Is(err, syscall.EBADF) {
				t.Errorf("%s: after Close: %v", name, err)
			}
		}
	}
}

// TestViewBadBlock checks that a read ends before a bad block, that a write of
// a part of the block fails, that a write of the whole block works, and that
// Repair signs the block.
func TestViewBadBlock(t *testing.T) {
	for _, name := range []string{"t10dif", "crc64:1024", "signed+encrypted", "encrypted+signed"} {
		job := viewJobs(t)[name]
		block := job.Signature.Wire.Block()
		data := make([]byte, 64*block)
		rand.NewChaCha8([32]byte{3}).Read(data)
		store := &bytesStore{b: run(t, job, data)}
		for _, at := range []int{5*(block+8) + 100, 6*(block+8) + block + 3, 40 * (block + 8)} { // in data, in a field
			store.b[at] ^= 0x10
		}
		var found []uint64
		job.Bad = func(b *mkey.BadBlock) { found = append(found, b.Sig.Block) }
		v := must(mkeyio.NewView(job, store, int64(len(store.b))))
		got := make([]byte, 20*block)
		var bad *mkey.BadBlock
		n, err := v.ReadAt(got, int64(2*block))
		if n != 3*block || !errors.As(err, &bad) || bad.Sig.Block != 5 || bad.Sig.Offset != uint64(5*(block+8)) || !bytes.Equal(got[:n], data[2*block:][:n]) {
			t.Errorf("%s: read: %d bytes, %v", name, n, err)
		}
		if len(found) != 2 || found[0] != 5 || found[1] != 6 {
			t.Errorf("%s: found %d", name, found)
		}
		if n, err := v.ReadAt(got, int64(7*block)); n != len(got) || err != nil {
			t.Errorf("%s: beside them: %d, %v", name, n, err)
		}
		// A part of a bad block.
		before := bytes.Clone(store.b)
		if n, err := v.WriteAt(make([]byte, block), int64(5*block+8)); n != 0 || !errors.As(err, &bad) {
			t.Errorf("%s: write: %d, %v", name, n, err)
		}
		if !bytes.Equal(before, store.b) {
			t.Errorf("%s: the write has changed the store", name)
		}
		// All of the bad blocks.
		if n, err := v.WriteAt(data[5*block:7*block], int64(5*block)); n != 2*block || err != nil {
			t.Errorf("%s: write: %d, %v", name, n, err)
		}
		if n, err := v.ReadAt(got, int64(2*block)); n != len(got) || err != nil || !bytes.Equal(got, data[2*block:][:n]) {
			t.Errorf("%s: read: %d bytes, %v", name, n, err)
		}
		if err := v.Repair(0, v.Size()); err != nil {
			t.Errorf("%s: repair: %v", name, err)
		}
		if n, err := v.ReadAt(make([]byte, len(data)), 0); n != len(data) || err != nil {
			t.Errorf("%s: after the repair: %d, %v", name, n, err)
		}
	}
}

// TestViewRefused checks that a view with fields does not write a block with a
// wrong field, and that NewView refuses jobs and stores that cannot be a view.
func TestViewRefused(t *testing.T) {
	job := viewJobs(t)["protected"]
	store := &bytesStore{b: make([]byte, 4096)}
	v := must(mkeyio.NewView(job, store, 4096))
	wrong := bytes.Repeat([]byte{1}, 1040)
	var bad *mkey.BadBlock
	if n, err := v.WriteAt(wrong, 520); n != 0 || !errors.As(err, &bad) || bad.Sig.Block != 1 || !bytes.Equal(store.b, make([]byte, 4096)) {
		t.Errorf("%d, %v", n, err)
	}
	protect := mkeyio.Protect(sig.Format{Type: sig.T10DIF})
	for name, f := range map[string]func() (*mkeyio.View, error){
		"no store":  func() (*mkeyio.View, error) { return mkeyio.NewView(protect, nil, 0) },
		"truncated": func() (*mkeyio.View, error) { return mkeyio.NewView(protect, store, 519) },
		"negative":  func() (*mkeyio.View, error) { return mkeyio.NewView(protect, store, -1) },
		"direction": func() (*mkeyio.View, error) { return mkeyio.NewView(mkeyio.StreamJob{Direction: 5}, store, 0) },
	} {
		if _, err := f(); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	short := must(mkeyio.NewView(protect, store, 5200)) // the store has 4096
	if _, err := short.ReadAt(make([]byte, 5120), 0); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a store that shrank: %v", err)
	}
}

// TestViewParallel checks that concurrent writers of neighbouring parts of a
// granule do not lose each other's bytes.
func TestViewParallel(t *testing.T) {
	job := viewJobs(t)["crc32c:4096"]
	store := &bytesStore{b: run(t, job, make([]byte, 64<<10))}
	v := must(mkeyio.NewView(job, store, int64(len(store.b))))
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for at := worker * 100; at+100 <= 64<<10; at += 800 {
				if _, err := v.WriteAt(bytes.Repeat([]byte{byte(worker + 1)}, 100), int64(at)); err != nil {
					t.Error(err)
				}
				if _, err := v.ReadAt(make([]byte, 4096), int64(at)/4096*4096); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	got := make([]byte, 64<<10)
	must(v.ReadAt(got, 0))
	for i := range 65500 {
		if got[i] != byte(i/100%8+1) {
			t.Fatalf("byte %d is %d", i, got[i])
		}
	}
}
