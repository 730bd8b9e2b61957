package sig_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/big"
	"reflect"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/sig"
)

// oracleStream adds a field after each block of data.
func oracleStream(f sig.Format, data []byte) []byte {
	var s []byte
	for n := uint64(0); len(data) >= f.BlockSize; n++ {
		s = append(s, data[:f.BlockSize]...)
		if f.Type != sig.NoSignature {
			s = append(s, oracleField(f, data[:f.BlockSize], n).bytes(f.Type)...)
		}
		data = data[f.BlockSize:]
	}
	return append(s, data...)
}

// TestStreams runs Protect, Verify, Strip and Generate on streams of every
// length near multiples of the block size.
func TestStreams(t *testing.T) {
	r := newRand(t, 0x52)
	for _, typ := range []sig.Type{sig.T10DIF, sig.CRC32, sig.CRC32C, sig.CRC64} {
		for length := range 200 {
			f := randomFormat(r, typ, 40)
			data := make([]byte, length)
			fill(r, data)
			want := oracleStream(f, data)
			if int64(len(want)) != f.StreamLen(int64(length)) {
				t.Fatalf("%v: StreamLen(%d) = %d, want %d", f, length, f.StreamLen(int64(length)), len(want))
			}
			if got := f.DataLen(int64(len(want))); got != int64(length) {
				t.Fatalf("%v: DataLen(%d) = %d, want %d", f, len(want), got, length)
			}
			got := make([]byte, len(want)+3)
			n, err := f.Protect(got, data)
			if err != nil || n != len(want) || !bytes.Equal(got[:n], want) || !bytes.Equal(got[n:], []byte{0, 0, 0}) {
				t.Fatalf("%v: Protect of %d bytes: %d, %v", f, length, n, err)
			}
			if err := f.Verify(want); err != nil {
				t.Fatalf("%v: %v", f, err)
			}
			back := make([]byte, length)
			if n, err := f.Strip(back, want); err != nil || n != length || !bytes.Equal(back, data) {
				t.Fatalf("%v: Strip: %d, %v", f, n, err)
			}
			blank := bytes.Clone(want)
			for i := f.BlockSize; i+f.FieldSize() <= len(blank); i += f.Stride() {
				fill(r, blank[i:i+f.FieldSize()])
			}
			if err := f.Generate(blank); err != nil || !bytes.Equal(blank, want) {
				t.Fatalf("%v: Generate of %d bytes: %v", f, len(blank), err)
			}
		}
	}
}

