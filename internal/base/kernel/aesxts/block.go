package aesxts

import (
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/cpu"
)

// Block is AES with one key, for single blocks, as key wrap needs it. It is safe for
// concurrent use.
type Block struct {
	tier cpu.Tier
	s    *blockSchedule
}

type blockSchedule struct {
	enc, dec roundKeys
	rounds   uint64
}

// BlockMemorySize is the number of bytes that [NewBlock] needs: the round keys and space
// to align them.
const BlockMemorySize = int(unsafe.Sizeof(blockSchedule{})) + scheduleAlign - 1

// NewBlock expands key, of 16 or 32 bytes, for the given tier into mem, which must have
// at least BlockMemorySize bytes. The Block is valid until the caller overwrites mem.
func NewBlock(t cpu.Tier, mem, key []byte) Block {
	b := Block{tier: t, s: (*blockSchedule)(aligned(mem, BlockMemorySize))}
	b.s.rounds = roundsOf(key)
	expandKey(t, &b.s.enc, key)
	invertKey(t, &b.s.enc, &b.s.dec, b.s.rounds)
	return b
}

// Encrypt encrypts x in place.
func (b Block) Encrypt(x *[BlockSize]byte) {
	if hasTier(b.tier) {
		encryptBlockAsm(&b.s.enc, b.s.rounds, x)
	} else {
		encryptBlockGeneric(&b.s.enc, b.s.rounds, x)
	}
}

// Decrypt decrypts x in place.
func (b Block) Decrypt(x *[BlockSize]byte) {
	if hasTier(b.tier) {
		decryptBlockAsm(&b.s.dec, b.s.rounds, x)
	} else {
		decryptBlockGeneric(&b.s.dec, b.s.rounds, x)
	}
}

// aligned returns the first aligned address in mem that n bytes follow.
func aligned(mem []byte, n int) unsafe.Pointer {
	_ = mem[n-1]
	p := unsafe.Pointer(unsafe.SliceData(mem))
	return unsafe.Add(p, -uintptr(p)&(scheduleAlign-1))
}
