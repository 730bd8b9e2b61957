package filecopy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/mkey/mkeytest"
	"github.com/softmkey/softmkey/roce/inproc"
	"github.com/softmkey/softmkey/verbs"
	"github.com/softmkey/softmkey/xts"
)

// devices returns two devices on a network inside the process.
func devices(t testing.TB) (a, b *verbs.Device) {
	t.Helper()
	na, nb := inproc.Pair(nil)
	var devs [2]*verbs.Device
	for i, conn := range []*inproc.Conn{na, nb} {
		dev, err := verbs.Open(conn.LocalAddr().Addr(), &verbs.Options{Conn: conn})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		})
		devs[i] = dev
	}
	return devs[0], devs[1]
}

// timeout ends a test that hangs; it asserts nothing.
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
	d, err := dek.New(dek.Attr{Size: dek.Size256, Key: keyBytes})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// rows are the terms that the tests go through: each kind of key on each side.
var rows = []struct {
	name  string
	terms Terms
}{
	{"plain", Terms{}},
	{"wire", Terms{Wire: "t10dif"}},
	{"wire to peer memory", Terms{Wire: "t10dif", PeerMem: "t10dif,app=7"}},
	{"memory", Terms{Mem: "crc32c:4096"}},
	{"all three", Terms{Mem: "crc32c:4096", Wire: "t10dif:512,ref=0xFFFFFF00", PeerMem: "crc64:4160"}},
	{"type 3", Terms{Mem: "t10dif:520,type3,ref=9", Wire: "t10dif:520,type3,ref=10"}},
	{"copied", Terms{Mem: "t10dif,app=1", Wire: "t10dif,app=2", CheckMask: "0xC0", CopyMask: "0x3F", PeerMem: "t10dif,app=2", PeerCheckMask: "0xCF", PeerCopyMask: "0x30"}},
	{"row A to A", Terms{Crypto: "encrypt", PeerCrypto: "decrypt", Tweak: "0xFFFFFFFFFFFFFFF0"}},
	{"row A to ciphertext", Terms{Crypto: "encrypt", Unit: "4096"}},
	{"row A to signed ciphertext", Terms{Crypto: "encrypt", Unit: "4096", PeerMem: "crc32:520"}},
	{"row A to D", Terms{Crypto: "encrypt", PeerCrypto: "decrypt", PeerMem: "t10dif"}},
	{"row B to B", Terms{Crypto: "encrypt", Order: "after", Wire: "crc64:4096", PeerCrypto: "decrypt"}},
	{"row B to ciphertext", Terms{Crypto: "encrypt", Order: "after", Wire: "t10dif"}},
	{"row C to C", Terms{Crypto: "encrypt", Order: "before", Wire: "t10dif", PeerCrypto: "decrypt", PeerOrder: "after"}},
	{"row C to ciphertext", Terms{Crypto: "encrypt", Order: "before", Wire: "t10dif"}},
	{"row D to A", Terms{Crypto: "encrypt", Order: "before", Mem: "t10dif", PeerCrypto: "decrypt"}},
	{"row E to E", Terms{Crypto: "encrypt", Order: "before", Mem: "crc32", Wire: "t10dif", Unit: "4160", PeerCrypto: "decrypt", PeerMem: "crc32c"}},
	{"row F", Terms{Crypto: "decrypt"}},
	{"row F to F", Terms{Crypto: "decrypt", PeerCrypto: "encrypt", Unit: "4048"}},
	{"row G to G", Terms{Crypto: "decrypt", Order: "after", Wire: "t10dif", PeerCrypto: "encrypt"}},
	{"row H to H", Terms{Crypto: "decrypt", Order: "after", Mem: "t10dif", PeerCrypto: "encrypt", PeerOrder: "before", PeerMem: "t10dif"}},
	{"row I to I", Terms{Crypto: "decrypt", Order: "after", Mem: "t10dif", Wire: "crc32c", PeerCrypto: "encrypt", PeerOrder: "before", PeerMem: "t10dif"}},
	{"row J to J", Terms{Crypto: "decrypt", Order: "before", Mem: "crc64", PeerCrypto: "encrypt", PeerOrder: "after", PeerMem: "crc64"}},
	{"ciphertext to A", Terms{PeerCrypto: "decrypt"}},
	{"signed ciphertext to A", Terms{Mem: "crc32c", PeerCrypto: "decrypt"}},
	{"ciphertext to B", Terms{Wire: "t10dif", PeerCrypto: "decrypt", PeerOrder: "before"}},
	{"ciphertext to C", Terms{Wire: "t10dif", PeerCrypto: "decrypt", PeerOrder: "after"}},
	{"ciphertext to E", Terms{Wire: "t10dif", PeerCrypto: "decrypt", PeerOrder: "after", PeerMem: "crc32c"}},
}

