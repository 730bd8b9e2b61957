// Package aesxts encrypts and decrypts runs of AES-XTS data units (IEEE Std 1619).
//
// A run is n units of the same size, spaced evenly in the source and, perhaps
// otherwise, in the destination; unit i has the tweak number t+i, a 128-bit
// integer. There is one implementation for each tier of [cpu.Tier] and a plain Go
// one, which is also the one the others are tested against.
//
// # What an architecture supplies
//
// A file with a build constraint defines these; nobody calls the last two for a
// tier that is not in cpu.Available():
//
//	hasTier(t) bool                          is there assembly for tier t here?
//	expand(t, s *schedule, key []byte)       fill s from key1 || key2
//	cryptRun(t, s, decrypt, r *run)          r.n >= 1 whole units
//
// Nothing here checks lengths or overlaps: package xts does, once per call.
package aesxts

import (
	"crypto/aes"
	"crypto/cipher"
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

// callBytes is how much one call of assembly handles, which the garbage collector
// cannot interrupt: about a tenth of a millisecond.
const callBytes = 1 << 20

// maxRounds is AES-256's number of rounds (FIPS 197, table 3).
const maxRounds = 14

// schedule is what assembly reads. Its layout is known to the generators.
type schedule struct {
	enc1   [maxRounds + 1][16]byte // key1's round keys
	dec1   [maxRounds + 1][16]byte // the same for the equivalent inverse cipher, in the order of their use
	enc2   [maxRounds + 1][16]byte // key2's round keys
	rounds uint64                  // 10 or 14
	_      [40]byte                // to a whole cache line

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

// Key is an expanded pair of keys. It is safe for concurrent use, but for Wipe.
type Key struct {
	tier   cpu.Tier
	s      *schedule
	k1, k2 cipher.Block // of the plain Go twin only
}

// New expands key, which is key1 || key2 of 16 or 32 bytes each, for the given
// tier. The expanded key of an assembly tier is kept in mem, which has at least
// MemorySize bytes and belongs to the Key until it is wiped; the plain Go twin
// keeps it inside crypto/aes. The caller has checked the key's length.
func New(t cpu.Tier, mem, key []byte) (k Key, err error) {
	if !hasTier(t) {
		h := len(key) / 2
		if k.k1, err = aes.NewCipher(key[:h]); err != nil {
			return Key{}, err
		}
		k.k2, err = aes.NewCipher(key[h:])
		return k, err
	}
	_ = mem[MemorySize-1]
	p := unsafe.Pointer(unsafe.SliceData(mem))
	pad := -uintptr(p) & (scheduleAlign - 1)
	k.tier, k.s = t, (*schedule)(unsafe.Add(p, pad))
	expand(t, k.s, key)
	return k, nil
}

// Wiped reports whether there is no key, be it that Wipe was called or that New was not.
func (k *Key) Wiped() bool { return k.s == nil && k.k1 == nil }

// Wipe overwrites the expanded key. The plain Go twin's stands in crypto/aes,
// which has no way to overwrite it: it is only let go.
func (k *Key) Wipe() {
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
	if k.s == nil {
		cryptGeneric(k.k1, k.k2, decrypt, dst, dstStride, src, srcStride, unit, n, lo, hi)
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
