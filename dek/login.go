package dek

import (
	"crypto/subtle"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// Context is a program's access to a Store: its login and DEKs. It is safe for
// concurrent use.
type Context struct {
	store *Store

	// store.mu guards the following fields.
	login  *Login // it must be closed before another can be made
	deks   map[*DEK]struct{}
	closed bool
}

// Login is the login of a context. It is safe for concurrent use.
type Login struct {
	ctx *Context

	// ctx.store.mu guards the following fields.
	credential, kek *secret
	closed          bool
}

// NewContext returns a context with no login.
func (s *Store) NewContext() *Context {
	return &Context{store: s, deks: map[*DEK]struct{}{}}
}

// NewLogin logs the context in with a credential: credentialID is its number on the device,
// and wrapped are its 48 bytes, wrapped under the import KEK with the number kekID, under
// which DEKs are wrapped too. A context has one login at most
// (mlx5dv_crypto_login_create(3)).
//
// EOPNOTSUPP: the device's import mode is plaintext. EEXIST: there is a login that was not
// closed, valid or not. EINVAL: an id of more than 24 bits, or one of credential, credential
// id and KEK id is not valid. The error does not say which one.
func (c *Context) NewLogin(credentialID, kekID uint32, wrapped []byte) (*Login, error) {
	if c.store == nil {
		return nil, failure.Zero("crypto login create", "Store.NewContext")
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	const op = "crypto login create"
	s := c.store
	switch {
	case c.login != nil:
		return nil, failure.New(op, syscall.EEXIST, "the context has a login, which must be closed first")
	case c.closed:
		return nil, failure.New(op, syscall.EINVAL, "the context was closed")
	case s.mode != Wrapped:
		return nil, failure.New(op, syscall.EOPNOTSUPP, "the device's import mode is plaintext")
	case credentialID > maxID || kekID > maxID:
		return nil, failure.New(op, syscall.EINVAL, "credential id %#x, import KEK id %#x: ids have 24 bits", credentialID, kekID)
	}
	l := &Login{ctx: c, credential: s.credentials[credentialID], kek: s.keks[kekID]}
	admitted := false
	if l.credential != nil && l.kek != nil && len(wrapped) == credentialSize+wrapOverhead {
		w, err := newKeyWrap(op, l.kek.bytes())
		if err != nil {
			return nil, err
		}
		defer w.free()
		shown, ok := w.unwrap(wrapped)
		admitted = ok && subtle.ConstantTimeCompare(shown, l.credential.bytes()) == 1
	}
	if !admitted {
		return nil, failure.New(op, syscall.EINVAL, "credential, credential id %#x or import KEK id %#x is not valid", credentialID, kekID)
	}
	c.login = l
	return l, nil
}

// Valid reports whether the login was not closed, and its credential and KEK are on the
// device (mlx5dv_crypto_login_query(3)).
func (l *Login) Valid() bool {
	if l.ctx == nil {
		return false
	}
	l.ctx.store.mu.Lock()
	defer l.ctx.store.mu.Unlock()
	return l.validLocked()
}

func (l *Login) validLocked() bool { return !l.closed && !l.credential.deleted() && !l.kek.deleted() }

// Close ends the login. DEKs made with it stay. A second Close does nothing; the
// error is always nil.
func (l *Login) Close() error {
	if l.ctx == nil {
		return failure.Zero("crypto login destroy", "Context.NewLogin")
	}
	l.ctx.store.mu.Lock()
	defer l.ctx.store.mu.Unlock()
	l.closed = true
	if l.ctx.login == l {
		l.ctx.login = nil
	}
	return nil
}

// loggedIn reports whether the context has a valid login.
func (c *Context) loggedIn() bool {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	return c.login != nil && c.login.validLocked()
}

// NewDEK makes a DEK on the device from key1 || key2 [|| keytag] in plaintext, or in mode
// Wrapped from its wrapped form, which is 8 bytes longer, with o.Login.
//
// EINVAL: a wrong length, a key with two equal halves, no login or an invalid one in
// mode Wrapped, a login in mode Plaintext, or a key that does not unwrap. ENOMEM: the
// system gives no locked memory.
func (c *Context) NewDEK(key []byte, o *DEKOptions) (*DEK, error) {
	if c.store == nil {
		return nil, failure.Zero("dek create", "Store.NewContext")
	}
	const op = "dek create"
	if o == nil {
		o = &DEKOptions{}
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if c.closed {
		return nil, failure.New(op, syscall.EINVAL, "the context was closed")
	}
	d, err := c.newDEKLocked(op, key, o)
	if err != nil {
		return nil, err
	}
	d.ctx = c
	c.deks[d] = struct{}{}
	return d, nil
}

func (c *Context) newDEKLocked(op string, key []byte, o *DEKOptions) (*DEK, error) {
	if c.store.mode == Plaintext {
		if o.Login != nil {
			return nil, failure.New(op, syscall.EINVAL, "a login, but the device's import mode is plaintext")
		}
		return newDEK(op, key, o.PD, c.store.equalHalves)
	}

	l := o.Login
	switch {
	case l == nil:
		return nil, failure.New(op, syscall.EINVAL, "the device's import mode is wrapped, and there is no login")
	case l.ctx != c:
		return nil, failure.New(op, syscall.EINVAL, "the login is another context's")
	case !l.validLocked():
		return nil, failure.New(op, syscall.EINVAL, "the login is not valid any more")
	}
	d, err := newWrapped(op, l.kek.bytes(), key, o.PD, c.store.equalHalves)
	if err != nil {
		return nil, err
	}
	d.wrapped = true
	return d, nil
}

func (c *Context) forget(d *DEK) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	delete(c.deks, d)
}

// Close ends the context. A second Close does nothing. EBUSY: DEKs or the login of the
// context exist; the context is not changed.
func (c *Context) Close() error {
	if c.store == nil {
		return failure.Zero("close a context", "Store.NewContext")
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	switch {
	case len(c.deks) != 0:
		return failure.New("context close", syscall.EBUSY, "%d DEKs of the context exist", len(c.deks))
	case c.login != nil:
		return failure.New("context close", syscall.EBUSY, "the context's login was not closed")
	}
	c.closed = true
	return nil
}
