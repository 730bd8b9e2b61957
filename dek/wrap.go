package dek

import (
	"bytes"
	"crypto/subtle"
	"encoding/binary"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/cpu"
	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/kernel/aesxts"
)

const (
	// wrapOverhead is the number of bytes that AES key wrap adds: the initial value.
	wrapOverhead = 8

	// initialValue is the default initial value (RFC 3394, 2.2.3.1).
	initialValue = 0xA6A6A6A6A6A6A6A6

	// minWrap and maxWrap are the sizes of the plaintext. RFC 3394 has no largest one;
	// this is more than any key has, and fits into a slot.
	minWrap, maxWrap = 16, 1024
)

// Wrap wraps plaintext, such as a DEK or a credential, under kek by AES key wrap
// (RFC 3394; NIST SP 800-38F's KW). The result is 8 bytes longer.
//
// EINVAL: kek is not of 16 or 32 bytes, or plaintext is not of 16 to 1024 bytes in
// multiples of 8. ENOMEM: the system gives no locked memory to work in.
func Wrap(kek, plaintext []byte) ([]byte, error) {
	const op = "key wrap"
	if n := len(plaintext); n < minWrap || n > maxWrap || n%8 != 0 {
		return nil, failure.New(op, syscall.EINVAL, "%d bytes: must be 16 to 1024, in multiples of 8", n)
	}
	w, err := newKeyWrap(op, kek)
	if err != nil {
		return nil, err
	}
	defer w.free()
	wrapped := make([]byte, len(plaintext)+wrapOverhead)
	w.wrap(wrapped, plaintext)
	return wrapped, nil
}

// Unwrap is the inverse of [Wrap]. The result is a secret in the Go heap: the
// caller overwrites it. [NewWrapped] and [Context.NewDEK] unwrap without a copy
// of the key in the Go heap.
//
// EINVAL: a length that Wrap does not produce, or wrapped was not wrapped under kek,
// or was changed. ENOMEM: as for Wrap.
func Unwrap(kek, wrapped []byte) ([]byte, error) {
	const op = "key unwrap"
	if n := len(wrapped); n < minWrap+wrapOverhead || n > maxWrap+wrapOverhead || n%8 != 0 {
		return nil, failure.New(op, syscall.EINVAL, "%d bytes: must be 24 to 1032, in multiples of 8", n)
	}
	w, err := newKeyWrap(op, kek)
	if err != nil {
		return nil, err
	}
	defer w.free()
	secret, ok := w.unwrap(wrapped)
	if !ok {
		return nil, failure.New(op, syscall.EINVAL, "not wrapped under this KEK, or changed since")
	}
	return bytes.Clone(secret), nil
}

func checkKEK(op string, kek []byte) error {
	if len(kek) != 16 && len(kek) != 32 {
		return failure.New(op, syscall.EINVAL, "KEK of %d bytes: must be 16 or 32", len(kek))
	}
	return nil
}

// keyWrap is AES key wrap under one KEK. All secrets are in its slot: the round
// keys of the KEK, the registers, and the block that AES encrypts.
type keyWrap struct {
	memory slot
	aes    aesxts.Block
	block  *[aesxts.BlockSize]byte // A || R[i]
	r      []byte                  // R[1] to R[n]
	end    func()                  // of oneThread
}

// The parts of a keyWrap's slot.
const (
	wrapBlock     = (aesxts.BlockMemorySize + 15) &^ 15
	wrapRegisters = wrapBlock + aesxts.BlockSize
)

// The registers of the longest plaintext must fit a slot.
var _ [slotSize - wrapRegisters - maxWrap]struct{}

// newKeyWrap begins work with a KEK, which the caller ends by free, on the same thread.
func newKeyWrap(op string, kek []byte) (keyWrap, error) {
	if err := checkKEK(op, kek); err != nil {
		return keyWrap{}, err
	}
	m, err := allocate()
	if err != nil {
		return keyWrap{}, noLockedMemory(op, err)
	}
	b, end := m.bytes(), oneThread()
	return keyWrap{
		memory: m,
		aes:    aesxts.NewBlock(cpu.Best(), b[:wrapBlock], kek),
		block:  (*[aesxts.BlockSize]byte)(b[wrapBlock:]),
		r:      b[wrapRegisters:],
		end:    end,
	}, nil
}

func (w *keyWrap) free() {
	w.memory.free()
	w.end()
}

// wrap sets dst to the wrapped plaintext (RFC 3394, 2.2.1, in its index-based form).
func (w *keyWrap) wrap(dst, plaintext []byte) {
	r := w.r[:copy(w.r, plaintext)]
	binary.BigEndian.PutUint64(w.block[:], initialValue)
	t := uint64(0)
	for range 6 {
		for i := 0; i < len(r); i += 8 {
			t++
			copy(w.block[8:], r[i:i+8])
			w.aes.Encrypt(w.block)
			w.addToA(t)
			copy(r[i:], w.block[8:])
		}
	}
	copy(dst, w.block[:8])
	copy(dst[8:], r)
}

// unwrap returns the plaintext, which is in the slot, and whether the initial
// value was right (RFC 3394, 2.2.2, in its index-based form).
func (w *keyWrap) unwrap(wrapped []byte) (plaintext []byte, ok bool) {
	r := w.r[:copy(w.r, wrapped[8:])]
	copy(w.block[:], wrapped[:8])
	t := uint64(6 * len(r) / 8)
	for range 6 {
		for i := len(r) - 8; i >= 0; i -= 8 {
			w.addToA(t)
			t--
			copy(w.block[8:], r[i:i+8])
			w.aes.Decrypt(w.block)
			copy(r[i:], w.block[8:])
		}
	}
	var want [8]byte
	binary.BigEndian.PutUint64(want[:], initialValue)
	return r, subtle.ConstantTimeCompare(w.block[:8], want[:]) == 1
}

// addToA is A = A ^ t.
func (w *keyWrap) addToA(t uint64) {
	binary.BigEndian.PutUint64(w.block[:], binary.BigEndian.Uint64(w.block[:])^t)
}