// file is a file for a plan's SRC with what the plain definitions make of it.
type file struct {
	src, wire, dst []byte
}

// newFile makes a file of n bytes of data. What SRC must hold for its key to find
// nothing bad is found by running the other way.
func newFile(t testing.TB, p *Plan, seed uint64, n int) file {
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
		if p.Wire.Encrypted == StreamEncrypted {
			f.wire = crypt(p, &p.Sender, f.wire)
		}
		f.src = rx(t, s, f.wire)
		f.wire = tx(t, s, f.src) // copied tags may differ from generated ones
	case p.Wire.Format != nil:
		// The receiver's key says what the wire must be.
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

func crypt(p *Plan, k *Key, b []byte) []byte {
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

func oracle(t testing.TB, k *Key) *mkeytest.Oracle {
	t.Helper()
	o := &mkeytest.Oracle{Signature: k.Signature, Crypto: k.Crypto}
	if k.Crypto != nil {
		c, err := xts.New(keyBytes)
		if err != nil {
			t.Fatal(err)
		}
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
	for _, op := range []string{Write, Send, Read} {
		t.Run(op, func(t *testing.T) {
			a, b := devices(t)
			for i, row := range rows {
				terms := row.terms
				terms.Op = op
				plan, err := newPlan(terms, 16<<10)
				if err != nil {
					t.Errorf("%s: %v", row.name, err)
					continue
				}
				// Sizes with a part of a block at the end, as far as AES-XTS can do them.
				for _, n := range []int{0, 100, 16 * 1040, int(plan.Chunk), 20*int(plan.Chunk) + 4096, 2*int(plan.Chunk) + 777} {
					if plan.CheckData(int64(n)) != nil {
						continue
					}
					copyOne(t, fmt.Sprintf("%s, %d bytes", row.name, n), a, b, plan, newFile(t, plan, uint64(i), n))
				}
			}
		})
	}
}

func copyOne(t *testing.T, name string, a, b *verbs.Device, plan *Plan, f file) {
	t.Helper()
	var dst bytes.Buffer
	key := newDEK(t)
	defer key.Close()
	committed := false
	sent, received, err := Local(timeout(t), a, b, plan,
		SenderConfig{Src: bytes.NewReader(f.src), Secret: Secret{DEK: key}, Flip: -1},
		ReceiverConfig{Dst: &dst, Secret: Secret{DEK: key}, Commit: func() error { committed = true; return nil }})
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
		got  Stood
		want []byte
		in   stream
	}{{"memory", report.Memory, f.src, plan.Memory.stream}, {"wire", report.Wire, f.wire, plan.Wire.stream}, {"peer", report.Peer, f.dst, plan.Peer.stream}} {
		l := lookAt(d.want, d.in)
		if want := (Stood{d.got.Signature, d.got.Encrypted, int64(len(d.want)), fmt.Sprintf("%x", l.first[:l.n]), fmt.Sprintf("%x", l.field[:l.width])}); d.got != want {
			t.Errorf("%s: %s was %+v, want %+v", name, d.name, d.got, want)
		}
	}
	if report.Sender.First != nil || report.Receiver.First != nil {
		t.Errorf("%s: %+v", name, report)
	}
}

// TestSourceChanges copies files that shrink or grow meanwhile.
func TestSourceChanges(t *testing.T) {
	a, b := devices(t)
	plan, err := newPlan(Terms{Wire: "t10dif"}, 16<<10)
	if err != nil {
		t.Fatal(err)
	}
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
