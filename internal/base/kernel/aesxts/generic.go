package aesxts

import (
	"crypto/cipher"
	"crypto/subtle"
	"encoding/binary"
	"sync"
)

// scratch holds what would escape through the cipher.Block interface.
type scratch struct{ tweak, prev [BlockSize]byte }

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// cryptGeneric is the plain Go twin: one block at a time, as the standard tells it.
func cryptGeneric(k1, k2 cipher.Block, decrypt bool, dst []byte, dstStride int, src []byte, srcStride int, unit, n int, lo, hi uint64) {
	s := scratches.Get().(*scratch)
	crypt := k1.Encrypt
	if decrypt {
		crypt = k1.Decrypt
	}
	for i := range n {
		binary.LittleEndian.PutUint64(s.tweak[:8], lo)
		binary.LittleEndian.PutUint64(s.tweak[8:], hi)
		if lo++; lo == 0 {
			hi++
		}
		k2.Encrypt(s.tweak[:], s.tweak[:])
		unitGeneric(crypt, decrypt, dst[i*dstStride:][:unit], src[i*srcStride:][:unit], s)
	}
	*s = scratch{}
	scratches.Put(s)
}

// unitGeneric handles one unit, whose encrypted tweak is in s.
func unitGeneric(crypt func(dst, src []byte), decrypt bool, dst, src []byte, s *scratch) {
	rest := len(src) % BlockSize
	if rest == 0 {
		for i := 0; i < len(src); i += BlockSize {
			blockGeneric(crypt, dst[i:], src[i:], &s.tweak)
			double(&s.tweak)
		}
		return
	}

	// Ciphertext stealing (IEEE Std 1619, 5.3.2 and 5.4.2). All whole blocks but
	// the last are as usual. The last one and the rest swap places, and so do
	// their tweaks when decrypting.
	last := len(src) - rest - BlockSize
	for i := 0; i < last; i += BlockSize {
		blockGeneric(crypt, dst[i:], src[i:], &s.tweak)
		double(&s.tweak)
	}
	first, second := s.tweak, s.tweak
	double(&second)
	if decrypt {
		first, second = second, first
	}
	s.tweak = first
	blockGeneric(crypt, s.prev[:], src[last:], &s.tweak)

	// prev's head is the unit's end; the rest of the input takes the head's place.
	// Each byte is read before it is written, as dst may be src.
	end := last + BlockSize
	for j := range rest {
		b := src[end+j]
		dst[end+j] = s.prev[j]
		s.prev[j] = b
	}
	s.tweak = second
	blockGeneric(crypt, dst[last:], s.prev[:], &s.tweak)
}

// blockGeneric handles one block: tweak, AES, tweak.
func blockGeneric(crypt func(dst, src []byte), dst, src []byte, tweak *[BlockSize]byte) {
	subtle.XORBytes(dst[:BlockSize], src[:BlockSize], tweak[:])
	crypt(dst[:BlockSize], dst[:BlockSize])
	subtle.XORBytes(dst[:BlockSize], dst[:BlockSize], tweak[:])
}

// double multiplies the tweak by x in GF(2^128), modulo x^128 + x^7 + x^2 + x + 1
// (IEEE Std 1619, 5.2): a shift of the little-endian number, and 0x87 for the bit
// that leaves it.
func double(t *[BlockSize]byte) {
	lo := binary.LittleEndian.Uint64(t[:8])
	hi := binary.LittleEndian.Uint64(t[8:])
	out := hi >> 63
	binary.LittleEndian.PutUint64(t[:8], lo<<1^-out&0x87)
	binary.LittleEndian.PutUint64(t[8:], hi<<1|lo>>63)
}
