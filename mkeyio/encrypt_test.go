package mkeyio_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/xts"
)

// opensslSums are SHA-256 sums of ciphertexts by OpenSSL 3.0.19's
// EVP_aes_256_xts. The plaintext is n bytes, byte i being i*7+i/251, cut into
// units of the given size. Each unit took EVP_EncryptInit_ex (with its tweak,
// from 5 on, in 16 bytes least significant first) and EVP_EncryptUpdate. The
// key is the bytes 0 to 63. A remainder of fewer than 16 bytes belongs to the
// unit before.
var opensslSums = []struct {
	unit, n int
	sum     string
}{
	{512, 16, "f919c2501e5ca143d4502d52d56beaa6daa3e0b596cbd049c3c5961b8d2fe983"},
	{512, 17, "deb13b3da1635878e068158d428f4d96fdd92de81f55d2207aa4c1eb39cc9e10"},
	{512, 511, "3f78942806e25173755c3d2ccaac0e9dc51069928190321e75280d030191c6dc"},
	{512, 512, "226ba09c5af0eafd2e0800ce2929a7562c8317d5b7476acc3a2dc90dead2d118"},
	{512, 513, "6b93c8dd3f59ce2a86166932d3e2a0e68143984f8025788f8885f6796e0754bc"},
	{512, 527, "9cd7416c9ce502782b850619dd5114590607fd5475b0eddb40c184b488998818"},
	{512, 528, "b47fc17cf950e9709ce3c1e02a4a3134a9783c823e50334e5a26e9eea3e3ccc7"},
	{512, 1000, "55f30bb0083da6cc0920c3ee03a344d40c7b1217084a0f959d7a969570a6455b"},
	{512, 100001, "092ee37bfa4f3d92c294f17824f17e6b2949c0c4663a78030d0e5f7d4263eb1f"},
	{512, 3000003, "8e9beff669ff25b807dae7f51329ba84a70fa5779b18f270b94715e7584313e9"},
	{4096, 513, "6b93c8dd3f59ce2a86166932d3e2a0e68143984f8025788f8885f6796e0754bc"},
	{4096, 1000, "e465a3ba190f5b2125ea7d24593df3fed343b46ce552998663a2b283fa03f58b"},
	{4096, 100001, "0807ecf4fd0647472c1242a5c9bed0744483289e5ae588804c2f834914ddea20"},
	{4096, 3000003, "a008cda44a884476c2516dcae7cb0948e6ddea46ea19560fa561142ae70ff072"},
}

func encryption(t *testing.T, unit int) mkeyio.Encryption {
	key := make([]byte, 64)
	for i := range key {
		key[i] = byte(i)
	}
	d := must(dek.New(key))
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return mkeyio.Encryption{DEK: d, Unit: unit, Tweak: xts.Tweak{Lo: 5}}
}

// TestEncryption compares ciphertexts with those of OpenSSL and decrypts them,
// with every kind of input and output.
func TestEncryption(t *testing.T) {
	for _, v := range opensslSums {
		t.Run(fmt.Sprintf("%d of %d", v.n, v.unit), func(t *testing.T) {
			e := encryption(t, v.unit)
			plain := make([]byte, v.n)
			for i := range plain {
				plain[i] = byte(i*7 + i/251)
			}
			f := must(os.Create(filepath.Join(t.TempDir(), "out")))
			defer f.Close()
			file := must(mkeyio.ToFile(f))
			var stream, back bytes.Buffer
			for name, way := range map[string]struct {
				dst mkeyio.Output
				src mkeyio.Input
				got func() []byte
			}{
				"stream": {mkeyio.To(&stream), mkeyio.From(iotest.HalfReader(bytes.NewReader(plain))), stream.Bytes},
				"file": {file, mkeyio.FromAt(bytes.NewReader(plain), int64(v.n)), func() []byte {
					b, _ := os.ReadFile(f.Name())
					return b
				}},
			} {
				r, err := e.Encrypt(context.Background(), way.dst, way.src)
				if err != nil || r.BytesIn != int64(v.n) || r.BytesOut != int64(v.n) {
					t.Fatalf("%s: %+v, %v", name, r, err)
				}
				if sum := sha256.Sum256(way.got()); hex.EncodeToString(sum[:]) != v.sum {
					t.Errorf("%s: %d bytes that are not OpenSSL's", name, len(way.got()))
				}
			}
			must(e.Decrypt(context.Background(), mkeyio.To(&back), mkeyio.From(&stream)))
			if !bytes.Equal(back.Bytes(), plain) {
				t.Error("decrypted, the stream differs")
			}
		})
	}
}

