package xts

import (
	"crypto/subtle"
	"syscall"
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/cpu"
	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/kernel/aesxts"
)

// BlockSize is AES's block size in bytes, and the smallest data unit.
const BlockSize = aesxts.BlockSize

// maxUnit is the largest data unit in bytes: 2^20 blocks (IEEE Std 1619-2007, 5.1, and NIST
// SP 800-38E, 4).
const maxUnit = BlockSize << 20

// Cipher is AES-XTS with a fixed pair of keys. Make one with New.
type Cipher struct {
	key aesxts.Key
}

// New returns a Cipher for key, which is key1 || key2: 32 bytes for AES-128 or 64
// for AES-256. The key is copied.
//
// Another length, and two equal halves (which FIPS 140-3, IG C.I, forbids as they
// void XTS's proof), are refused with an *operr.Error of class EINVAL.
func New(key []byte) (*Cipher, error) {
	return newTier(cpu.Best(), make([]byte, aesxts.MemorySize), key)
}

func newTier(t cpu.Tier, mem, key []byte) (*Cipher, error) {
	const op = "xts new"
	if len(key) != 32 && len(key) != 64 {
		return nil, failure.New(op, syscall.EINVAL, "key of %d bytes: must be 32 (AES-128) or 64 (AES-256)", len(key))
	}
	half := len(key) / 2
	if subtle.ConstantTimeCompare(key[:half], key[half:]) == 1 {
		return nil, failure.New(op, syscall.EINVAL, "key1 and key2 are equal")
	}
	return newUnchecked(t, mem, key), nil
}

func init() {
	aesxts.CipherIn = func(mem, key []byte) any { return newUnchecked(cpu.Best(), mem, key) }
}

// newUnchecked is New without the check for equal halves, which the standard's
// first test vector has.
func newUnchecked(t cpu.Tier, mem, key []byte) *Cipher {
	if len(mem) < aesxts.MemorySize {
		panic("xts: memory for the key is too short")
	}
	return &Cipher{key: aesxts.New(t, mem, key)}
}

// Encrypt encrypts the data units of src into dst. src is cut into units of
// unit bytes, and unit i has the tweak t+i, modulo 2^128. The last unit may be
// shorter than the others, but not shorter than 16 bytes. An empty src has no
// units.
//
// dst has at least src's length; bytes beyond that are not changed. dst and src
// overlap exactly or not at all. Encrypt panics if that does not hold, if unit
// is below BlockSize or above 16 MiB (IEEE Std 1619-2007, 5.1), if the last unit is
// shorter than 16 bytes, or if the Cipher was closed. It does not allocate.
func (c *Cipher) Encrypt(dst, src []byte, unit int, t Tweak) {
	c.crypt(false, dst, src, unit, t)
}

// Decrypt is the inverse of [Cipher.Encrypt], with the same rules.
func (c *Cipher) Decrypt(dst, src []byte, unit int, t Tweak) {
	c.crypt(true, dst, src, unit, t)
}

// EncryptUnit encrypts src as one data unit with the tweak t into dst. The rules are those
// of [Cipher.Encrypt].
func (c *Cipher) EncryptUnit(dst, src []byte, t Tweak) {
	c.cryptUnit(false, dst, src, t)
}

// DecryptUnit is the inverse of [Cipher.EncryptUnit], with the same rules.
func (c *Cipher) DecryptUnit(dst, src []byte, t Tweak) {
	c.cryptUnit(true, dst, src, t)
}

// Close overwrites the expanded keys. Using the Cipher afterwards panics. Close must
// not run at the same time as any other method.
func (c *Cipher) Close() { c.key.Close() }

func (c *Cipher) crypt(decrypt bool, dst, src []byte, unit int, t Tweak) {
	c.checkUnit(unit)
	if len(dst) < len(src) {
		panic("xts: output smaller than input")
	}
	n, rest := len(src)/unit, len(src)%unit
	if rest != 0 && rest < BlockSize {
		panic("xts: last data unit shorter than 16 bytes")
	}
	if inexactOverlap(dst[:len(src)], src) {
		panic("xts: invalid buffer overlap")
	}
	c.key.Crypt(decrypt, dst, unit, src, unit, unit, n, t.Lo, t.Hi)
	if rest != 0 {
		t = t.Add(uint64(n))
		c.key.Crypt(decrypt, dst[n*unit:], rest, src[n*unit:], rest, rest, 1, t.Lo, t.Hi)
	}
}

func (c *Cipher) cryptUnit(decrypt bool, dst, src []byte, t Tweak) {
	c.checkUnit(len(src))
	if len(dst) < len(src) {
		panic("xts: output smaller than input")
	}
	if inexactOverlap(dst[:len(src)], src) {
		panic("xts: invalid buffer overlap")
	}
	c.key.Crypt(decrypt, dst, len(src), src, len(src), len(src), 1, t.Lo, t.Hi)
}

func (c *Cipher) checkUnit(unit int) {
	if unit < BlockSize {
		panic("xts: data unit shorter than 16 bytes")
	}
	if unit > maxUnit {
		panic("xts: data unit longer than 2^20 blocks")
	}
	if c.key.Closed() {
		panic("xts: use of a closed Cipher")
	}
}

func anyOverlap(x, y []byte) bool {
	return len(x) > 0 && len(y) > 0 &&
		uintptr(unsafe.Pointer(&x[0])) <= uintptr(unsafe.Pointer(&y[len(y)-1])) &&
		uintptr(unsafe.Pointer(&y[0])) <= uintptr(unsafe.Pointer(&x[len(x)-1]))
}

func inexactOverlap(x, y []byte) bool {
	return len(x) > 0 && len(y) > 0 && &x[0] != &y[0] && anyOverlap(x, y)
}
