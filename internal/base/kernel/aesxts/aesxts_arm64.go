//go:build !purego

package aesxts

import (
	"encoding/binary"
	"math/bits"

	"github.com/softmkey/softmkey/internal/base/cpu"
)

// The kernels: each handles a run, of which every unit is whole.

//go:noescape
func encryptNEON(s *schedule, r *run)

//go:noescape
func decryptNEON(s *schedule, r *run)

// subWordNEON is FIPS 197's SUBWORD, without a table.
func subWordNEON(w uint32) uint32

// invertNEON sets dec to the round keys of the equivalent inverse cipher (FIPS 197,
// 5.3.5) in the order of their use.
//
//go:noescape
func invertNEON(enc, dec *[maxRounds + 1][16]byte, rounds uint64)

func hasTier(t cpu.Tier) bool { return t == cpu.NEON }

func expand(_ cpu.Tier, s *schedule, key []byte) {
	half := len(key) / 2
	s.rounds = uint64(half/4 + 6)
	expandKey(&s.enc1, key[:half])
	expandKey(&s.enc2, key[half:])
	invertNEON(&s.enc1, &s.dec1, s.rounds)
}

// expandKey is the key expansion of FIPS 197, 5.2.
func expandKey(enc *[maxRounds + 1][16]byte, key []byte) {
	word := func(i int) []byte { return enc[i/4][i%4*4:][:4] }
	n := len(key) / 4
	for i := range n {
		copy(word(i), key[4*i:])
	}
	rcon := uint32(1)
	for i := n; i < 4*(n+7); i++ {
		t := binary.LittleEndian.Uint32(word(i - 1))
		switch {
		case i%n == 0:
			t = bits.RotateLeft32(subWordNEON(t), -8) ^ rcon
			rcon = rcon<<1 ^ rcon>>7*0x11b
		case n == 8 && i%n == 4:
			t = subWordNEON(t)
		}
		binary.LittleEndian.PutUint32(word(i), t^binary.LittleEndian.Uint32(word(i-n)))
	}
}

func cryptRun(_ cpu.Tier, s *schedule, decrypt bool, r *run) {
	if decrypt {
		decryptNEON(s, r)
	} else {
		encryptNEON(s, r)
	}
}