// TestEncryptionSteps compares streams of every size of a data unit and of some steps, units
// that a key has among them, with their units one by one.
func TestEncryptionSteps(t *testing.T) {
	plain := make([]byte, 3<<20+1000)
	for i := range plain {
		plain[i] = byte(i*7 + i/251)
	}
	want := make([]byte, len(plain))
	var stream, file, back bytes.Buffer
	for _, unit := range mkeyio.EncryptionUnits() {
		for _, step := range []uint64{0, 8, 1 << 60} {
			stream.Reset()
			file.Reset()
			back.Reset()
			e := encryption(t, unit)
			e.Step, e.Tweak = step, xts.Tweak{Lo: math.MaxUint64 - 5}
			c := must(e.DEK.Acquire(e.KeyTag))
			tweak := e.Tweak
			for at, end := 0, 0; at < len(plain); at = end {
				if end = at + unit; len(plain)-end < 16 {
					end = len(plain)
				}
				c.EncryptUnit(want[at:end], plain[at:end], tweak)
				tweak = tweak.Add(max(step, 1))
			}
			e.DEK.Release()
			_, err := e.Encrypt(context.Background(), mkeyio.To(&stream), mkeyio.From(iotest.HalfReader(bytes.NewReader(plain))))
			if err != nil || !bytes.Equal(stream.Bytes(), want) {
				t.Errorf("units of %d, step %d, a stream: differs, %v", unit, step, err)
			}
			_, err = e.Encrypt(context.Background(), mkeyio.To(&file), mkeyio.FromAt(bytes.NewReader(plain), int64(len(plain))))
			if err != nil || !bytes.Equal(file.Bytes(), want) {
				t.Errorf("units of %d, step %d, a file: differs, %v", unit, step, err)
			}
			_, err = e.Decrypt(context.Background(), mkeyio.To(&back), mkeyio.From(&file))
			if err != nil || !bytes.Equal(back.Bytes(), plain) {
				t.Errorf("units of %d, step %d, decrypted: differs, %v", unit, step, err)
			}
		}
	}
}

// TestEncryptionEnds checks streams that are too short for ciphertext stealing,
// and inputs that fail.
func TestEncryptionEnds(t *testing.T) {
	e := encryption(t, 0)
	var out bytes.Buffer
	for _, in := range []mkeyio.Input{mkeyio.From(bytes.NewReader(nil)), mkeyio.FromAt(bytes.NewReader(nil), 0)} {
		if r, err := e.Encrypt(context.Background(), mkeyio.To(&out), in); err != nil || r.BytesOut != 0 || out.Len() != 0 {
			t.Errorf("an empty stream: %+v, %v", r, err)
		}
	}
	for n := 1; n < 16; n++ {
		for _, in := range []mkeyio.Input{mkeyio.From(bytes.NewReader(make([]byte, n))), mkeyio.FromAt(bytes.NewReader(make([]byte, n)), int64(n))} {
			if _, err := e.Encrypt(context.Background(), mkeyio.To(&out), in); !errors.Is(err, syscall.EMSGSIZE) || out.Len() != 0 {
				t.Errorf("a stream of %d bytes: %v, and %d bytes of output", n, err, out.Len())
			}
		}
	}
	broken := errors.New("broken")
	in := mkeyio.From(io.MultiReader(bytes.NewReader(make([]byte, 1e6)), iotest.ErrReader(broken)))
	if _, err := e.Encrypt(context.Background(), mkeyio.To(&out), in); !errors.Is(err, broken) {
		t.Errorf("an input that fails: %v", err)
	}
	for name, bad := range map[string]mkeyio.Encryption{"no DEK": {}, "a unit of 1000 bytes": {DEK: e.DEK, Unit: 1000}, "a unit of -1 bytes": {DEK: e.DEK, Unit: -1}} {
		if _, err := bad.Encrypt(context.Background(), mkeyio.To(&out), mkeyio.From(bytes.NewReader(make([]byte, 1000)))); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	huge := mkeyio.Encryption{DEK: e.DEK, Unit: math.MaxInt32}
	if _, err := huge.Encrypt(context.Background(), mkeyio.To(&out), mkeyio.FromAt(unread{t}, math.MaxInt32-1)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a unit of 2 GiB: %v", err)
	}
	if _, err := e.Encrypt(context.Background(), mkeyio.CheckOnly(), mkeyio.From(&out)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an output that only checks: %v", err)
	}
}

// unread is an input that must not be read.
type unread struct{ t *testing.T }

func (u unread) ReadAt(p []byte, _ int64) (int, error) {
	u.t.Errorf("%d bytes are read", len(p))
	return 0, io.ErrUnexpectedEOF
}

// TestEncryptEnds ends contexts at any time, with inputs of unknown length.
func TestEncryptEnds(t *testing.T) {
	key, err := dek.New(dek.Generate(dek.Size256, false))
	fatal.If(t, err)
	for i := range 60 {
		ctx, cancel := context.WithCancelCause(t.Context())
		reads := 0
		src := readerFunc(func(p []byte) (int, error) {
			if reads++; reads == i%30+1 {
				go cancel(errors.New("stop"))
			}
			return len(p), nil
		})
		e := mkeyio.Encryption{DEK: key, Unit: 512}
		if _, err := e.Encrypt(ctx, mkeyio.To(io.Discard), mkeyio.From(src)); err == nil {
			t.Error("an endless input has ended")
		}
		cancel(nil)
	}
	if err := key.Close(); err != nil {
		t.Error(err)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestViewHoldsDEK closes DEKs under views, with keys and without. It fails until the view is closed.
func TestViewHoldsDEK(t *testing.T) {
	for _, e := range []mkeyio.Encryption{{Unit: 4096}, {Unit: 1024}, {Unit: 512, Step: 3}} {
		key, err := dek.New(dek.Generate(dek.Size256, false))
		fatal.If(t, err)
		e.DEK = key
		f, err := os.Create(filepath.Join(t.TempDir(), "f"))
		fatal.If(t, err)
		defer f.Close()
		fatal.If(t, f.Truncate(1<<16))
		v, err := e.View(f, 1<<16)
		fatal.If(t, err)
		for range 2 {
			if err := key.Close(); !errors.Is(err, syscall.EBUSY) {
				t.Errorf("unit %d: the DEK of an open view: %v", e.Unit, err)
			}
			if _, err := v.WriteAt(make([]byte, 8192), 0); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(v.Close(), key.Close()); err != nil {
			t.Errorf("unit %d: %v", e.Unit, err)
		}
	}
}
