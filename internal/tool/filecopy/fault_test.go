package filecopy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/mkeytest"
	"github.com/softmkey/softmkey/internal/tool/device/devicetest"
	"github.com/softmkey/softmkey/internal/tool/keyplan"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/verbs"
)

// attempt copies src and returns the result.
func attempt(t *testing.T, terms keyplan.Terms, sc SenderConfig, rc ReceiverConfig) (*keyplan.Plan, *Outcome, *Outcome, error) {
	t.Helper()
	a, b := devicetest.Pair(t)
	return attemptOn(t, timeout(t), a, b, terms, sc, rc)
}

func attemptOn(t *testing.T, ctx context.Context, a, b *verbs.Device, terms keyplan.Terms, sc SenderConfig, rc ReceiverConfig) (*keyplan.Plan, *Outcome, *Outcome, error) {
	t.Helper()
	p, err := keyplan.New(terms, 16<<10)
	fatal.If(t, err)
	key := newDEK(t)
	t.Cleanup(func() {
		if err := key.Close(); err != nil {
			t.Error(err)
		}
	})
	sc.Secret.DEK, rc.Secret.DEK = key, key
	sent, received, err := Local(ctx, a, b, p, sc, rc)
	return p, sent, received, err
}

// TestFlip flips bytes on the wire. The receiver must find each and report its position
// in the file.
func TestFlip(t *testing.T) {
	data := random(1, 100_000)
	for _, op := range []string{keyplan.Write, keyplan.Send, keyplan.Read} {
		a, b := devicetest.Pair(t)
		for _, at := range []int{0, 511, 512, 515, 519, 520, 16640, 50_000, 101_399} {
			for _, terms := range []keyplan.Terms{
				{Wire: "t10dif:512,app=0x1234,ref=0xFFFFFFF0", PeerMem: "crc32c"},
				{Mem: "crc64:4096", Wire: "t10dif:512,app=0x1234,ref=0xFFFFFFF0"},
			} {
				terms.Op = op
				f, err := sig.ParseFormat(terms.Wire)
				fatal.If(t, err)
				f.BlockSize = 512
				src := data
				if terms.Mem != "" {
					m, _ := sig.ParseFormat(terms.Mem)
					src = mkeytest.Protect(&m, data)
				}
				want := mkeytest.FlipBit(&f, mkeytest.Protect(&f, data), at, 0)

				var dst bytes.Buffer
				committed := false
				_, sent, received, err := attemptOn(t, timeout(t), a, b, terms,
					SenderConfig{Src: bytes.NewReader(src), Flip: int64(at)},
					ReceiverConfig{Dst: &dst, Commit: func() error { committed = true; return nil }})
				var bad *BadError
				if !errors.As(err, &bad) || bad.Side != "receiver" || bad.Block.Sig != want || bad.Block.Domain != mkey.WireDomain {
					t.Errorf("%s, byte %d: %v, want %v", op, at, err, &want)
					continue
				}
				if committed || received.Bad != 1 || sent.PeerBad1 == nil || sent.PeerBad1.Sig != want {
					t.Errorf("%s, byte %d: committed %v, receiver %+v, sender %+v", op, at, committed, received, sent)
				}
			}
		}
	}
}

// TestKeepGoing continues after bad blocks on both sides.
func TestKeepGoing(t *testing.T) {
	memory, _ := sig.ParseFormat("crc32c:4096")
	wire, _ := sig.ParseFormat("t10dif:512")
	data := random(2, 300_000)
	keepGoing := func(told *[]sig.Error) SideConfig {
		return SideConfig{KeepGoing: true, Bad: func(b *mkey.BadBlock) { *told = append(*told, b.Sig) }}
	}
	for _, op := range []string{keyplan.Write, keyplan.Send, keyplan.Read} {
		src := mkeytest.Protect(&memory, data)
		want := []sig.Error{mkeytest.FlipBit(&memory, src, 5000, 3), mkeytest.FlipBit(&memory, src, 250_000, 7)}
		damaged := bytes.Clone(data)
		damaged[4996] ^= 1 << 3 // in SRC a field stands before this byte of data
		damaged[250_000-4*(250_000/4100)] ^= 1 << 7
		onWire := mkeytest.Protect(&wire, damaged)
		wantWire := mkeytest.FlipBit(&wire, onWire, 200_000, 0)
		damaged[200_000-8*(200_000/520)] ^= 1

		var dst bytes.Buffer
		var told, toldWire []sig.Error
		_, sent, received, err := attempt(t, keyplan.Terms{Op: op, Mem: "crc32c:4096", Wire: "t10dif"},
			SenderConfig{SideConfig: keepGoing(&told), Src: bytes.NewReader(src), Flip: 200_000},
			ReceiverConfig{SideConfig: keepGoing(&toldWire), Dst: &dst})
		var bad *BadError
		if !errors.As(err, &bad) || bad.Side != "sender" || bad.Block.Sig != want[0] {
			t.Errorf("%s: %v", op, err)
		}
		if len(told) != 2 || told[0] != want[0] || told[1] != want[1] || len(toldWire) != 1 || toldWire[0] != wantWire {
			t.Errorf("%s: told of %v and %v, want %v and %v", op, told, toldWire, want, wantWire)
		}
		if sent.Bad != 2 || sent.PeerBad != 1 || received.Bad != 1 || received.PeerBad != 2 {
			t.Errorf("%s: %+v, %+v", op, sent, received)
		}
		if !bytes.Equal(dst.Bytes(), damaged) {
			t.Errorf("%s: DST is not what flowed on", op)
		}
	}
}

