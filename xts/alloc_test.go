//go:build !race

package xts

import (
	"testing"
)

// TestDoesNotAllocate does not run under the race detector: sync.Pool drops
// items there, so the plain Go tier allocates.
func TestDoesNotAllocate(t *testing.T) {
	buf, out := make([]byte, 9*520), make([]byte, 10*528)
	eachCipher(t, count(64, 0), func(t *testing.T, c *Cipher) {
		for name, f := range map[string]func(){
			"Encrypt":     func() { c.Encrypt(out, buf[:8*520+16], 520, Tweak{}) },
			"Decrypt":     func() { c.Decrypt(buf, buf, 520, Tweak{}) },
			"EncryptUnit": func() { c.EncryptUnit(buf, buf[:520], Tweak{}) },
			"DecryptUnit": func() { c.DecryptUnit(buf, buf[:520], Tweak{}) },
		} {
			if n := testing.AllocsPerRun(100, f); n != 0 {
				t.Errorf("%s: %v allocations", name, n)
			}
		}
	})
}
