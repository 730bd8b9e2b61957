package dek

import (
	"bytes"
	"crypto/subtle"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/kernel/aesxts"
	"github.com/softmkey/softmkey/xts"
)

// KeySize is the size of an AES key. The values are those of enum
// mlx5dv_crypto_key_size.
type KeySize uint8

// The key sizes.
const (
	Size128 KeySize = 0
	Size256 KeySize = 1
)

// Bytes returns the length of key1 || key2: 32 or 64.
func (s KeySize) Bytes() int { return 32 << s }

// String returns "128 bit" or "256 bit".
func (s KeySize) String() string {
	switch s {
	case Size128:
		return "128 bit"
	case Size256:
		return "256 bit"
	}
	return "unknown key size"
}

// KeyTagSize is the length of a keytag in bytes.
const KeyTagSize = 8

// PD is a protection domain of a device, such as a *verbs.PD. Two values are the same domain
// if they are equal.
type PD interface {
	// ProtectionDomain does nothing: it marks types that are protection domains.
	ProtectionDomain()
}

// DEKOptions describe a DEK of a device (struct mlx5dv_dek_init_attr). A nil *DEKOptions
// means the zero value.
type DEKOptions struct {
	// PD is the protection domain that the DEK belongs to. nil means that all domains of
	// the device may use it.
	PD PD

	// Login is the login under whose KEK the key is wrapped, in a Store of mode Wrapped.
	// It must be nil otherwise.
	Login *Login
}

// DEK is a data encryption key. It is safe for concurrent use. A memory key
// holds the DEK that its configuration names, and so does each transfer. A DEK
// that is held cannot be closed. The zero value has no key: its methods return
// EINVAL.
type DEK struct {
	ctx     *Context // nil if New or NewWrapped made the DEK
	wrapped bool

	pd        PD
	size      KeySize
	hasKeyTag bool

	equalHalves bool // the key may have two equal halves

	// refs counts the holders. Close sets it to closed, which is negative; Acquire
	// and Hold then fail.
	refs atomic.Int64
	// corrupt is set when the known-answer test fails.
	corrupt atomic.Bool

	// Only holders may use the following fields.
	memory slot // the expanded key, the keytag, then the ciphertext of a block of zeros
	cipher *xts.Cipher
}

// closed is refs after Close.
const closed = -1

// New returns a DEK that belongs to no device, from key1 || key2 [|| keytag] in plaintext:
// 32 or 64 bytes, and 8 more with a keytag. The bytes are copied into locked memory; the
// caller overwrites its own.
//
// EINVAL: the key has another length or two equal halves. ENOMEM: the system gives no
// locked memory.
func New(key []byte) (*DEK, error) { return newDEK("dek create", key, nil, false) }

// NewWrapped returns a DEK that belongs to no device, from a key that is wrapped under
// kek, which makes it 8 bytes longer. The unwrapped key is never outside locked memory.
//
// EINVAL: kek is not of 16 or 32 bytes, the key has the wrong length, was not wrapped
// under kek, was changed, or has two equal halves. ENOMEM: the system gives no locked
// memory.
func NewWrapped(kek, wrapped []byte) (*DEK, error) {
	const op = "dek create"
	if err := checkKEK(op, kek); err != nil {
		return nil, err
	}
	return newWrapped(op, kek, wrapped, nil, false)
}

// newWrapped makes a DEK of a key that is wrapped under kek, whose length the caller has
// checked. equalHalves accepts a key with two equal halves.
func newWrapped(op string, kek, wrapped []byte, pd PD, equalHalves bool) (*DEK, error) {
	if _, _, err := sizeOf(op, wrapped, wrapOverhead); err != nil {
		return nil, err
	}
	w, err := newKeyWrap(op, kek)
	if err != nil {
		return nil, err
	}
	defer w.free()
	key, ok := w.unwrap(wrapped)
	if !ok {
		return nil, failure.New(op, syscall.EINVAL, "the key was not wrapped under this KEK, or was changed since")
	}
	return newDEK(op, key, pd, equalHalves)
}

// sizeOf returns the size of a key by its length, and whether it has a keytag. extra is the
// number of bytes that wrapping adds.
func sizeOf(op string, key []byte, extra int) (size KeySize, hasKeyTag bool, err error) {
	switch len(key) - extra {
	case 32, 32 + KeyTagSize:
		return Size128, len(key)-extra != 32, nil
	case 64, 64 + KeyTagSize:
		return Size256, len(key)-extra != 64, nil
	}
	return 0, false, failure.New(op, syscall.EINVAL, "key of %d bytes: must be %d or %d, and %d more with a keytag",
		len(key), 32+extra, 64+extra, KeyTagSize)
}

