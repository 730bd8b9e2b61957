package dek

import (
	"bytes"
	"crypto/subtle"
	"errors"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/kernel/aesxts"
	"github.com/softmkey/softmkey/operr"
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

// State is the state of a DEK. The values are those of enum mlx5dv_dek_state.
type State uint8

// The states of a DEK.
const (
	StateReady State = 0 // may be used
	StateError State = 1 // the key's memory was corrupted: close the DEK and create it again
)

// String returns "ready" or "error".
func (s State) String() string {
	if s == StateReady {
		return "ready"
	}
	return "error"
}

// PD is a protection domain of a device, such as a *verbs.PD. Two values are the same domain
// if they are equal.
type PD interface {
	// ProtectionDomain does nothing: it marks types that are protection domains.
	ProtectionDomain()
}

// KeyOptions describe a DEK that belongs to no device. A nil *KeyOptions means the zero value.
type KeyOptions struct {
	HasKeyTag bool    // the key is followed by a keytag of KeyTagSize bytes
	Opaque    [8]byte // plaintext metadata, which Query returns
}

// DEKOptions describe a DEK of a device (struct mlx5dv_dek_init_attr). A nil *DEKOptions
// means the zero value.
type DEKOptions struct {
	HasKeyTag bool    // the key is followed by a keytag of KeyTagSize bytes
	Opaque    [8]byte // plaintext metadata, which Query returns

	// PD is the protection domain that the DEK belongs to. nil means that all domains of
	// the device may use it.
	PD PD

	// Login is the login object to use in a Store of mode Wrapped; nil means the
	// session of the context. It must be nil otherwise.
	Login *Login
}

// Info is the result of Query (struct mlx5dv_dek_attr).
type Info struct {
	State  State
	Opaque [8]byte
}

// DEK is a data encryption key. It is safe for concurrent use. A memory key
// holds the DEK that its configuration names, and so does each transfer. A DEK
// that is held cannot be closed. The zero value has no key: its methods return
// EINVAL.
type DEK struct {
	ctx     *Context // nil if New or NewWrapped made the DEK
	wrapped bool

	pd        PD
	opaque    [8]byte
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

// New returns a DEK that belongs to no device, from key1 || key2 [|| keytag] in plaintext.
// The bytes are copied into locked memory; the caller overwrites its own.
//
// EINVAL: the key has the wrong length or two equal halves. ENOMEM: the system gives no
// locked memory.
func New(key []byte, o *KeyOptions) (*DEK, error) {
	if o == nil {
		o = &KeyOptions{}
	}
	return newDEK("dek create", key, &DEKOptions{HasKeyTag: o.HasKeyTag, Opaque: o.Opaque}, false)
}

// NewWrapped returns a DEK that belongs to no device, from a key that is wrapped under
// kek, which makes it 8 bytes longer. The unwrapped key is never outside locked memory.
//
// EINVAL: kek is not of 16 or 32 bytes, the key has the wrong length, was not wrapped
// under kek, was changed, or has two equal halves. ENOMEM: the system gives no locked
// memory.
func NewWrapped(kek, wrapped []byte, o *KeyOptions) (*DEK, error) {
	const op = "dek create"
	if err := checkKEK(op, kek); err != nil {
		return nil, err
	}
	if o == nil {
		o = &KeyOptions{}
	}
	return newWrapped(op, kek, wrapped, &DEKOptions{HasKeyTag: o.HasKeyTag, Opaque: o.Opaque}, false)
}

// newWrapped makes a DEK of a key that is wrapped under kek, whose length the caller has
// checked. equalHalves accepts a key with two equal halves.
func newWrapped(op string, kek, wrapped []byte, o *DEKOptions, equalHalves bool) (*DEK, error) {
	if _, err := sizeOf(op, wrapped, o.HasKeyTag, wrapOverhead); err != nil {
		return nil, err
	}
	defer oneThread()()
	w, err := newKeyWrap(op, kek)
	if err != nil {
		return nil, err
	}
	defer w.free()
	key, ok := w.unwrap(wrapped)
	if !ok {
		return nil, failure.New(op, syscall.EINVAL, "the key was not wrapped under this KEK, or was changed since")
	}
	return newDEK(op, key, o, equalHalves)
}

// sizeOf returns the size of a key by its length. extra is the number of bytes that
// wrapping adds.
func sizeOf(op string, key []byte, hasKeyTag bool, extra int) (KeySize, error) {
	if hasKeyTag {
		extra += KeyTagSize
	}
	short, long := Size128.Bytes()+extra, Size256.Bytes()+extra
	switch len(key) {
	case short:
		return Size128, nil
	case long:
		return Size256, nil
	}
	return 0, failure.New(op, syscall.EINVAL, "key of %d bytes: must be %d or %d", len(key), short, long)
}

// newDEK makes a DEK of a key in plaintext.
func newDEK(op string, key []byte, o *DEKOptions, equalHalves bool) (*DEK, error) {
	size, err := sizeOf(op, key, o.HasKeyTag, 0)
	if err != nil {
		return nil, err
	}
	defer oneThread()()
	d := &DEK{pd: o.PD, opaque: o.Opaque, size: size, hasKeyTag: o.HasKeyTag}
	if d.memory, err = allocate(); err != nil {
		return nil, noLockedMemory(op, err)
	}
	n := size.Bytes()
	if d.cipher, err = newCipher(d.memory.bytes()[:xts.MemorySize], key[:n], equalHalves); err != nil {
		d.memory.free()
		reason := "key refused"
		if e := (*operr.Error)(nil); errors.As(err, &e) {
			reason = e.Reason
		}
		return nil, failure.New(op, syscall.EINVAL, "%s", reason)
	}
	d.equalHalves = subtle.ConstantTimeCompare(key[:n/2], key[n/2:n]) == 1
	copy(d.keyTag(), key[n:])
	d.cipher.EncryptUnit(d.answer(), d.answer(), xts.Tweak{})
	return d, nil
}

// newCipher expands a key into mem. equalHalves accepts a key with two equal halves.
func newCipher(mem, key []byte, equalHalves bool) (*xts.Cipher, error) {
	if !equalHalves {
		return xts.NewIn(mem, key)
	}
	c, err := aesxts.CipherIn(mem, key)
	if err != nil {
		return nil, err
	}
	return c.(*xts.Cipher), nil
}

// keyTag returns the keytag's place in locked memory.
func (d *DEK) keyTag() []byte { return d.memory.bytes()[xts.MemorySize:][:KeyTagSize] }

// answer returns the place of the ciphertext of a block of zeros.
func (d *DEK) answer() []byte { return d.memory.bytes()[xts.MemorySize+KeyTagSize:][:xts.BlockSize] }

// Size returns the key's size.
func (d *DEK) Size() KeySize { return d.size }

// HasKeyTag reports whether a memory key that uses the DEK must have its
// keytag.
func (d *DEK) HasKeyTag() bool { return d.hasKeyTag }

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

// Query returns the DEK's state and metadata. It finds the state by encrypting a block
// whose ciphertext is known, and decrypting it.
//
// A DEK that was made from a wrapped key can be queried only while its context
// has a valid session or login object. Otherwise, and after Close, the error is
// EINVAL.
func (d *DEK) Query() (Info, error) {
	const op = "dek query"
	if err := d.hold(op); err != nil {
		return Info{}, err
	}
	defer d.Release()
	if d.wrapped && !d.ctx.anyValid() {
		return Info{}, failure.New(op, syscall.EINVAL, "a wrapped DEK, and no valid login")
	}
	info := Info{Opaque: d.opaque}
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
		info.State = StateError
	}
	return info, nil
}

// Fail puts the DEK into state [StateError], as if the memory of its key had been
// corrupted: the DEK cannot be used any more, and Query reports the state. It
// is for tests of programs that must survive this. EINVAL: the DEK is nil or
// the zero value, or was closed.
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
