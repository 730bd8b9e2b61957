// Package aesxts encrypts and decrypts runs of AES-XTS data units (IEEE Std 1619).
//
// A run is n units of equal size. They are evenly spaced in the source and evenly spaced
// in the destination, not necessarily by the same stride. Unit i has the tweak number
// t+i, a 128-bit integer. There is one implementation for each [cpu.Tier], and one in
// plain Go with which tests compare the others.
//
// # Architectures
//
// Each architecture defines the following functions in a file with a build constraint.
// They are called only for tiers in cpu.Available, and those after derive only for tiers with
// assembly:
//
//	hasTier(t) bool                          whether tier t has assembly
//	expandKey(t, enc, key)                   computes the round keys of one AES key
//	derive(t, s)                             computes the other constants of the kernels of tier t
//	invertAsm(enc, dec, rounds)              computes the round keys of the equivalent inverse cipher, in order of use
//	encryptBlockAsm(keys, rounds, b)         encrypts one block in place
//	decryptBlockAsm(keys, rounds, b)         decrypts one block in place, with keys from invertAsm
//	cryptRun(t, s, decrypt, r)               processes a run of at least one unit
//
// Package xts checks lengths and overlaps once per call; this package does not.
package aesxts

import (
	"math/bits"
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/cpu"
	"github.com/softmkey/softmkey/internal/base/kernel/race"
)

// BlockSize is the block size of AES, and the size of the smallest data unit.
const BlockSize = 16

// MemorySize is the number of bytes that [New] needs: a schedule and space to align it.
const MemorySize = int(unsafe.Sizeof(schedule{})) + scheduleAlign - 1

// scheduleAlign is the alignment of a schedule, which keeps each round key within one
// cache line.
const scheduleAlign = 64

// callBytes limits the bytes per call of assembly, because the garbage collector cannot
// interrupt the call. They take about a tenth of a millisecond.
const callBytes = 1 << 20

// maxRounds is the number of rounds of AES-256 (FIPS 197, table 3).
const maxRounds = 14

// CipherIn returns the *xts.Cipher of a key of 32 or 64 bytes in memory of the caller, of at least
// MemorySize bytes. It takes two equal halves too. Package xts sets it during initialisation.
var CipherIn func(mem, key []byte) (cipher any)

// schedule is the expanded pair of keys for the assembly. The generators use its layout.
type schedule struct {
	enc1   roundKeys // of key1
	dec1   roundKeys // of key1, for the equivalent inverse cipher, in order of use
	enc2   roundKeys // of key2
	rounds uint64    // 10 or 14
	_      [40]byte  // pads to a whole cache line

	// wide is for AVX-512. It holds constants for enc1 and for dec1, derived from the
	// first and last round keys K and L, and repeated to fill a register: K^L, L,
	// and L*x^8m ^ L for m = 1 to 4.
	wide [2][6][64]byte
}

// run holds the arguments of one call of assembly.
type run struct {
	dst, src             *byte
	dstStride, srcStride uintptr // bytes from the start of a unit to the start of the next
	unit                 uintptr // bytes per unit, at least 16
	n                    uintptr // number of units, at least 1
	lo, hi               uint64  // tweak number of the first unit
}

// Key is an expanded pair of keys. All methods but Close are safe for concurrent use.
type Key struct {
	tier cpu.Tier
	// s is the *schedule. Package fmt prints the content behind other pointers, for example
	// for a wrong verb, but never behind this type.
	s unsafe.Pointer
}

func (k *Key) schedule() *schedule { return (*schedule)(k.s) }

// New expands key, which is key1 || key2 of 16 or 32 bytes each, for the given tier. It
// stores the result in mem, which must have at least MemorySize bytes and belongs to the
// Key until Close. The caller has checked the key's length.
func New(t cpu.Tier, mem, key []byte) Key {
	s := (*schedule)(aligned(mem, MemorySize))
	half := len(key) / 2
	s.rounds = roundsOf(key[:half])
	expandKey(t, &s.enc1, key[:half])
	expandKey(t, &s.enc2, key[half:])
	invertKey(t, &s.enc1, &s.dec1, s.rounds)
	derive(t, s)
	return Key{t, unsafe.Pointer(s)}
}

// Closed reports whether k holds no key: it is the zero Key, or Close was called.
func (k *Key) Closed() bool { return k.s == nil }

// Close overwrites the expanded key.
func (k *Key) Close() {
	if k.s != nil {
		*k.schedule() = schedule{}
	}
	*k = Key{}
}

// Crypt encrypts or decrypts n units of unit bytes each. It reads unit i at
// src[i*srcStride] and writes it at dst[i*dstStride]; its tweak number is hi:lo + i,
// modulo 2^128. A unit may have the same address in src and dst. No other overlap is
// allowed.
func (k *Key) Crypt(decrypt bool, dst []byte, dstStride int, src []byte, srcStride int, unit, n int, lo, hi uint64) {
	if n == 0 {
		return
	}
	if !hasTier(k.tier) {
		cryptGeneric(k.schedule(), decrypt, dst, dstStride, src, srcStride, unit, n, lo, hi)
		return
	}
	race.Read(src, srcStride, unit, n)
	race.Write(dst, dstStride, unit, n)
	r := run{
		dst: &dst[0], src: &src[0],
		dstStride: uintptr(dstStride), srcStride: uintptr(srcStride),
		unit: uintptr(unit), lo: lo, hi: hi,
	}
	most := max(1, callBytes/unit)
	for n > most {
		r.n = uintptr(most)
		cryptRun(k.tier, k.schedule(), decrypt, &r)
		src, dst = src[most*srcStride:], dst[most*dstStride:]
		r.src, r.dst = &src[0], &dst[0]
		var carry uint64
		r.lo, carry = bits.Add64(r.lo, uint64(most), 0)
		r.hi += carry
		n -= most
	}
	r.n = uintptr(n)
	cryptRun(k.tier, k.schedule(), decrypt, &r)
}