// newDEK makes a DEK of a key in plaintext.
func newDEK(op string, key []byte, pd PD, equalHalves bool) (*DEK, error) {
	size, hasKeyTag, err := sizeOf(op, key, 0)
	if err != nil {
		return nil, err
	}
	defer oneThread()()
	n := size.Bytes()
	d := &DEK{pd: pd, size: size, hasKeyTag: hasKeyTag, equalHalves: subtle.ConstantTimeCompare(key[:n/2], key[n/2:n]) == 1}
	if d.equalHalves && !equalHalves {
		return nil, failure.New(op, syscall.EINVAL, "key1 and key2 are equal")
	}
	if d.memory, err = allocate(); err != nil {
		return nil, noLockedMemory(op, err)
	}
	d.cipher = aesxts.CipherIn(d.memory.bytes()[:aesxts.MemorySize], key[:n]).(*xts.Cipher)
	copy(d.keyTag(), key[n:])
	d.cipher.EncryptUnit(d.answer(), d.answer(), xts.Tweak{})
	return d, nil
}

// keyTag returns the keytag's place in locked memory.
func (d *DEK) keyTag() []byte { return d.memory.bytes()[aesxts.MemorySize:][:KeyTagSize] }

// answer returns the place of the ciphertext of a block of zeros.
func (d *DEK) answer() []byte { return d.memory.bytes()[aesxts.MemorySize+KeyTagSize:][:xts.BlockSize] }

// Size returns the key's size.
func (d *DEK) Size() KeySize { return d.size }

// KeyTag returns the keytag, for a memory key that uses the DEK. EINVAL: the DEK has no
// keytag, belongs to a device, whose users have to know the keytag, or was closed.
func (d *DEK) KeyTag() (tag [KeyTagSize]byte, err error) {
	const op = "dek keytag"
	if err := d.hold(op); err != nil {
		return tag, err
	}
	defer d.Release()
	switch {
	case !d.hasKeyTag:
		return tag, failure.New(op, syscall.EINVAL, "the DEK has none")
	case d.ctx != nil:
		return tag, failure.New(op, syscall.EINVAL, "the DEK belongs to a device, which shows no keytag")
	}
	copy(tag[:], d.keyTag())
	return tag, nil
}

// Check reports whether the key is still right (mlx5dv_dek_query(3)): it encrypts a block whose
// ciphertext is known, and decrypts it. It returns nil for a DEK in state READY, and EIO for one
// in state ERROR, whose memory was corrupted: close the DEK and make it again.
//
// A DEK that was made from a wrapped key can be checked only while its context has a valid
// login. Otherwise, and after Close, the error is EINVAL.
func (d *DEK) Check() error {
	const op = "dek query"
	if err := d.hold(op); err != nil {
		return err
	}
	defer d.Release()
	if d.wrapped && !d.ctx.loggedIn() {
		return failure.New(op, syscall.EINVAL, "a wrapped DEK, and no valid login")
	}
	var zero, b [xts.BlockSize]byte
	d.cipher.EncryptUnit(b[:], zero[:], xts.Tweak{})
	if !bytes.Equal(b[:], d.answer()) {
		d.corrupt.Store(true)
	}
	d.cipher.DecryptUnit(b[:], d.answer(), xts.Tweak{})
	if b != zero {
		d.corrupt.Store(true)
	}
	if d.corrupt.Load() {
		return errState
	}
	return nil
}

// errState is the error of Check in state ERROR.
var errState error = failure.New("dek query", syscall.EIO, "the DEK is in state error: the memory of its key was corrupted")

// Fail puts the DEK into state ERROR, as if the memory of its key had been corrupted: the
// DEK cannot be used any more, and Check reports it. It is for tests of programs that must
// survive this. EINVAL: the DEK is nil or the zero value, or was closed.
func (d *DEK) Fail() error {
	if err := d.hold("dek fail"); err != nil {
		return err
	}
	defer d.Release()
	d.corrupt.Store(true)
	return nil
}

// Close overwrites the key and ends the DEK. A second Close does nothing. EBUSY: the
// DEK is held, and stays as it was. EINVAL: the DEK is nil or the zero value. Close needs
// no login.
func (d *DEK) Close() error {
	if err := d.made("dek close"); err != nil {
		return err
	}
	for !d.refs.CompareAndSwap(0, closed) {
		n := d.refs.Load()
		if n < 0 {
			return nil
		}
		if n > 0 {
			return failure.New("dek close", syscall.EBUSY, "the DEK is held %d times", n)
		}
	}
	d.cipher.Close()
	d.memory.free()
	if d.ctx != nil {
		d.ctx.forget(d)
	}
	return nil
}
