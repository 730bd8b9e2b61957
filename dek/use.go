package dek

import (
	"crypto/subtle"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/xts"
)

// UsableBy returns nil if a memory key of the protection domain pd on the device of
// context c may use the DEK. EINVAL:
//   - d is nil or the zero value, or was closed;
//   - d was made on another context, or by [New] from plaintext while c's device is
//     in mode [Wrapped];
//   - d belongs to another protection domain.
//
// UsableBy does not hold the DEK.
func (d *DEK) UsableBy(c *Context, pd PD) error {
	const op = "dek use"
	if err := d.made(op); err != nil {
		return err
	}
	switch {
	case d.refs.Load() < 0:
		return failure.New(op, syscall.EINVAL, "the DEK was closed")
	case d.ctx == nil && c.store.mode == Wrapped:
		return failure.New(op, syscall.EINVAL, "the DEK was made from plaintext, and the device's import mode is wrapped")
	case d.ctx != nil && d.ctx != c:
		return failure.New(op, syscall.EINVAL, "the DEK belongs to another device")
	case d.pd != nil && d.pd != pd:
		return failure.New(op, syscall.EINVAL, "the DEK belongs to another protection domain")
	}
	return nil
}

// Acquire returns the cipher and holds the DEK until Release, which the caller calls once
// for each Acquire that returned no error. The caller does not use the cipher after
// Release, and does not close it.
//
// keyTag is the keytag that is configured on the memory key. Acquire returns EINVAL if
// the DEK has a different keytag (a DEK without a keytag accepts any), is in state
// ERROR, is nil or the zero value, or was closed.
func (d *DEK) Acquire(keyTag [KeyTagSize]byte) (*xts.Cipher, error) {
	const op = "dek use"
	if err := d.hold(op); err != nil {
		return nil, err
	}
	if d.hasKeyTag && subtle.ConstantTimeCompare(keyTag[:], d.keyTag()) != 1 {
		d.Release()
		return nil, failure.New(op, syscall.EINVAL, "the memory key's keytag is not the DEK's")
	}
	if d.corrupt.Load() {
		d.Release()
		return nil, failure.New(op, syscall.EINVAL, "the DEK is in state error")
	}
	return d.cipher, nil
}

// Hold keeps the DEK from being closed until Release. A memory key whose
// configuration names the DEK holds it. EINVAL: the DEK is nil or the zero value, or was
// closed.
func (d *DEK) Hold() error { return d.hold("dek hold") }

// made refuses a nil DEK and the zero value, which have no key.
func (d *DEK) made(op string) error {
	switch {
	case d == nil:
		return failure.New(op, syscall.EINVAL, "the DEK is nil")
	case d.cipher == nil:
		return failure.New(op, syscall.EINVAL, "the DEK is the zero value: New, NewWrapped and Context.NewDEK make one")
	}
	return nil
}

func (d *DEK) hold(op string) error {
	if err := d.made(op); err != nil {
		return err
	}
	for {
		n := d.refs.Load()
		if n < 0 {
			return failure.New(op, syscall.EINVAL, "the DEK was closed")
		}
		if d.refs.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

// Release ends one Acquire or Hold. It panics if there was none.
func (d *DEK) Release() {
	if d.refs.Add(-1) < 0 {
		panic("dek: Release without Acquire or Hold")
	}
}
