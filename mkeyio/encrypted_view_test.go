package mkeyio_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/xts"
)

// TestEncryptionView reads and writes at random what mkeyio.Encryption.Encrypt has written, with units and steps that no key
// has, and of lengths whose last unit is shorter or longer than the others. Then Decrypt must give what was written.
func TestEncryptionView(t *testing.T) {
	key := make([]byte, 64)
	for i := range key {
		key[i] = byte(i * 7)
	}
	d := must(dek.New(key))
	defer d.Close()
	for _, unit := range []int{512, 1024, 4096, 16384} {
		for _, size := range []int{0, 16, 500, unit, unit + 1, unit + 15, unit + 16, 5*unit - 3, 3<<20 + 7, 1<<20 + 5, 1 << 20} {
			t.Run(fmt.Sprint(unit, size), func(t *testing.T) {
				e := mkeyio.Encryption{DEK: d, Unit: unit, Step: 8, Tweak: xts.Tweak{Lo: 1<<64 - 3}}
				plain := bytes.Repeat([]byte("plaintext?"), size/10+1)[:size]
				var stored bytes.Buffer
				must(e.Encrypt(context.Background(), mkeyio.To(&stored), mkeyio.From(bytes.NewReader(plain))))
				s := &bytesStore{b: stored.Bytes()}
				v := must(e.View(s, int64(size)))
				defer v.Close()
				if v.Size() != int64(size) {
					t.Fatalf("size %d", v.Size())
				}
				r := rand.New(rand.NewPCG(uint64(unit), uint64(size)))
				for range 100 {
					if size == 0 {
						break
					}
					at := r.IntN(size)
					n := r.IntN(min(size-at, 3*unit) + 1)
					if r.IntN(4) == 0 { // at the end
						at = max(size-r.IntN(2*unit), 0)
						n = size - at
					}
					if r.IntN(2) == 0 {
						for i := range n {
							plain[at+i] = byte(r.Uint32())
						}
						if m, err := v.WriteAt(plain[at:at+n], int64(at)); m != n || err != nil {
							t.Fatalf("%d bytes written at %d: %d, %v", n, at, m, err)
						}
						continue
					}
					got := make([]byte, n)
					if m, err := v.ReadAt(got, int64(at)); m != n || err != nil && err != io.EOF || !bytes.Equal(got, plain[at:at+n]) {
						t.Fatalf("%d bytes read at %d: %d, %v", n, at, m, err)
					}
				}
				var back bytes.Buffer
				if _, err := e.Decrypt(context.Background(), mkeyio.To(&back), mkeyio.From(bytes.NewReader(s.b))); err != nil || !bytes.Equal(back.Bytes(), plain) {
					t.Errorf("the store is not what was written: %v", err)
				}
			})
		}
	}
	var refused *operr.Error
	if _, err := (mkeyio.Encryption{DEK: d}).View(&bytesStore{}, 15); !errors.As(err, &refused) || refused.Errno != syscall.EMSGSIZE {
		t.Errorf("15 bytes: %v", err)
	}
}

// TestEncryptionViewEnd writes the two sides of the beginning of the last unit at the same time: they are one unit, even
// where a piece of the view would end.
func TestEncryptionViewEnd(t *testing.T) {
	d := must(dek.New([]byte("0123456789abcdefFEDCBA9876543210")))
	defer d.Close()
	e := mkeyio.Encryption{DEK: d, Unit: 512}
	const pieceSize = 1 << 20
	const size = pieceSize + 5 // the last unit begins at pieceSize-512 and ends beyond the piece
	s := &bytesStore{b: make([]byte, size)}
	v := must(e.View(s, size))
	defer v.Close()
	for range 200 {
		var wg sync.WaitGroup
		for _, at := range []int64{pieceSize - 100, pieceSize} {
			wg.Go(func() {
				if _, err := v.WriteAt([]byte("12345"), at); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		got := make([]byte, size)
		if _, err := v.ReadAt(got, 0); err != nil || string(got[pieceSize-100:pieceSize-95]) != "12345" || string(got[pieceSize:]) != "12345" {
			t.Fatalf("%q, %q: %v", got[pieceSize-100:pieceSize-95], got[pieceSize:], err)
		}
		must(v.WriteAt(make([]byte, size), 0))
	}
}