// TestOneSideKeepsGoing copies data that is bad in memory to a receiver that stops at bad
// data.
func TestOneSideKeepsGoing(t *testing.T) {
	f, _ := sig.ParseFormat("t10dif")
	src := mkeytest.Protect(&f, random(3, 40_000))
	want := mkeytest.FlipBit(&f, src, 30_000, 1)
	committed := false
	_, _, _, err := attempt(t, keyplan.Terms{Mem: "t10dif"},
		SenderConfig{SideConfig: SideConfig{KeepGoing: true}, Src: bytes.NewReader(src), Flip: -1},
		ReceiverConfig{Dst: io.Discard, Commit: func() error { committed = true; return nil }})
	var bad *BadError
	if !errors.As(err, &bad) || bad.Side != "sender" || bad.Block.Sig != want || committed {
		t.Errorf("%v, committed %v", err, committed)
	}
}

func TestFlipMissed(t *testing.T) {
	// The check mask excludes the guard, so the receiver's key does not check the data.
	_, sent, _, err := attempt(t, keyplan.Terms{Wire: "t10dif", CheckMask: "0x3F"},
		SenderConfig{Src: bytes.NewReader(random(4, 4096)), Flip: 100}, ReceiverConfig{Dst: io.Discard})
	if err != nil || !sent.FlipMissed {
		t.Errorf("%+v, %v", sent, err)
	}
	_, _, _, err = attempt(t, keyplan.Terms{Wire: "t10dif"},
		SenderConfig{Src: bytes.NewReader(random(4, 4096)), Flip: 4160}, ReceiverConfig{Dst: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "the wire has only 4160 bytes") {
		t.Errorf("behind the end: %v", err)
	}
}

// failingWriter accepts a number of bytes and then fails.
type failingWriter struct{ left int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

func TestFileErrors(t *testing.T) {
	broken := errors.New("the disk is broken")
	data := random(5, 200_000)
	for _, op := range []string{keyplan.Write, keyplan.Send, keyplan.Read} {
		for _, tc := range []struct {
			name   string
			terms  keyplan.Terms
			src    io.Reader
			dst    io.Writer
			commit error
			want   string
		}{
			{"a source that fails", keyplan.Terms{}, io.MultiReader(bytes.NewReader(data), iotest.ErrReader(broken)), io.Discard, nil, broken.Error()},
			{"a source that fails at once", keyplan.Terms{}, iotest.ErrReader(broken), io.Discard, nil, broken.Error()},
			{"a destination that is full", keyplan.Terms{}, bytes.NewReader(data), &failingWriter{100_000}, nil, io.ErrShortWrite.Error()},
			{"a file that cannot be put in its place", keyplan.Terms{}, bytes.NewReader(data), io.Discard, broken, broken.Error()},
			{"a source that is truncated", keyplan.Terms{Mem: "t10dif"}, bytes.NewReader(data[:1036]), io.Discard, nil, "truncated"},
			{"a length that AES-XTS cannot do", keyplan.Terms{Crypto: "encrypt"}, bytes.NewReader(data[:100_001]), io.Discard, nil, "data units"},
			{"no size, one byte at a time", keyplan.Terms{}, iotest.OneByteReader(bytes.NewReader(data[:40_000])), io.Discard, nil, ""},
		} {
			tc.terms.Op = op
			_, _, _, err := attempt(t, tc.terms,
				SenderConfig{Src: tc.src, Flip: -1}, ReceiverConfig{Dst: tc.dst, Commit: func() error { return tc.commit }})
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s, %s: %v, want %q", op, tc.name, err, tc.want)
			}
		}
	}
}

// endless is a source without end that reports when it is read.
type endless struct{ read chan struct{} }

func (e endless) Read(p []byte) (int, error) {
	select {
	case e.read <- struct{}{}:
	default:
	}
	return len(p), nil
}

func TestInterrupt(t *testing.T) {
	stopped := errors.New("stopped by the user")
	for _, op := range []string{keyplan.Write, keyplan.Send, keyplan.Read} {
		ctx, cancel := context.WithCancelCause(timeout(t))
		src := endless{make(chan struct{})}
		go func() {
			for range 50 {
				<-src.read
			}
			cancel(stopped)
		}()
		a, b := devicetest.Pair(t)
		committed := false
		_, _, _, err := attemptOn(t, ctx, a, b, keyplan.Terms{Op: op}, SenderConfig{Src: src, Flip: -1},
			ReceiverConfig{Dst: io.Discard, Commit: func() error { committed = true; return nil }})
		if !errors.Is(err, stopped) || committed {
			t.Errorf("%s: %v", op, err)
		}
	}
}
