package dek

import (
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
	Ready State = 0 // may be used
	Error State = 1 // the key's memory was corrupted: close the DEK and create it again
)

// String returns "ready" or "error".
func (s State) String() string {
	if s == Ready {
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

// Attr describes a new DEK (struct mlx5dv_dek_init_attr).
type Attr struct {
	Size      KeySize // 0: by the length of Key
	HasKeyTag bool    // the key is followed by a keytag
	Opaque    [8]byte // plaintext metadata, which Query returns

	// PD is the protection domain that the DEK belongs to. nil means that all domains of
	// the device may use it.
	PD PD

	// Key is key1 || key2 [|| keytag], or its wrapped form under the login's
	// KEK, which is 8 bytes longer. The bytes are copied.
	Key []byte

	// Login is the login object to use in a Store of mode Wrapped; nil means the
	// session of the context. It must be nil otherwise.
	Login *Login

	equalHalves bool // accept a key with two equal halves
}

// plaintextLen returns the length of the key before it is wrapped.
func (a *Attr) plaintextLen() int {
	n := a.Size.Bytes()
	if a.HasKeyTag {
		n += KeyTagSize
	}
	return n
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
	memory slot // the expanded key, then the keytag
	cipher *xts.Cipher
	answer [xts.BlockSize]byte // the ciphertext of a block of zeros
}

// closed is refs after Close.
const closed = -1

// New returns a DEK that belongs to no device, from a key in plaintext. a.Login must
// be nil.
//
// EINVAL: the key has the wrong length or two equal halves. ENOMEM: the system gives no
// locked memory.
func New(a Attr) (*DEK, error) {
	const op = "dek create"
	if a.Login != nil {
		return nil, failure.New(op, syscall.EINVAL, "a login, but the key comes in plaintext")
	}
	if err := a.check(op, 0); err != nil {
		return nil, err
	}
	return newDEK(op, &a, a.Key)
}

// NewWrapped returns a DEK that belongs to no device, from a key that is wrapped under
// kek. The unwrapped key is never outside locked memory. a.Login must be nil.
//
// EINVAL: kek is not of 16 or 32 bytes, the key has the wrong length, was not wrapped
// under kek, was changed, or has two equal halves. ENOMEM: the system gives no locked
// memory.
func NewWrapped(kek []byte, a Attr) (*DEK, error) {
	const op = "dek create"
	if a.Login != nil {
		return nil, failure.New(op, syscall.EINVAL, "a login, but the DEK belongs to no device")
	}
	if err := checkKEK(op, kek); err != nil {
		return nil, err
	}
	return newWrapped(op, kek, &a)
}

// newWrapped makes a DEK of a key that is wrapped under kek, whose length the caller has
// checked.
func newWrapped(op string, kek []byte, a *Attr) (*DEK, error) {
	if err := a.check(op, wrapOverhead); err != nil {
		return nil, err
	}
	defer oneThread()()
	w, err := newKeyWrap(op, kek)
	if err != nil {
		return nil, err
	}
	defer w.free()
	key, ok := w.unwrap(a.Key)
	if !ok {
		return nil, failure.New(op, syscall.EINVAL, "the key was not wrapped under this KEK, or was changed since")
	}
	return newDEK(op, a, key)
}

// check tests the sizes. extra is the number of bytes that wrapping adds.
func (a *Attr) check(op string, extra int) error {
	if a.Size > Size256 {
		return failure.New(op, syscall.EINVAL, "key size %d: must be 0 (128 bit) or 1 (256 bit)", a.Size)
	}
	if a.Size == 0 && len(a.Key) == a.plaintextLen()+extra+Size256.Bytes()-Size128.Bytes() {
		a.Size = Size256
	}
	if want := a.plaintextLen() + extra; len(a.Key) != want {
		return failure.New(op, syscall.EINVAL, "key of %d bytes: must be %d", len(a.Key), want)
	}
	return nil
}

// newDEK makes a DEK of a key in plaintext, whose length has been checked.
func newDEK(op string, a *Attr, key []byte) (*DEK, error) {
	defer oneThread()()
	d := &DEK{pd: a.PD, opaque: a.Opaque, size: a.Size, hasKeyTag: a.HasKeyTag}
	var err error
	if d.memory, err = allocate(); err != nil {
		return nil, noLockedMemory(op, err)
	}
	n := a.Size.Bytes()
	if d.cipher, err = newCipher(d.memory.bytes()[:xts.MemorySize], key[:n], a.equalHalves); err != nil {
		d.memory.free()
		reason := "key refused"
		if e := (*operr.Error)(nil); errors.As(err, &e) {
			reason = e.Reason
		}
		return nil, failure.New(op, syscall.EINVAL, "%s", reason)
	}
	d.equalHalves = subtle.ConstantTimeCompare(key[:n/2], key[n/2:n]) == 1
	copy(d.keyTag(), key[n:])
	d.cipher.EncryptUnit(d.answer[:], d.answer[:], xts.Tweak{})
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
	if b != d.answer {
		d.corrupt.Store(true)
	}
	d.cipher.DecryptUnit(b[:], d.answer[:], xts.Tweak{})
	if b != zero {
		d.corrupt.Store(true)
	}
	if d.corrupt.Load() {
		info.State = Error
	}
	return info, nil
}

// Fail puts the DEK into state [Error], as if the memory of its key had been
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
