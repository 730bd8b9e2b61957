package filecopy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/mkeytest"
	"github.com/softmkey/softmkey/internal/tool/device/devicetest"
	"github.com/softmkey/softmkey/internal/tool/keyplan"
	"github.com/softmkey/softmkey/internal/tool/keyplan/plantest"
	"github.com/softmkey/softmkey/verbs"
	"github.com/softmkey/softmkey/xts"
)

// timeout ends a test that hangs. No result depends on it.
func timeout(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func random(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 0x5EED))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

var keyBytes = random(99, 64)

func newDEK(t testing.TB) *dek.DEK {
	t.Helper()
	d, err := dek.New(keyBytes)
	fatal.If(t, err)
	return d
}

// file is a file for a plan's SRC, with the expected results computed from the
// definitions.
type file struct {
	src, wire, dst []byte
}

// newFile creates a file with n bytes of data. SRC is what the sender's key would receive from
// the wire, so that the key finds no error in it.
func newFile(t testing.TB, p *keyplan.Plan, seed uint64, n int) file {
	t.Helper()
	data := random(seed, n)
	s, r := oracle(t, &p.Sender), oracle(t, &p.Receiver)
	var f file
	switch {
	case !p.Sender.Plain():
		f.wire = data
		if p.Wire.Format != nil {
			f.wire = mkeytest.Protect(p.Wire.Format, data)
		}
		if p.Wire.Encrypted == keyplan.StreamEncrypted {
			f.wire = crypt(p, &p.Sender, f.wire)
		}
		f.src = rx(t, s, f.wire)
		f.wire = tx(t, s, f.src) // a key that copies tags may put others on the wire
	case p.Wire.Format != nil:
		// The receiver's key determines the wire domain.
		f.wire = mkeytest.Protect(p.Wire.Format, data)
		f.wire = crypt(p, &p.Receiver, f.wire)
		f.src = f.wire
	default:
		f.src, f.wire = data, data
	}
	f.dst = f.wire
	if !p.Receiver.Plain() {
		f.dst = rx(t, r, f.wire)
	}
	return f
}

func crypt(p *keyplan.Plan, k *keyplan.Key, b []byte) []byte {
	if k.Crypto == nil {
		return b
	}
	c, err := xts.New(keyBytes)
	if err != nil {
		panic(err)
	}
	out := make([]byte, len(b))
	c.Encrypt(out, b, k.Crypto.DataUnitSize, k.Crypto.InitialTweak)
	return out
}

func oracle(t testing.TB, k *keyplan.Key) *mkeytest.Oracle {
	t.Helper()
	o := &mkeytest.Oracle{Signature: k.Signature, Crypto: k.Crypto}
	if k.Crypto != nil {
		c, err := xts.New(keyBytes)
		fatal.If(t, err)
		o.Cipher = c
	}
	return o
}

func tx(t testing.TB, o *mkeytest.Oracle, b []byte) []byte {
	t.Helper()
	out, bad, ok := o.TX(b)
	if !ok || len(bad) > 0 {
		t.Fatalf("oracle TX of %d bytes: ok %v, bad %v", len(b), ok, bad)
	}
	return out
}

func rx(t testing.TB, o *mkeytest.Oracle, b []byte) []byte {
	t.Helper()
	out, bad, ok := o.RX(b)
	if !ok || len(bad) > 0 {
		t.Fatalf("oracle RX of %d bytes: ok %v, bad %v", len(b), ok, bad)
	}
	return out
}

