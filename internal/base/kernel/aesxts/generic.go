package aesxts

import (
	"crypto/subtle"
	"encoding/binary"
)

// cryptGeneric is the plain Go implementation: one block at a time, in the order of the
// standard.
func cryptGeneric(s *schedule, decrypt bool, dst []byte, dstStride int, src []byte, srcStride int, unit, n int, lo, hi uint64) {
	// A corrupted schedule gives wrong blocks but no fault, as in the assembly.
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

// unitGeneric processes one unit. tweak is its encrypted tweak, which unitGeneric
// changes.
func unitGeneric(s *schedule, rounds uint64, decrypt bool, dst, src []byte, tweak *[BlockSize]byte) {
	rest := len(src) % BlockSize
	if rest == 0 {
		for i := 0; i < len(src); i += BlockSize {
			blockGeneric(s, rounds, decrypt, dst[i:], src[i:], tweak)
			double(tweak)
		}
		return
	}

	// Ciphertext stealing (IEEE Std 1619, 5.3.2 and 5.4.2). All whole blocks but the
	// last are processed as usual. The last one and the remainder are exchanged; when
	// decrypting, their tweaks are exchanged too.
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

	// The first bytes of prev become the end of the unit, and the remainder of the
	// input takes their place. Each byte is read before it is written, because dst
	// may be src.
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

// blockGeneric processes one block: tweak, AES, tweak.
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

// double multiplies the tweak by x in GF(2^128), modulo x^128 + x^7 + x^2 + x + 1 (IEEE
// Std 1619, 5.2). It shifts the little-endian number by one bit, and adds 0x87 if the bit
// shifted out is set.
func double(t *[BlockSize]byte) {
	lo := binary.LittleEndian.Uint64(t[:8])
	hi := binary.LittleEndian.Uint64(t[8:])
	out := hi >> 63
	binary.LittleEndian.PutUint64(t[:8], lo<<1^-out&0x87)
	binary.LittleEndian.PutUint64(t[8:], hi<<1|lo>>63)
}
