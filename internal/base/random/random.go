// Package random returns random numbers that a peer cannot guess.
package random

import (
	"crypto/rand"
	"encoding/binary"
)

// Uint32 returns 32 random bits.
func Uint32() uint32 {
	var b [4]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return binary.NativeEndian.Uint32(b[:])
}