func TestEveryKey(t *testing.T) {
	for _, op := range []string{keyplan.Write, keyplan.Send, keyplan.Read} {
		t.Run(op, func(t *testing.T) {
			a, b := devicetest.Pair(t)
			for i, row := range plantest.Rows {
				terms := row.Terms
				terms.Op = op
				plan, err := keyplan.New(terms, 16<<10)
				if err != nil {
					t.Errorf("%s: %v", row.Name, err)
					continue
				}
				// Some sizes have an incomplete last block. Those that AES-XTS cannot
				// process are left out.
				for _, n := range []int{0, 100, 16 * 1040, int(plan.Chunk), 20*int(plan.Chunk) + 4096, 2*int(plan.Chunk) + 777} {
					if plan.CheckData(int64(n)) != nil {
						continue
					}
					copyOne(t, fmt.Sprintf("%s, %d bytes", row.Name, n), a, b, plan, newFile(t, plan, uint64(i), n))
				}
			}
		})
	}
}

func copyOne(t *testing.T, name string, a, b *verbs.Device, plan *keyplan.Plan, f file) {
	t.Helper()
	var dst bytes.Buffer
	key := newDEK(t)
	defer key.Close()
	side := SideConfig{Secret: Secret{DEK: key}}
	committed := false
	sent, received, err := Local(timeout(t), a, b, plan,
		SenderConfig{SideConfig: side, Src: bytes.NewReader(f.src), Flip: -1},
		ReceiverConfig{SideConfig: side, Dst: &dst, Commit: func() error { committed = true; return nil }})
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	if !bytes.Equal(dst.Bytes(), f.dst) {
		t.Errorf("%s: DST has %d bytes and is not the %d bytes expected", name, dst.Len(), len(f.dst))
	}
	if !committed {
		t.Errorf("%s: not committed", name)
	}
	report := NewReport(plan, a, b, sent, received)
	for _, d := range []struct {
		name string
		got  Contents
		want []byte
		in   keyplan.Stream
	}{{"memory", report.Memory, f.src, plan.Memory.Stream}, {"wire", report.Wire, f.wire, plan.Wire.Stream}, {"peer", report.Peer, f.dst, plan.Peer.Stream}} {
		l := sampleOf(d.want, d.in)
		field := ""
		if d.in.Field > 0 && l.Width > 0 {
			// The report has a field as one number, and CRC32C and CRC64 are little-endian.
			b := slices.Clone(l.Field[:l.Width])
			if strings.HasPrefix(d.got.Signature, "crc32c") || strings.HasPrefix(d.got.Signature, "crc64") {
				slices.Reverse(b)
			}
			field = fmt.Sprintf("%#x", new(big.Int).SetBytes(b))
		}
		if want := (Contents{d.got.Signature, d.got.Encrypted, int64(len(d.want)), fmt.Sprintf("%x", l.First[:l.N]), field}); d.got != want {
			t.Errorf("%s: %s was %+v, want %+v", name, d.name, d.got, want)
		}
	}
	if report.Sender.First != nil || report.Receiver.First != nil {
		t.Errorf("%s: %+v", name, report)
	}
}

// TestSourceChanges copies files that become shorter or longer during the copy.
func TestSourceChanges(t *testing.T) {
	a, b := devicetest.Pair(t)
	plan, err := keyplan.New(keyplan.Terms{Wire: "t10dif"}, 16<<10)
	fatal.If(t, err)
	src := random(1, 100<<10)
	for _, tc := range []struct {
		size int64
		ok   bool
	}{
		{100 << 10, true}, {100<<10 + 1, false}, {112 << 10, false}, {1 << 30, false},
		{96 << 10, true}, {1, true}, {99<<10 + 7, true},
	} {
		var dst bytes.Buffer
		_, _, err := Local(timeout(t), a, b, plan, SenderConfig{Src: bytes.NewReader(src), Size: tc.size, Flip: -1}, ReceiverConfig{Dst: &dst})
		switch {
		case tc.ok && (err != nil || !bytes.Equal(dst.Bytes(), src[:tc.size])):
			t.Errorf("size %d: %v, %d bytes", tc.size, err, dst.Len())
		case !tc.ok && !errors.Is(err, io.ErrUnexpectedEOF):
			t.Errorf("size %d: %v", tc.size, err)
		}
	}
}
