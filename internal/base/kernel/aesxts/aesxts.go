// Package aesxts encrypts and decrypts runs of AES-XTS data units (IEEE Std 1619).
//
// A run is n units of the same size, spaced evenly in the source and, perhaps
// otherwise, in the destination; unit i has the tweak number t+i, a 128-bit
// integer. There is one implementation for each tier of [cpu.Tier] and a plain Go
// one, which is also the one the others are tested against.
//
// # What an architecture supplies
//
// A file with a build constraint defines these, and the plain Go functions take their
// place for a tier that has no assembly. Nobody calls them for a tier that is not in
// cpu.Available():
//
//	hasTier(t) bool                          is there assembly for tier t here?
//	expandKey(t, enc, key)                   the round keys of one AES key
//	invertKey(t, enc, dec, rounds)           those of the equivalent inverse cipher, in the order of their use
//	derive(t, s)                             the other constants of the kernels of tier t
//	encryptBlock(t, keys, rounds, b)         one block in place
//	decryptBlock(t, keys, rounds, b)         its inverse, with keys from invertKey
//	cryptRun(t, s, decrypt, r)               r.n >= 1 whole units
//
// Nothing here checks lengths or overlaps: package xts does, once per call.
package aesxts

import (
	"math/bits"
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/cpu"
)

// BlockSize is AES's, and the smallest data unit.
const BlockSize = 16

// MemorySize is how much memory [New] asks for: a schedule and room to align it.
const MemorySize = int(unsafe.Sizeof(schedule{})) + scheduleAlign - 1

// scheduleAlign keeps every round key within one cache line.
const scheduleAlign = 64

// callBytes is the most that one call of assembly handles, about a tenth of a millisecond:
// the garbage collector cannot interrupt it.
const callBytes = 1 << 20

// maxRounds is AES-256's number of rounds (FIPS 197, table 3).
const maxRounds = 14

// schedule is the input of the assembly. The generators know its layout.
type schedule struct {
	enc1   roundKeys // of key1
	dec1   roundKeys // of key1 for the equivalent inverse cipher, in the order of their use
	enc2   roundKeys // of key2
	rounds uint64    // 10 or 14
	_      [40]byte  // to a whole cache line

	// wide is for AVX-512: for enc1 and for dec1, constants that depend on the first
	// and last round key K and L, repeated to fill a register: K^L, L, and
	// L*x^8m ^ L for m = 1 to 4.
	wide [2][6][64]byte
}

// run is one call's work, as assembly reads it.
type run struct {
	dst, src             *byte
	dstStride, srcStride uintptr // bytes from one unit's start to the next one's
	unit                 uintptr // bytes in a unit, at least 16
	n                    uintptr // units, at least 1
	lo, hi               uint64  // the first unit's tweak number
}

// Key is an expanded pair of keys. It is safe for concurrent use, but for Close.
type Key struct {
	tier cpu.Tier
	s    *schedule
}

// New expands key, which is key1 || key2 of 16 or 32 bytes each, for the given
// tier into mem, which has at least MemorySize bytes and belongs to the Key until
// Close. The caller has checked the key's length.
func New(t cpu.Tier, mem, key []byte) Key {
	s := (*schedule)(aligned(mem, MemorySize))
	half := len(key) / 2
	s.rounds = roundsOf(key[:half])
	expandKey(t, &s.enc1, key[:half])
	expandKey(t, &s.enc2, key[half:])
	invertKey(t, &s.enc1, &s.dec1, s.rounds)
	derive(t, s)
	return Key{t, s}
}

// Closed reports whether there is no key: Close was called, or New was not.
func (k *Key) Closed() bool { return k.s == nil }

// Close overwrites the expanded key.
func (k *Key) Close() {
	if k.s != nil {
		clear(unsafe.Slice((*byte)(unsafe.Pointer(k.s)), unsafe.Sizeof(*k.s)))
	}
	*k = Key{}
}

// Crypt encrypts or decrypts n units of unit bytes each. Unit i is read at
// src[i*srcStride], written at dst[i*dstStride] and has the tweak number hi:lo + i,
// modulo 2^128. Units at the same place in src and dst are handled in place; no
// other overlap is allowed.
func (k *Key) Crypt(decrypt bool, dst []byte, dstStride int, src []byte, srcStride int, unit, n int, lo, hi uint64) {
	if n == 0 {
		return
	}
	if !hasTier(k.tier) {
		cryptGeneric(k.s, decrypt, dst, dstStride, src, srcStride, unit, n, lo, hi)
		return
	}
	readRange(src, srcStride, unit, n)
	writeRange(dst, dstStride, unit, n)
	r := run{
		dst: &dst[0], src: &src[0],
		dstStride: uintptr(dstStride), srcStride: uintptr(srcStride),
		unit: uintptr(unit), lo: lo, hi: hi,
	}
	most := max(1, callBytes/unit)
	for n > most {
		r.n = uintptr(most)
		cryptRun(k.tier, k.s, decrypt, &r)
		src, dst = src[most*srcStride:], dst[most*dstStride:]
		r.src, r.dst = &src[0], &dst[0]
		var carry uint64
		r.lo, carry = bits.Add64(r.lo, uint64(most), 0)
		r.hi += carry
		n -= most
	}
	r.n = uintptr(n)
	cryptRun(k.tier, k.s, decrypt, &r)
}