// TestConvert converts between all formats, with correct and damaged input. The
// expected output is computed by removing the fields and generating the other
// ones.
func TestConvert(t *testing.T) {
	r := newRand(t, 0x53)
	sizes := []int{8, 16, 24, 40, 104, 512, 520, 4096, 4160}
	for range 3000 {
		from := randomFormat(r, sig.Type(r.IntN(5)), pick(r, sizes...))
		to := randomFormat(r, sig.Type(r.IntN(5)), pick(r, sizes...))
		if from.Type == sig.NoSignature && to.Type == sig.NoSignature {
			continue // TestNoSignature covers this
		}
		length := r.IntN(3 * max(from.BlockSize, to.BlockSize))
		if r.IntN(100) == 0 {
			length = 70000 + r.IntN(5000) // longer than one step
		}
		data := make([]byte, length)
		fill(r, data)
		src := oracleStream(from, data)
		spoiled := r.IntN(3) == 0 && len(src) > 0
		if spoiled {
			// Damage the data only, so that every field has the form that its
			// format requires.
			block := r.IntN(len(src)/from.Stride() + 1)
			at := min(block*from.Stride()+r.IntN(from.BlockSize), len(src)-1)
			if at%from.Stride() < from.BlockSize {
				src[at] ^= 1 << r.IntN(8)
				data[at/from.Stride()*from.BlockSize+at%from.Stride()] = src[at]
			}
		}
		// Plain data has no blocks of its own; it uses the block size of the
		// other side.
		out := to
		if to.Type == sig.NoSignature {
			out.BlockSize = from.BlockSize
		}
		in := from
		if from.Type == sig.NoSignature {
			in.BlockSize = out.BlockSize
		}
		want := oracleStream(out, data)
		var wantErr error
		whole := len(src) / in.Stride()
		for i := range whole {
			if in.Type == sig.NoSignature {
				break
			}
			b := src[i*in.Stride():][:in.Stride()]
			if in.BlockSize == out.BlockSize {
				made := want[i*out.Stride()+out.BlockSize:][:out.FieldSize()]
				copy(made, oracleKeep(in, out, b[:in.BlockSize], b[in.BlockSize:], bytes.Clone(made), uint64(i)))
			}
			e, ok := oracleCheck(in, sig.MaskAll, b[:in.BlockSize], b[in.BlockSize:], uint64(i))
			if ok {
				continue
			}
			if wantErr == nil {
				wantErr = &e
			}
			// Between equal blocks the guard is copied, so a bad guard stays
			// bad.
			if in.Type == out.Type && in.BlockSize == out.BlockSize && in.Guard == out.Guard && oracleOnes(in) == oracleOnes(out) {
				guard := in.FieldSize()
				if in.Type == sig.T10DIF {
					guard = 2
				}
				copy(want[i*out.Stride()+out.BlockSize:], b[in.BlockSize:][:guard])
			}
		}
		dst := make([]byte, len(want))
		n, err := from.Convert(to, dst, src)
		if n != len(want) || !reflect.DeepEqual(err, wantErr) {
			t.Fatalf("%v to %v, %d bytes: %d, %v; want %d, %v", from, to, len(src), n, err, len(want), wantErr)
		}
		// An escaped block may carry over a bad guard without a report. The
		// oracle knows only reported blocks.
		if !bytes.Equal(dst, want) && !(spoiled && wantErr == nil) {
			t.Fatalf("%v to %v, %d bytes: streams differ", from, to, len(src))
		}
	}
}

// Every single-bit flip in protected blocks must be reported with the right block, kind
// and values, and no other error.
func TestEveryBitFlip(t *testing.T) {
	r := newRand(t, 0x54)
	for _, spec := range []string{
		"t10dif:64,app=0x5678,ref=0x1", "t10dif:64,seed=ones,no-remap,app-ref-escape", "t10dif:64,guard=csum,app=0x1", "t10dif:64,guard=csum,seed=ones,no-remap,ref=0xffffffff",
		"crc32:64", "crc32:64,seed=0", "crc32c:64", "crc32c:64,seed=0", "crc64:64", "crc64:64,seed=0",
	} {
		f := must(sig.ParseFormat(spec))
		const n, first = 11, 1000
		data := make([]byte, n*f.BlockSize)
		fill(r, data)
		f2 := f
		if f.Type == sig.T10DIF && oracleRemap(f) {
			f2.RefTag += first
		}
		stream := oracleStream(f2, data)
		b := sig.Interleaved(f, stream)
		tr := must(sig.NewTransform(sig.TransformConfig{In: f}))
		for bit := range len(stream) * 8 {
			stream[bit/8] ^= 1 << (bit % 8)
			block := bit / 8 / f.Stride()
			whole := stream[block*f.Stride():][:f.Stride()]
			want, ok := oracleCheck(f, sig.MaskAll, whole[:f.BlockSize], whole[f.BlockSize:], first+uint64(block))
			if ok {
				t.Fatalf("%s: the oracle does not see bit %d", spec, bit)
			}
			var got collector
			tr.Run(b, b, n, first, got.add)
			if err := tr.Run(b, b, n, first, nil); !reflect.DeepEqual(err, error(&want)) {
				t.Fatalf("%s: bit %d: %v, want %+v", spec, bit, err, want)
			}
			if len(got.bad) != 1 || got.bad[0] != want {
				t.Fatalf("%s: bit %d: reported %+v, want %+v", spec, bit, got.bad, want)
			}
			stream[bit/8] ^= 1 << (bit % 8)
		}
		if err := f2.Verify(stream); err != nil {
			t.Fatalf("%s: restored stream: %v", spec, err)
		}
	}
}

