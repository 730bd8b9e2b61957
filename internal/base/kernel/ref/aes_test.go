package ref

import (
	"crypto/aes"
	"testing"
)

// TestExpandKey compares AES with these round keys with crypto/aes.
func TestExpandKey(t *testing.T) {
	for _, size := range []int{16, 32} {
		key := make([]byte, size)
		for i := range key {
			key[i] = byte(i*i + 7)
		}
		c, err := aes.NewCipher(key)
		if err != nil {
			t.Fatal(err)
		}
		var zero, want [16]byte
		c.Encrypt(want[:], zero[:])
		keys := ExpandKey(key)
		if got := encrypt(keys, zero); got != want {
			t.Errorf("AES-%d: %x, want %x", size*8, got, want)
		}
		// INVMIXCOLUMNS undoes MIXCOLUMNS.
		if got := InverseMixColumns(columns(keys[1], [4]byte{2, 3, 1, 1})); got != keys[1] {
			t.Errorf("%x, want %x", got, keys[1])
		}
	}
}

// encrypt is CIPHER (FIPS 197, 5.1).
func encrypt(keys [][16]byte, b [16]byte) [16]byte {
	for r, key := range keys {
		if r > 0 {
			var s [16]byte
			for i := range s {
				s[i] = sbox(b[(i+4*(i%4))%16])
			}
			if b = s; r < len(keys)-1 {
				b = columns(b, [4]byte{2, 3, 1, 1})
			}
		}
		for i := range b {
			b[i] ^= key[i]
		}
	}
	return b
}
