//go:build purego || (!amd64 && !arm64)

package aesxts

import "github.com/softmkey/softmkey/internal/base/cpu"

func hasTier(cpu.Tier) bool { return false }

func expandKey(_ cpu.Tier, enc *roundKeys, key []byte) { expandWords(enc, key, subWordGeneric) }

func invertKey(_ cpu.Tier, enc, dec *roundKeys, rounds uint64) { invertGeneric(enc, dec, rounds) }

func encryptBlock(_ cpu.Tier, keys *roundKeys, rounds uint64, b *[BlockSize]byte) {
	encryptBlockGeneric(keys, rounds, b)
}

func decryptBlock(_ cpu.Tier, keys *roundKeys, rounds uint64, b *[BlockSize]byte) {
	decryptBlockGeneric(keys, rounds, b)
}

func derive(cpu.Tier, *schedule) {}

func cryptRun(cpu.Tier, *schedule, bool, *run) { panic("aesxts: no assembly in this build") }