func TestStreamErrors(t *testing.T) {
	f := sig.Format{Type: sig.T10DIF}
	buf := make([]byte, 520)
	big := make([]byte, 2000)
	for _, test := range []struct {
		name string
		err  error
	}{
		{"Verify inside a field", f.Verify(buf[:515])},
		{"Generate inside a field", f.Generate(buf[:519])},
		{"VerifyEach inside a field", f.VerifyEach(buf[:513], nil)},
		{"Strip inside a field", second(f.Strip(big, buf[:513]))},
		{"Protect, short", second(f.Protect(buf[:519], big[:512]))},
		{"Strip, short", second(f.Strip(big[:511], buf))},
		{"Convert, short", second(f.Convert(sig.Format{Type: sig.CRC32}, big[:515], buf))},
		{"invalid", sig.Format{Type: sig.CRC32, BlockSize: 4}.Verify(buf)},
		{"invalid target", second(f.Convert(sig.Format{Type: 9}, big, buf))},
	} {
		if !errors.Is(test.err, syscall.EINVAL) {
			t.Errorf("%s: %v, want EINVAL", test.name, test.err)
		}
	}
}

// TestNoSignature checks that the zero Format is refused. A program that forgot
// to set it would accept every stream as correct.
func TestNoSignature(t *testing.T) {
	none, plain := sig.Format{}, sig.Format{BlockSize: 4096}
	dst, buf := make([]byte, 9000), make([]byte, 8192)
	fill(newRand(t, 0x57), buf)
	report := func(sig.Error) bool { t.Error("a bad block of plain data"); return true }
	for name, err := range map[string]error{
		"Generate":       none.Generate(buf),
		"Protect":        second(none.Protect(dst, buf)),
		"Verify":         none.Verify(buf),
		"VerifyEach":     none.VerifyEach(buf, report),
		"Strip":          second(none.Strip(dst, buf)),
		"Convert":        second(none.Convert(plain, dst, buf)),
		"Verify, blocks": plain.Verify(buf),
		"Verify, empty":  none.Verify(nil),
	} {
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v, want EINVAL", name, err)
		}
	}
	if !bytes.Equal(dst, make([]byte, len(dst))) {
		t.Error("a refused format has written")
	}
	panics(t, "a Transform that is the zero value", func() {
		new(sig.Transform).Run(sig.Interleaved(none, dst), sig.Interleaved(none, buf), 1, 0, nil)
	})
}

func second[T any](_ T, err error) error { return err }

// TestTailIsNotChecked checks that an incomplete last block passes unchecked.
func TestTailIsNotChecked(t *testing.T) {
	f := sig.Format{Type: sig.T10DIF}
	if err := f.Verify(bytes.Repeat([]byte{1}, 511)); err != nil {
		t.Error(err)
	}
	stream := make([]byte, 520+511)
	noErr(t, f.Generate(stream))
	stream[520]++ // in the tail
	data := make([]byte, 1023)
	if n, err := f.Strip(data, stream); n != 1023 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	stream[0]++
	var bad *sig.Error
	if _, err := f.Strip(data, stream); !errors.As(err, &bad) || bad.Block != 0 {
		t.Errorf("%v, want block 0", err)
	}
}

