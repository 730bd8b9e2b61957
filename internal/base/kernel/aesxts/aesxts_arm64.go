//go:build !purego

package aesxts

import "github.com/softmkey/softmkey/internal/base/cpu"

// The kernels each process a run of whole units.

//go:noescape
func encryptNEON(s *schedule, r *run)

//go:noescape
func decryptNEON(s *schedule, r *run)

// subWordNEON is SUBWORD of FIPS 197, computed without a table.
func subWordNEON(w uint32) uint32

// invertNEON sets dec to the round keys of the equivalent inverse cipher (FIPS 197,
// 5.3.5), in order of use.
//
//go:noescape
func invertNEON(enc, dec *roundKeys, rounds uint64)

// encryptBlockNEON encrypts b in place.
//
//go:noescape
func encryptBlockNEON(keys *roundKeys, rounds uint64, b *[BlockSize]byte)

// decryptBlockNEON decrypts b in place, with round keys from invertNEON.
//
//go:noescape
func decryptBlockNEON(keys *roundKeys, rounds uint64, b *[BlockSize]byte)

func hasTier(t cpu.Tier) bool { return t == cpu.NEON }

func expandKey(t cpu.Tier, enc *roundKeys, key []byte) {
	if hasTier(t) {
		expandWords(enc, key, subWordNEON)
	} else {
		expandWords(enc, key, subWordGeneric)
	}
}

func invertAsm(enc, dec *roundKeys, rounds uint64) { invertNEON(enc, dec, rounds) }

func encryptBlockAsm(keys *roundKeys, rounds uint64, b *[BlockSize]byte) {
	encryptBlockNEON(keys, rounds, b)
}

func decryptBlockAsm(keys *roundKeys, rounds uint64, b *[BlockSize]byte) {
	decryptBlockNEON(keys, rounds, b)
}

func derive(cpu.Tier, *schedule) {}

func cryptRun(_ cpu.Tier, s *schedule, decrypt bool, r *run) {
	if decrypt {
		decryptNEON(s, r)
	} else {
		encryptNEON(s, r)
	}
}
