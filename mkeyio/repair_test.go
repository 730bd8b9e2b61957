package mkeyio_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/sig"
)

// TestRepairWritesFields damages data, fields and metadata, and repairs some of the blocks. No byte
// but those of the repaired fields may change in the decrypted store.
func TestRepairWritesFields(t *testing.T) {
	jobs := viewJobs(t)
	names := []string{"nvme64:4096,meta=64", "nvme16:512,meta=16,pi-first", "t10dif:512,app-mask=0", "t10dif:512,no-ref-check", "nvme16:4096,no-ref-check", "t10dif:4096,no-guard-check"}
	for _, text := range names {
		jobs[text] = mkeyio.Protect(must(sig.ParseFormat(text)))
	}
	for _, name := range append(names, "t10dif", "crc32c:4096", "signed+encrypted", "encrypted+signed") {
		job := jobs[name]
		f := *job.Signature.Wire
		encrypted := job.Crypto != nil && job.Crypto.Order == mkey.SignatureBeforeCrypto
		// wire returns the store without the encryption of the fields.
		wire := func(b []byte) []byte {
			if !encrypted {
				return bytes.Clone(b)
			}
			return run(t, mkeyio.StreamJob{Direction: mkeyio.RX, Crypto: job.Crypto}, b)
		}
		const blocks = 48
		data := make([]byte, blocks*f.Block())
		random := rand.NewChaCha8([32]byte{5})
		random.Read(data)
		store := &bytesStore{b: run(t, job, data)}
		plain := wire(store.b)
		for i := range blocks {
			stride, at := f.Stride(), i*f.Stride()
			switch i % 4 {
			case 0:
				plain[at+i] ^= 1 // data
			case 1:
				random.Read(plain[at+f.Block() : at+stride]) // field and metadata
			case 2:
				plain[at+stride-1] ^= 1 // the last byte of field or metadata
			}
			if f.Flags&sig.IgnoreApp != 0 { // an application's own tag
				copy(plain[at+f.Block()+2:], []byte{0xAB, byte(i)})
			}
			if f.Flags&sig.IgnoreRef != 0 {
				copy(plain[at+f.Block()+4:], []byte{1, 2, 3, byte(i)})
			}
		}
		store.b = bytes.Clone(plain)
		if encrypted {
			store.b = run(t, mkeyio.StreamJob{Direction: mkeyio.TX, Crypto: job.Crypto}, plain)
		}
		v := must(mkeyio.NewView(job, store, int64(len(store.b))))
		const from, to = 8, 40 // the blocks that are repaired
		if err := v.Repair(int64(from*f.Block()), int64((to-from)*f.Block())); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := wire(store.b)
		width := f.FieldSize()
		alone := f
		if alone.Metadata = 0; f.Metadata != 0 {
			width = alone.FieldSize()
		}
		for i := range blocks {
			at := i * f.Stride()
			field := at + f.Block()
			if !f.FieldFirst {
				field += f.FieldSize() - width
			}
			for k := at; k < at+f.Stride(); k++ {
				inField := i >= from && i < to && k >= field && k < field+width
				switch part := k - field; {
				case part < 2 && f.Flags&sig.IgnoreGuard != 0, part >= 4 && f.Flags&sig.IgnoreRef != 0, part >= 2 && part < 4 && f.Flags&sig.IgnoreApp != 0:
					inField = false
				}
				if !inField && got[k] != plain[k] {
					t.Fatalf("%s: byte %d of block %d has changed", name, k-at, i)
				}
			}
			good := f.From(uint64(i)).Verify(got[at:][:f.Stride()]) == nil
			if i >= from && i < to && !good {
				t.Errorf("%s: block %d is still bad", name, i)
			}
		}
		if _, err := v.ReadAt(make([]byte, (to-from)*f.Block()), int64(from*f.Block())); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"encrypted", "protected"} {
		v := must(mkeyio.NewView(jobs[name], &bytesStore{b: make([]byte, 8192)}, 8192))
		if err := v.Repair(0, 0); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: a store without fields: %v", name, err)
		}
	}
}
