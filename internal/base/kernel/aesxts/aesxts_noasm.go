//go:build purego || (!amd64 && !arm64)

package aesxts

import "github.com/softmkey/softmkey/internal/base/cpu"

func hasTier(cpu.Tier) bool { return false }

func expandKey(_ cpu.Tier, enc *roundKeys, key []byte) { expandWords(enc, key, subWordGeneric) }

func derive(cpu.Tier, *schedule) {}

const noAssembly = "aesxts: no assembly in this build"

func invertAsm(enc, dec *roundKeys, rounds uint64)                       { panic(noAssembly) }
func encryptBlockAsm(keys *roundKeys, rounds uint64, b *[BlockSize]byte) { panic(noAssembly) }
func decryptBlockAsm(keys *roundKeys, rounds uint64, b *[BlockSize]byte) { panic(noAssembly) }
func cryptRun(cpu.Tier, *schedule, bool, *run)                           { panic(noAssembly) }
