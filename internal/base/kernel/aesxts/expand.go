package aesxts

import (
	"encoding/binary"
	"math/bits"

	"github.com/softmkey/softmkey/internal/base/cpu"
)

// roundKeys holds the rounds+1 round keys of one AES key. The assembly uses the layout.
type roundKeys [maxRounds + 1][BlockSize]byte

// roundsOf returns the number of rounds for a key of 16 or 32 bytes (FIPS 197, table 3).
func roundsOf(key []byte) uint64 { return uint64(len(key)/4 + 6) }

// expandWords sets enc to the round keys of key, of 16 or 32 bytes (FIPS 197, 5.2).
// subWord is the standard's SUBWORD on a little-endian word.
func expandWords(enc *roundKeys, key []byte, subWord func(uint32) uint32) {
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
			t = bits.RotateLeft32(subWord(t), -8) ^ rcon
			rcon = rcon<<1 ^ rcon>>7*0x11b
		case n == 8 && i%n == 4:
			t = subWord(t)
		}
		binary.LittleEndian.PutUint32(word(i), t^binary.LittleEndian.Uint32(word(i-n)))
	}
}

// invertKey sets dec to the round keys of the equivalent inverse cipher (FIPS 197, 5.3.5), in order of use.
func invertKey(t cpu.Tier, enc, dec *roundKeys, rounds uint64) {
	if hasTier(t) {
		invertAsm(enc, dec, rounds)
	} else {
		invertGeneric(enc, dec, rounds)
	}
}
