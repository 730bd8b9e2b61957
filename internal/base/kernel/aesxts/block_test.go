package aesxts

import (
	"crypto/aes"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/softmkey/softmkey/internal/base/cpu"
)

// TestBlock compares every tier, including plain Go, with crypto/aes on random keys.
func TestBlock(t *testing.T) {
	for _, tier := range cpu.Available() {
		for _, size := range []int{16, 32} {
			t.Run(fmt.Sprintf("%v/%d", tier, size*8), func(t *testing.T) {
				r := newRand()
				for range 500 {
					key := randomBytes(r, size)
					b := NewBlock(tier, make([]byte, BlockMemorySize), key)
					c, err := aes.NewCipher(key)
					if err != nil {
						t.Fatal(err)
					}
					x := [BlockSize]byte(randomBytes(r, BlockSize))
					got, want := x, x
					b.Encrypt(&got)
					c.Encrypt(want[:], want[:])
					if got != want {
						t.Fatalf("key %x: %x encrypts to %x, want %x", key, x, got, want)
					}
					got, want = x, x
					b.Decrypt(&got)
					c.Decrypt(want[:], want[:])
					if got != want {
						t.Fatalf("key %x: %x decrypts to %x, want %x", key, x, got, want)
					}
				}
			})
		}
	}
}

// TestFIPS197 checks examples 1 and 3 of the standard's appendix C.
func TestFIPS197(t *testing.T) {
	plain, _ := hex.DecodeString("00112233445566778899aabbccddeeff")
	for _, want := range []string{"69c4e0d86a7b0430d8cdb78070b4c55a", "8ea2b7ca516745bfeafc49904b496089"} {
		key := make([]byte, 16)
		if want[0] == '8' {
			key = make([]byte, 32)
		}
		for i := range key {
			key[i] = byte(i)
		}
		for _, tier := range cpu.Available() {
			b := NewBlock(tier, make([]byte, BlockMemorySize), key)
			x := [BlockSize]byte(plain)
			b.Encrypt(&x)
			if got := hex.EncodeToString(x[:]); got != want {
				t.Errorf("%v, %d bit: %s, want %s", tier, len(key)*8, got, want)
			}
			if b.Decrypt(&x); x != [BlockSize]byte(plain) {
				t.Errorf("%v, %d bit: decrypts to %x", tier, len(key)*8, x)
			}
		}
	}
}
