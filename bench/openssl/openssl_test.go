package openssl

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/cpu"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/base/kernel/aesxts"
	"github.com/softmkey/softmkey/xts"
)

const seed = 3394

func newRand() *rand.Rand { return rand.New(rand.NewPCG(seed, 1619)) }

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b[:n:n]
}

// number returns first + i modulo 2^128 as 16 bytes, least significant first. It uses
// math/big to share nothing with package xts.
func number(first xts.Tweak, i int) (le [16]byte) {
	n := new(big.Int).SetUint64(first.Hi)
	n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(first.Lo))
	n.Add(n, big.NewInt(int64(i)))
	n.And(n, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(1)))
	slices.Reverse(n.FillBytes(le[:]))
	return le
}

// randomTweak returns a random number, or one just before a carry between the halves or
// out of 128 bits.
func randomTweak(r *rand.Rand) xts.Tweak {
	t := xts.Tweak{Lo: r.Uint64(), Hi: r.Uint64()}
	switch r.IntN(4) {
	case 0:
		t.Lo = -r.Uint64N(20)
	case 1:
		t = xts.Tweak{Lo: -r.Uint64N(20), Hi: 1<<64 - 1}
	case 2:
		t.Hi = 0
	}
	return t
}

// peer encrypts or decrypts units of src with OpenSSL. The last one may be shorter.
func peer(t *testing.T, key []byte, decrypt bool, src []byte, unit int, tweak xts.Tweak) []byte {
	t.Helper()
	x, err := NewXTS(key, decrypt)
	fatal.If(t, err)
	defer x.Free()
	dst := make([]byte, len(src))
	for n, at := 0, 0; at < len(src); n, at = n+1, at+unit {
		end := min(at+unit, len(src))
		if err := x.Unit(dst[at:end], src[at:end], number(tweak, n)); err != nil {
			t.Fatalf("a %d-byte key, %d bytes in units of %d: unit %d: %v", len(key), len(src), unit, n, err)
		}
	}
	return dst
}

// TestXTS encrypts and decrypts random runs with both implementations. Most runs have a
// shorter last unit.
func TestXTS(t *testing.T) {
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	units := []int{512, 520, 4048, 4096, 4104, 4160}
	r := newRand()
	for i := range rounds {
		key := randomBytes(r, 32<<r.IntN(2))
		unit := units[r.IntN(len(units))]
		if r.IntN(2) == 0 {
			unit = 16 + r.IntN(1200)
		}
		size := r.IntN(12) * unit
		if rest := 16 + r.IntN(unit); rest < unit {
			size += rest
		}
		src, tweak := randomBytes(r, size), randomTweak(r)
		what := fmt.Sprintf("round %d: %d-byte key, %d bytes in units of %d, tweak %v", i, len(key), size, unit, tweak)

		ours, err := xts.New(key)
		fatal.If(t, err)
		for _, decrypt := range []bool{false, true} {
			got, want := make([]byte, size), peer(t, key, decrypt, src, unit, tweak)
			crypt := ours.Encrypt
			if decrypt {
				crypt = ours.Decrypt
			}
			crypt(got, src, unit, tweak)
			if !bytes.Equal(got, want) {
				t.Fatalf("%s, decrypt=%v: differs from OpenSSL", what, decrypt)
			}
			inPlace := bytes.Clone(src)
			crypt(inPlace, inPlace, unit, tweak)
			if !bytes.Equal(inPlace, want) {
				t.Fatalf("%s, decrypt=%v, in place: differs from OpenSSL", what, decrypt)
			}
		}
	}
}

// TestTiers compares every tier by name, with units of all lengths from 16 to 600.
func TestTiers(t *testing.T) {
	for _, tier := range cpu.Available() {
		t.Run(tier.String(), func(t *testing.T) {
			r := newRand()
			for unit := 16; unit <= 600; unit++ {
				key := randomBytes(r, 32<<(unit%2))
				ours := aesxts.New(tier, make([]byte, aesxts.MemorySize), key)
				n := 1 + unit%9
				src, tweak := randomBytes(r, n*unit), randomTweak(r)
				for _, decrypt := range []bool{false, true} {
					got, want := make([]byte, len(src)), peer(t, key, decrypt, src, unit, tweak)
					ours.Crypt(decrypt, got, unit, src, unit, unit, n, tweak.Lo, tweak.Hi)
					if !bytes.Equal(got, want) {
						t.Fatalf("unit %d, %d units, decrypt=%v: differs from OpenSSL", unit, n, decrypt)
					}
				}
			}
		})
	}
}

// TestWrap wraps keys of every size of a device with both implementations.
func TestWrap(t *testing.T) {
	r := newRand()
	for range 50 {
		for _, kekSize := range []int{16, 32} {
			for _, size := range []int{32, 40, 64, 72} {
				kek, key := randomBytes(r, kekSize), randomBytes(r, size)
				want, err := Wrap(kek, key)
				fatal.If(t, err)
				got, err := dek.Wrap(kek, key)
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%d bytes under %d: %x, %v, want %x", size, kekSize, got, err, want)
				}
				back, err := dek.Unwrap(kek, want)
				if err != nil || !bytes.Equal(back, key) {
					t.Fatalf("%d bytes under %d: unwrapped %x, %v, want %x", size, kekSize, back, err, key)
				}
			}
		}
	}
}