// TestMisuse checks that arguments which would give wrong data or an empty check are refused.
func TestMisuse(t *testing.T) {
	f := sig.Format{Type: sig.T10DIF}
	buf := make([]byte, 10*520)
	for name, call := range map[string]func(){
		"Protect, dst before src": func() { f.Protect(buf, buf[100:][:3*512]) },
		"Protect, dst after src":  func() { f.Protect(buf[100:], buf[:3*512]) },
		"Protect in place":        func() { f.Protect(buf, buf[:3*512]) },
		"Protect one block":       func() { f.Protect(buf, buf[:600]) },
		"Strip, dst after src":    func() { f.Strip(buf[8:], buf[:3*520]) },
		"Strip in place":          func() { f.Strip(buf, buf[:3*520]) },
		"Convert to other blocks": func() { f.Convert(sig.Format{Type: sig.T10DIF, BlockSize: 1024}, buf, buf[:4*520]) },
		"Convert, shifted":        func() { f.Convert(sig.Format{Type: sig.T10DIF, RefTag: 1}, buf[1:], buf[:4*520]) },
	} {
		panics(t, name, call)
	}
	// Blocks and fields of one size may be converted in place.
	noErr(t, f.Generate(buf))
	to := sig.Format{Type: sig.T10DIF, RefTag: 7}
	must(f.Convert(to, buf, buf))
	noErr(t, to.Verify(buf))

	b := sig.Interleaved(f, buf)
	panics(t, "Run of -1 blocks", func() { must(sig.NewTransform(sig.TransformConfig{In: f})).Run(b, b, -1, 0, nil) })
	for _, f := range []sig.Format{f, {Type: sig.CRC32, BlockSize: 8}, {Type: sig.NVMe64, Metadata: 64}, {}} {
		for _, n := range []int64{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 / 2, 1 << 62} {
			got, want := f.StreamLen(n), new(big.Int).SetInt64(n/int64(f.Block()))
			want.Add(want.Mul(want, big.NewInt(int64(f.FieldSize()))), big.NewInt(n))
			if want.IsInt64() && got != want.Int64() || !want.IsInt64() && got != math.MaxInt64 {
				t.Errorf("%v: StreamLen(%d) = %d, want %v", f, n, got, want)
			}
		}
	}
}

// TestTruncated cuts a stream at every length. What lacks its last field or a part of it is an error everywhere, and
// what ends inside a block or after a field is none.
func TestTruncated(t *testing.T) {
	for _, f := range []sig.Format{{Type: sig.T10DIF, BlockSize: 16}, {Type: sig.CRC32C, BlockSize: 8}, {Type: sig.NVMe64, BlockSize: 24, Metadata: 24}} {
		stream := make([]byte, 3*f.Stride())
		fatal.If(t, f.Generate(stream))
		to := sig.Format{Type: sig.CRC64, BlockSize: f.BlockSize}
		room := make([]byte, 2*len(stream)+64)
		for n := range len(stream) + 1 {
			cut := stream[:n:n]
			reader, err := sig.NewReader(bytes.NewReader(cut), f)
			fatal.If(t, err)
			_, read := io.ReadAll(reader)
			for name, err := range map[string]error{
				"Generate": f.Generate(cut),
				"Verify":   f.Verify(cut),
				"Strip":    second(f.Strip(room, cut)),
				"Convert":  second(f.Convert(to, room, cut)),
				"recut":    second(f.Convert(sig.Format{Type: sig.CRC64, BlockSize: 40}, room, cut)),
				"Reader":   read,
			} {
				if truncated := n%f.Stride() >= f.Block(); errors.Is(err, io.ErrUnexpectedEOF) != truncated || errors.Is(err, syscall.EINVAL) != truncated {
					t.Errorf("%v, %d bytes: %s: %v", f, n, name, err)
				}
			}
		}
	}
}

// TestErrorsNameTheCall asks each call of a stream for an error, which must name that call.
func TestErrorsNameTheCall(t *testing.T) {
	f := sig.Format{Type: sig.CRC32}
	buf := make([]byte, 516)
	for op, err := range map[string]error{
		"sig protect": second(f.Protect(buf[:515], buf[:512])),
		"sig strip":   second(f.Strip(buf[:511], buf)),
		"sig convert": second(f.Convert(sig.Format{Type: sig.CRC64}, buf[:515], buf)),
		"sig verify":  f.Verify(buf[:513]),
	} {
		var refused *operr.Error
		if !errors.As(err, &refused) || refused.Op != op {
			t.Errorf("%s: %v", op, err)
		}
	}
}
