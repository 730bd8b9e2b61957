package mkey_test

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/internal/mkeytest"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// long reports whether the long form of the tests was requested.
var long = os.Getenv("SOFTMKEY_LONG") != ""

// wantErr checks an error's errno and that its text contains the given words.
func wantErr(t *testing.T, err error, errno syscall.Errno, words ...string) {
	t.Helper()
	var op *operr.Error
	if !errors.As(err, &op) || !errors.Is(err, errno) {
		t.Errorf("error %v, want an operr.Error of class %v", err, errno)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

// noErr ends the test if err is not nil.
func noErr(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// second returns the error of a call with two results.
func second[T any](_ T, err error) error { return err }

// newKey returns a key with a valid configuration.
func newKey(t testing.TB, c mkey.KeyConfig) *mkey.Key {
	t.Helper()
	k, err := mkey.New(c)
	noErr(t, err)
	return k
}

// update is a request to configure a key.
type update = keydoor.Update[mkey.Layout, *mkey.Signature, *mkey.Crypto]

// create returns a free key.
func create(flags mkey.Flags, entries int) (*mkey.Key, error) {
	return created(keydoor.Attr{Flags: uint32(flags), MaxEntries: entries})
}

func created(a keydoor.Attr) (*mkey.Key, error) {
	k, err := keydoor.NewKey(a)
	return k.(*mkey.Key), err
}

// configure configures a key as a request does.
func configure(k *mkey.Key, u update) error {
	p, err := keydoor.Of(k).Prepare(&u)
	if err != nil {
		return err
	}
	return keydoor.Of(k).Apply(p)
}

// over returns a layout of one segment.
func over(b []byte) mkey.List {
	return mkey.List{{Memory: mkey.Bytes(b), Length: uint64(len(b))}}
}

// send reads a range of the wire domain as a local SEND does.
func send(t testing.TB, k *mkey.Key, offset, length uint64) []byte {
	t.Helper()
	tx, err := k.NewReader(int64(offset), int64(length))
	noErr(t, err)
	defer tx.Close()
	p := make([]byte, length)
	_, err = tx.ReadAt(p, 0)
	noErr(t, err)
	return p
}

// receive writes wire bytes from an offset on, as a local RECV does.
func receive(t testing.TB, k *mkey.Key, offset uint64, wire []byte) {
	t.Helper()
	rx, err := k.NewWriter(int64(offset), int64(len(wire)))
	noErr(t, err)
	defer rx.Close()
	noErr(t, writeAll(rx, wire))
}

// writeAll writes p, the rest of a transfer, and finishes it.
func writeAll(rx *mkey.Writer, p []byte) error {
	if _, err := rx.Write(p); err != nil {
		return err
	}
	return rx.Finish()
}

// write passes p to a stream by Place, as a transport does, if place is set and there is room, or by Write.
func write(rx keydoor.RX, p []byte, place bool) error {
	if room := rx.Place(len(p)); place && room != nil {
		copy(room, p)
		return rx.Placed(len(p))
	}
	return rx.Write(p)
}

// sendPieces reads p from the beginning of the wire domain, piece bytes at a time. It does not
// allocate: the compiler inlines TX in functions of ordinary size, and keeps the handle on the stack.
func sendPieces(t testing.TB, k *mkey.Key, p []byte, piece int) {
	tx, err := k.NewReader(0, int64(len(p)))
	noErr(t, err)
	for off := 0; off < len(p); off += piece {
		must(tx.ReadAt(p[off:min(off+piece, len(p))], int64(off)))
	}
	tx.Close()
}

// receivePieces writes wire to the beginning of the wire domain, piece bytes at a time.
func receivePieces(t testing.TB, k *mkey.Key, wire []byte, piece int) {
	rx, err := k.NewWriter(0, int64(len(wire)))
	noErr(t, err)
	for p := range slices.Chunk(wire, piece) {
		must(rx.Write(p))
	}
	noErr(t, rx.Finish())
	rx.Close()
}

// check returns the result of Check, which must not fail.
func check(t testing.TB, k *mkey.Key) *mkey.BadBlock {
	t.Helper()
	bad, err := k.Check()
	noErr(t, err)
	return bad
}

// sound checks that Check returns no bad block.
func sound(t testing.TB, k *mkey.Key, what string) {
	t.Helper()
	if bad := check(t, k); bad != nil {
		t.Errorf("%s: %v", what, bad)
	}
}

func equal(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes, want %d; differs at %d", what, len(got), len(want), differ(got, want))
	}
}

func differ(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// pattern returns n bytes in which all blocks differ.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + i>>16*5)
	}
	return b
}

var (
	t10    = &sig.Format{Type: sig.T10DIF}
	crc32  = &sig.Format{Type: sig.CRC32}
	crc64  = &sig.Format{Type: sig.CRC64}
	cipher = must(xts.New(pattern(64)))
)

// crypto returns attributes with a DEK that accepts any keytag.
func crypto(encrypt bool, order mkey.Order, unit int) *mkey.Crypto {
	return &mkey.Crypto{EncryptOnTX: encrypt, Order: order, DataUnitSize: unit, DEK: mkeytest.DEK{Cipher: cipher}}
}
