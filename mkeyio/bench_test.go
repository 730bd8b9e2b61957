package mkeyio

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/softmkey/softmkey/internal/mkeytest"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// BenchmarkFile runs jobs on a file in the page cache and compares them with a
// copy by the kernel, as cp does. TMPDIR selects the directory.
func BenchmarkFile(b *testing.B) {
	const size = 256 << 20
	dir := b.TempDir()
	name := filepath.Join(dir, "in")
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i * i >> 7)
	}
	noErr(b, os.WriteFile(name, data, 0o600))
	t10 := sig.Format{Type: sig.T10DIF}
	c := must(xts.New(append(make([]byte, 32), data[1000:1032]...)))
	crypto := func(unit int) *mkey.Crypto {
		return &mkey.Crypto{EncryptOnTX: true, Order: mkey.SignatureBeforeCrypto, DataUnitSize: unit, DEK: mkeytest.DEK{Cipher: c}}
	}
	rowC := Protect(t10)
	rowC.Crypto = crypto(520)
	for _, bm := range []struct {
		name string
		run  func(b *testing.B, in, out *os.File) error
	}{
		{"kernel copy", func(_ *testing.B, in, out *os.File) error { _, err := io.Copy(out, in); return err }},
		{"copy", file(StreamJob{})},
		{"protect", file(Protect(t10))},
		{"encrypt", file(StreamJob{Crypto: crypto(4096)})},
		{"row C", file(rowC)},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				b.StopTimer()
				in := must(os.Open(name))
				out := must(os.Create(filepath.Join(dir, "out")))
				b.StartTimer()
				noErr(b, bm.run(b, in, out))
				b.StopTimer()
				in.Close()
				out.Close()
				os.Remove(out.Name())
				b.StartTimer()
			}
		})
	}
}

func file(j StreamJob) func(b *testing.B, in, out *os.File) error {
	return func(b *testing.B, in, out *os.File) error {
		src, err := FromFile(in)
		if err != nil {
			return err
		}
		dst, err := ToFile(out)
		if err != nil {
			return err
		}
		_, err = Run(b.Context(), j, dst, src)
		return err
	}
}
