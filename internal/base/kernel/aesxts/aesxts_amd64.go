//go:build !purego

package aesxts

import (
	"crypto/subtle"

	"github.com/softmkey/softmkey/internal/base/cpu"
)

//go:generate sh -c "cd ../_asm/aesxts && go run . -tier avx512 -pkg aesxts -out ../../aesxts/avx512_amd64.s"
//go:generate sh -c "cd ../_asm/aesxts && go run . -tier vaes -pkg aesxts -out ../../aesxts/vaes_amd64.s"
//go:generate sh -c "cd ../_asm/aesxts && go run . -tier avx2 -pkg aesxts -out ../../aesxts/avx2_amd64.s"

// The kernels each process a run of whole units.

//go:noescape
func encrypt128AVX512(s *schedule, r *run)

//go:noescape
func decrypt128AVX512(s *schedule, r *run)

//go:noescape
func encrypt256AVX512(s *schedule, r *run)

//go:noescape
func decrypt256AVX512(s *schedule, r *run)

//go:noescape
func encrypt128VAES(s *schedule, r *run)

//go:noescape
func decrypt128VAES(s *schedule, r *run)

//go:noescape
func encrypt256VAES(s *schedule, r *run)

//go:noescape
func decrypt256VAES(s *schedule, r *run)

//go:noescape
func encrypt128AESNI(s *schedule, r *run)

//go:noescape
func encrypt256AESNI(s *schedule, r *run)

//go:noescape
func decrypt128AESNI(s *schedule, r *run)

//go:noescape
func decrypt256AESNI(s *schedule, r *run)

// expand128AESNI sets enc[:11] to the round keys of AES-128.
//
//go:noescape
func expand128AESNI(key *byte, enc *roundKeys)

// expand256AESNI sets enc to the round keys of AES-256.
//
//go:noescape
func expand256AESNI(key *byte, enc *roundKeys)

// invertAESNI sets dec to the round keys of the equivalent inverse cipher (FIPS 197,
// 5.3.5), in order of use.
//
//go:noescape
func invertAESNI(enc, dec *roundKeys, rounds uint64)

// encryptBlockAESNI encrypts b in place.
//
//go:noescape
func encryptBlockAESNI(keys *roundKeys, rounds uint64, b *[BlockSize]byte)

// decryptBlockAESNI decrypts b in place, with round keys from invertAESNI.
//
//go:noescape
func decryptBlockAESNI(keys *roundKeys, rounds uint64, b *[BlockSize]byte)

func hasTier(t cpu.Tier) bool { return t == cpu.AVX2 || t == cpu.VAES || t == cpu.AVX512 }

func expandKey(t cpu.Tier, enc *roundKeys, key []byte) {
	switch {
	case !hasTier(t):
		expandWords(enc, key, subWordGeneric)
	case len(key) == 16:
		expand128AESNI(&key[0], enc)
	default:
		expand256AESNI(&key[0], enc)
	}
}

func invertAsm(enc, dec *roundKeys, rounds uint64) { invertAESNI(enc, dec, rounds) }

func encryptBlockAsm(keys *roundKeys, rounds uint64, b *[BlockSize]byte) {
	encryptBlockAESNI(keys, rounds, b)
}

func decryptBlockAsm(keys *roundKeys, rounds uint64, b *[BlockSize]byte) {
	decryptBlockAESNI(keys, rounds, b)
}

func derive(t cpu.Tier, s *schedule) {
	if t == cpu.AVX512 {
		widen(&s.wide[0], &s.enc1[0], &s.enc1[s.rounds])
		widen(&s.wide[1], &s.dec1[0], &s.dec1[s.rounds])
	}
}

// widen computes the constants of one direction from its first and last round keys. It
// stores intermediate values in wide itself, because a growing stack would leave copies
// of local variables in memory.
func widen(wide *[6][64]byte, first, last *[16]byte) {
	power := (*[16]byte)(wide[0][:]) // holds L*x^8m until wide[0] is set
	*power = *last
	for m := range 5 {
		x := wide[1+m][:16]
		if m > 0 {
			for range 8 {
				double(power)
			}
			subtle.XORBytes(x, power[:], last[:])
		} else {
			copy(x, last[:])
		}
	}
	subtle.XORBytes(power[:], first[:], last[:])
	for i := range wide {
		for lane := 16; lane < 64; lane += 16 {
			copy(wide[i][lane:], wide[i][:16])
		}
	}
}

// cryptRun calls the assembly. The calls are direct, because a call through a variable
// would move the run to the heap.
func cryptRun(t cpu.Tier, s *schedule, decrypt bool, r *run) {
	short := s.rounds == 10 // AES-128
	switch {
	case t == cpu.AVX512:
		switch {
		case short && !decrypt:
			encrypt128AVX512(s, r)
		case short:
			decrypt128AVX512(s, r)
		case !decrypt:
			encrypt256AVX512(s, r)
		default:
			decrypt256AVX512(s, r)
		}
	case t == cpu.VAES:
		switch {
		case short && !decrypt:
			encrypt128VAES(s, r)
		case short:
			decrypt128VAES(s, r)
		case !decrypt:
			encrypt256VAES(s, r)
		default:
			decrypt256VAES(s, r)
		}
	default:
		switch {
		case short && !decrypt:
			encrypt128AESNI(s, r)
		case short:
			decrypt128AESNI(s, r)
		case !decrypt:
			encrypt256AESNI(s, r)
		default:
			decrypt256AESNI(s, r)
		}
	}
}
