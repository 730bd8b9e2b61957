package mkeyio

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/softmkey/softmkey/internal/mkeytest"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// anyFormat returns a random format with a signature, which may ignore parts of the field.
func anyFormat(r *rand.Rand) sig.Format {
	pick := func(list ...sig.Flags) sig.Flags { return list[r.IntN(len(list))] }
	f := sig.Format{Type: sig.T10DIF + sig.Type(r.IntN(7)), BlockSize: []int{512, 512, 520, 4096, 1024}[r.IntN(5)]}
	storage, ref := f.TagBits()
	if ref == 0 {
		f.Seed = sig.Seed(r.IntN(3))
		return f
	}
	f.Flags = pick(0, sig.Plain, sig.RefRemap, sig.AppEscape, sig.AppRefEscape, sig.Type3, sig.Type3|sig.RefRemap)
	f.Flags |= pick(0, 0, sig.IgnoreApp, sig.IgnoreRef, sig.IgnoreGuard)
	f.AppTag = []uint16{0, 5, 0xFFFF}[r.IntN(3)]
	f.RefTag = []uint64{0, 1, 1<<ref - 1}[r.IntN(3)]
	if f.Flags&sig.IgnoreApp == 0 && r.IntN(4) == 0 {
		f.AppMask = 0xFF00
	}
	if f.Type == sig.T10DIF {
		f.Guard, f.Seed = sig.Guard(r.IntN(2)), sig.Seed(r.IntN(3))
		return f
	}
	f.Metadata, f.FieldFirst = []int{0, 16, 64}[r.IntN(3)], r.IntN(2) == 0
	if storage == 0 && r.IntN(2) == 0 {
		f.StorageBits, f.RefTag = 16, f.RefTag>>16
	}
	if r.IntN(2) == 0 && (f.StorageBits > 0 || storage > 0) {
		f.StorageTag, f.Flags = 7, f.Flags|pick(0, sig.IgnoreStorage)
	}
	return f
}

// disturb makes fields of a stream that a format does not check: those of blocks that an escape
// exempts, as a formatted drive has them, and the parts that the flags ignore. It returns which
// blocks are exempt.
func disturb(r *rand.Rand, f sig.Format, stream []byte) []bool {
	storage, ref := f.TagBits()
	n := len(stream) / f.Stride()
	exempt := make([]bool, n)
	if ref == 0 {
		return exempt
	}
	width := 16
	if f.Type == sig.T10DIF || f.Type == sig.NVMe16 {
		width = 8
	}
	for i := range n {
		field := stream[i*f.Stride()+f.Block():][:f.FieldSize()]
		switch r.IntN(4) {
		case 0: // an unwritten block
			for j := range field {
				field[j] = 0xFF
			}
		case 1: // a random tag where it is not checked
			at := field[len(field)-width:]
			if f.FieldFirst || f.Type == sig.T10DIF {
				at = field[:width]
			}
			guard := width - 8
			switch f.Type {
			case sig.T10DIF, sig.NVMe16:
				guard = 2
			case sig.NVMe32:
				guard = 4
			}
			if f.Flags&sig.IgnoreGuard != 0 {
				at[guard-1] ^= 1
			}
			if f.Flags&sig.IgnoreApp != 0 {
				at[guard] ^= 1
			}
			if f.Flags&sig.IgnoreRef != 0 && ref >= 8 {
				at[width-1] ^= 1
			}
			if f.Flags&sig.IgnoreStorage != 0 && storage >= 8 {
				at[guard+2] ^= 1
			}
		}
		exempt[i] = f.Escapes(f.Field(field))
		if g := f.From(uint64(i)); g.Verify(stream[i*f.Stride():][:f.Stride()]) != nil { // no escape applies
			if err := g.Generate(stream[i*f.Stride():][:f.Stride()]); err != nil {
				panic(err)
			}
		}
	}
	return exempt
}

