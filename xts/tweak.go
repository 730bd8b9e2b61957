package xts

import (
	"encoding/binary"
	"math/bits"
)

// Tweak is the number of a data unit: a 128-bit integer, which the standard
// writes as 16 bytes in little-endian order. Its zero value is number 0.
type Tweak struct {
	Lo, Hi uint64 // bits 0 to 63 and 64 to 127
}

// TweakFromBytes returns the tweak whose 16 bytes, least significant first, are b.
func TweakFromBytes(b [16]byte) Tweak {
	return Tweak{Lo: binary.LittleEndian.Uint64(b[:8]), Hi: binary.LittleEndian.Uint64(b[8:])}
}

// Bytes returns the tweak's 16 bytes, least significant first.
func (t Tweak) Bytes() (b [16]byte) {
	binary.LittleEndian.PutUint64(b[:8], t.Lo)
	binary.LittleEndian.PutUint64(b[8:], t.Hi)
	return b
}

// Add returns t+n, modulo 2^128.
func (t Tweak) Add(n uint64) Tweak {
	lo, carry := bits.Add64(t.Lo, n, 0)
	return Tweak{Lo: lo, Hi: t.Hi + carry}
}
