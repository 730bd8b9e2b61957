package aesxts

import (
	"crypto/subtle"
	"encoding/binary"
)

// cryptGeneric is the plain Go twin: one block at a time, in the standard's order.
func cryptGeneric(s *schedule, decrypt bool, dst []byte, dstStride int, src []byte, srcStride int, unit, n int, lo, hi uint64) {
	// As in the assembly, a schedule that was corrupted gives wrong blocks and no fault.
	rounds := uint64(maxRounds)
	if s.rounds == 10 {
		rounds = 10
	}
	var tweak [BlockSize]byte
	for i := range n {
		binary.LittleEndian.PutUint64(tweak[:8], lo)
		binary.LittleEndian.PutUint64(tweak[8:], hi)
		if lo++; lo == 0 {
			hi++
		}
		encryptBlockGeneric(&s.enc2, rounds, &tweak)
		unitGeneric(s, rounds, decrypt, dst[i*dstStride:][:unit], src[i*srcStride:][:unit], &tweak)
	}
	clear(tweak[:])
}

// unitGeneric handles one unit with an encrypted tweak, which it changes.
func unitGeneric(s *schedule, rounds uint64, decrypt bool, dst, src []byte, tweak *[BlockSize]byte) {
	rest := len(src) % BlockSize
	if rest == 0 {
		for i := 0; i < len(src); i += BlockSize {
			blockGeneric(s, rounds, decrypt, dst[i:], src[i:], tweak)
			double(tweak)
		}
		return
	}

	// Ciphertext stealing (IEEE Std 1619, 5.3.2 and 5.4.2). All whole blocks but
	// the last are as usual. The last one and the rest swap places, and so do
	// their tweaks when decrypting.
	last := len(src) - rest - BlockSize
	for i := 0; i < last; i += BlockSize {
		blockGeneric(s, rounds, decrypt, dst[i:], src[i:], tweak)
		double(tweak)
	}
	first, second := *tweak, *tweak
	double(&second)
	if decrypt {
		first, second = second, first
	}
	var prev [BlockSize]byte
	blockGeneric(s, rounds, decrypt, prev[:], src[last:], &first)

	// prev's head is the unit's end; the rest of the input takes the head's place.
	// Each byte is read before it is written, as dst may be src.
	end := last + BlockSize
	for j := range rest {
		b := src[end+j]
		dst[end+j] = prev[j]
		prev[j] = b
	}
	blockGeneric(s, rounds, decrypt, dst[last:], prev[:], &second)
	clear(first[:])
	clear(second[:])
	clear(prev[:])
}

// blockGeneric handles one block: tweak, AES, tweak.
func blockGeneric(s *schedule, rounds uint64, decrypt bool, dst, src []byte, tweak *[BlockSize]byte) {
	b := (*[BlockSize]byte)(dst)
	subtle.XORBytes(b[:], src[:BlockSize], tweak[:])
	if decrypt {
		decryptBlockGeneric(&s.dec1, rounds, b)
	} else {
		encryptBlockGeneric(&s.enc1, rounds, b)
	}
	subtle.XORBytes(b[:], b[:], tweak[:])
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