// TestConvertEscaped converts correct streams with exempt blocks between random formats. The
// outputs must be correct, and an exempt block stays exempt if the other format allows it.
func TestConvertEscaped(t *testing.T) {
	rounds := 150
	if os.Getenv("SOFTMKEY_LONG") != "" {
		rounds = 5000
	}
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range rounds {
		from, to := anyFormat(r), anyFormat(r)
		if r.IntN(2) == 0 { // formats that differ little
			to.BlockSize = from.BlockSize
			if _, ref := from.TagBits(); ref > 0 && r.IntN(2) == 0 {
				to = from
				to.AppTag, to.Flags = 9, []sig.Flags{0, sig.Plain, sig.Type3}[r.IntN(3)]|from.Flags&(sig.IgnoreApp|sig.IgnoreStorage)
			}
		}
		for _, f := range []sig.Format{from, to} {
			if err := f.Validate(); err != nil {
				t.Fatalf("%+v: %v", f, err)
			}
		}
		data := make([]byte, 4160*(1+r.IntN(3))+r.IntN(3)*700)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		stream := make([]byte, from.StreamLen(int64(len(data))))
		must(from.Protect(stream, data))
		exempt := disturb(r, from, stream)
		if err := from.Verify(stream); err != nil {
			t.Fatalf("%v: the test's input: %v", from, err)
		}

		var out bytes.Buffer
		report, err := Run(t.Context(), Convert(from, to), To(&out), FromAt(bytes.NewReader(stream), int64(len(stream))))
		if err != nil || report.Errors != 0 {
			t.Fatalf("%v to %v: %v, %+v", from, to, err, report)
		}
		var count int64
		for _, e := range exempt {
			if e {
				count++
			}
		}
		if report.Escaped != count {
			t.Fatalf("%v to %v: %d blocks counted as exempt, want %d", from, to, report.Escaped, count)
		}
		got := out.Bytes()
		if err := to.Verify(got); err != nil {
			t.Fatalf("%v to %v: the output: %v", from, to, err)
		}
		same := make([]byte, len(got))
		if n, err := from.Convert(to, same, stream); err != nil || n != len(got) || !bytes.Equal(same, got) {
			t.Fatalf("%v to %v: Run and Format.Convert differ: %d, %v", from, to, n, err)
		}
		plain := make([]byte, len(data))
		if _, err := to.Strip(plain, got); err != nil || !bytes.Equal(plain, data) {
			t.Fatalf("%v to %v: %v, or the data differ", from, to, err)
		}
		if from.Block() != to.Block() {
			continue
		}
		ones := to.Field(bytes.Repeat([]byte{0xFF}, to.FieldSize()))
		for i, was := range exempt {
			x := to.Field(got[i*to.Stride()+to.Block():])
			if was && to.Escapes(ones) && !to.Escapes(x) {
				t.Fatalf("%v to %v: block %d was exempt, and has the field %+v", from, to, i, x)
			}
		}
	}
}

// TestEscapedCount counts exempt blocks on every way through a job: with and without a key, with
// encrypted fields, and with boundaries far apart.
func TestEscapedCount(t *testing.T) {
	const blocks, exempt = 200, 66
	f := sig.Format{Type: sig.T10DIF, BlockSize: 512}
	stream := make([]byte, blocks*520)
	noErr(t, f.Generate(stream))
	for i := range exempt {
		copy(stream[i*3*520:], "data")
		copy(stream[i*3*520+512:], "\xff\xff\xff\xff\xff\xff\xff\xff")
	}
	c := must(xts.New(append(make([]byte, 16), bytes.Repeat([]byte{1}, 16)...)))
	sealed := bytes.Clone(stream)
	c.Encrypt(sealed, sealed, 520, xts.Tweak{})
	crypto := &mkey.Crypto{EncryptOnTX: true, Order: mkey.SignatureBeforeCrypto, DataUnitSize: 520, DEK: mkeytest.DEK{Cipher: c}}
	open := StreamJob{Direction: RX, Signature: signature(nil, &f), Crypto: crypto}
	serial := StreamJob{Direction: RX, Signature: signature(&sig.Format{Type: sig.CRC32, BlockSize: 4048}, &f), Crypto: &mkey.Crypto{EncryptOnTX: true, DataUnitSize: 4160, Order: mkey.SignatureBeforeCrypto, DEK: mkeytest.DEK{Cipher: c}}}
	long := bytes.Clone(stream)
	c.Encrypt(long, long, 4160, xts.Tweak{})
	for name, tc := range map[string]struct {
		job   StreamJob
		out   Output
		input []byte
	}{
		"verify":              {Strip(f), CheckOnly(), stream},
		"strip":               {Strip(f), To(io.Discard), stream},
		"convert":             {Convert(f, sig.Format{Type: sig.CRC64, BlockSize: 1024}), To(io.Discard), stream},
		"decrypt and strip":   {open, To(io.Discard), sealed},
		"decrypt and verify":  {open, CheckOnly(), sealed},
		"decrypt and convert": {serial, To(io.Discard), long},
	} {
		tc.job.chunk = 5000
		report, err := Run(t.Context(), tc.job, tc.out, FromAt(bytes.NewReader(tc.input), int64(len(tc.input))))
		if err != nil || report.Blocks != blocks || report.Escaped != exempt || report.Errors != 0 {
			t.Errorf("%s: %v, %+v", name, err, report)
		}
	}
}
