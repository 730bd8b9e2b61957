//go:build !purego

package aesxts

import (
	"crypto/subtle"

	"github.com/softmkey/softmkey/internal/base/cpu"
)

//go:generate sh -c "cd ../_asm/aesxts && go run . -tier avx512 -pkg aesxts -out ../../aesxts/avx512_amd64.s"
//go:generate sh -c "cd ../_asm/aesxts && go run . -tier avx2 -pkg aesxts -out ../../aesxts/avx2_amd64.s"

// The kernels: each handles a run, of which every unit is whole.

//go:noescape
func encrypt128AVX512(s *schedule, r *run)

//go:noescape
func decrypt128AVX512(s *schedule, r *run)

//go:noescape
func encrypt256AVX512(s *schedule, r *run)

//go:noescape
func decrypt256AVX512(s *schedule, r *run)

//go:noescape
func encrypt128AESNI(s *schedule, r *run)

//go:noescape
func encrypt256AESNI(s *schedule, r *run)

//go:noescape
func decrypt128AESNI(s *schedule, r *run)

//go:noescape
func decrypt256AESNI(s *schedule, r *run)

// expand128AESNI sets enc[0:11] to the round keys of AES-128.
//
//go:noescape
func expand128AESNI(key *byte, enc *[maxRounds + 1][16]byte)

// expand256AESNI sets enc to the round keys of AES-256.
//
//go:noescape
func expand256AESNI(key *byte, enc *[maxRounds + 1][16]byte)

// invertAESNI sets dec to the round keys of the equivalent inverse cipher (FIPS
// 197, 5.3.5) in the order of their use.
//
//go:noescape
func invertAESNI(enc, dec *[maxRounds + 1][16]byte, rounds uint64)

func hasTier(t cpu.Tier) bool { return t == cpu.AVX512 || t == cpu.AVX2 }

func expand(t cpu.Tier, s *schedule, key []byte) {
	if len(key) == 32 {
		s.rounds = 10
		expand128AESNI(&key[0], &s.enc1)
		expand128AESNI(&key[16], &s.enc2)
	} else {
		s.rounds = 14
		expand256AESNI(&key[0], &s.enc1)
		expand256AESNI(&key[32], &s.enc2)
	}
	invertAESNI(&s.enc1, &s.dec1, s.rounds)
	if t == cpu.AVX512 {
		widen(&s.wide[0], &s.enc1[0], &s.enc1[s.rounds])
		widen(&s.wide[1], &s.dec1[0], &s.dec1[s.rounds])
	}
}

// widen sets the constants of one direction from its first and last round key.
func widen(wide *[6][64]byte, first, last *[16]byte) {
	var x [16]byte
	fill := func(i int) {
		for lane := 0; lane < 64; lane += 16 {
			copy(wide[i][lane:], x[:])
		}
	}
	subtle.XORBytes(x[:], first[:], last[:])
	fill(0)
	power := *last
	x = *last
	fill(1)
	for m := 1; m <= 4; m++ {
		for range 8 {
			double(&power)
		}
		subtle.XORBytes(x[:], power[:], last[:])
		fill(1 + m)
	}
	clear(x[:])
	clear(power[:])
}

func cryptRun(t cpu.Tier, s *schedule, decrypt bool, r *run) {
	if t == cpu.AVX512 {
		switch {
		case s.rounds == 10 && !decrypt:
			encrypt128AVX512(s, r)
		case s.rounds == 10:
			decrypt128AVX512(s, r)
		case !decrypt:
			encrypt256AVX512(s, r)
		default:
			decrypt256AVX512(s, r)
		}
		return
	}
	switch {
	case s.rounds == 10 && !decrypt:
		encrypt128AESNI(s, r)
	case s.rounds == 10:
		decrypt128AESNI(s, r)
	case !decrypt:
		encrypt256AESNI(s, r)
	default:
		decrypt256AESNI(s, r)
	}
}
