package dek

import (
	"crypto/subtle"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// LoginState is the state of a login. The values are those of enum
// mlx5dv_crypto_login_state.
type LoginState uint8

// The states of a login.
const (
	LoginValid   LoginState = 0
	NoLogin      LoginState = 1 // the context has no session
	LoginInvalid LoginState = 2 // the login's credential or KEK was deleted: log out
)

// String returns "valid", "no login" or "invalid".
func (s LoginState) String() string {
	switch s {
	case LoginValid:
		return "valid"
	case NoLogin:
		return "no login"
	}
	return "invalid"
}

// Context is a program's access to a Store: its logins and DEKs. It is safe for
// concurrent use.
type Context struct {
	store *Store

	// store.mu guards the following fields.
	session *Login
	object  *Login // the login object; it must be closed before another can be made
	deks    map[*DEK]struct{}
	closed  bool
}

// Login is a login object. It is safe for concurrent use.
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

// Login opens the context's session with a credential: credentialID is its number on the
// device, and wrapped are its WrappedCredentialSize bytes, wrapped under the import KEK
// with the number kekID, under which DEKs are wrapped too (struct
// mlx5dv_crypto_login_attr).
//
// EOPNOTSUPP: the device's import mode is plaintext. EEXIST: there is a session,
// valid or not. EINVAL: an id above MaxID, or one of credential, credential id and
// KEK id is not valid. The error does not say which one.
func (c *Context) Login(credentialID, kekID uint32, wrapped []byte) error {
	if c.store == nil {
		return failure.Zero("crypto login", "Store.NewContext")
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	const op = "crypto login"
	if c.session != nil {
		return failure.New(op, syscall.EEXIST, "the context has a session")
	}
	l, err := c.loginLocked(op, credentialID, kekID, wrapped)
	if err != nil {
		return err
	}
	c.session = l
	return nil
}

// LoginState returns the state of the context's session.
func (c *Context) LoginState() LoginState {
	if c.store == nil {
		return NoLogin
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if c.session == nil {
		return NoLogin
	}
	return c.session.stateLocked()
}

// Logout ends the context's session, valid or not. ENOENT: there is no session.
func (c *Context) Logout() error {
	if c.store == nil {
		return failure.Zero("crypto logout", "Store.NewContext")
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if c.session == nil {
		return failure.New("crypto logout", syscall.ENOENT, "the context has no session")
	}
	c.session = nil
	return nil
}

// NewLogin makes the context's login object, which NewDEK takes in DEKOptions.Login.
// A context has at most one login object, besides the session
// (mlx5dv_crypto_login_create(3)).
//
// EEXIST: there is one that was not closed, valid or not. The arguments and the other errors
// are those of [Context.Login].
func (c *Context) NewLogin(credentialID, kekID uint32, wrapped []byte) (*Login, error) {
	if c.store == nil {
		return nil, failure.Zero("crypto login create", "Store.NewContext")
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	const op = "crypto login create"
	if c.object != nil {
		return nil, failure.New(op, syscall.EEXIST, "the context has a login object, which must be closed first")
	}
	l, err := c.loginLocked(op, credentialID, kekID, wrapped)
	if err != nil {
		return nil, err
	}
	c.object = l
	return l, nil
}

func (c *Context) loginLocked(op string, credentialID, kekID uint32, wrapped []byte) (*Login, error) {
	s := c.store
	if c.closed {
		return nil, failure.New(op, syscall.EINVAL, "the context was closed")
	}
	if s.mode != Wrapped {
		return nil, failure.New(op, syscall.EOPNOTSUPP, "the device's import mode is plaintext")
	}
	if credentialID > MaxID || kekID > MaxID {
		return nil, failure.New(op, syscall.EINVAL, "credential id %#x, import KEK id %#x: ids have 24 bits", credentialID, kekID)
	}
	l := &Login{ctx: c, credential: s.credentials[credentialID], kek: s.keks[kekID]}
	admitted := false
	if l.credential != nil && l.kek != nil && len(wrapped) == WrappedCredentialSize {
		defer oneThread()()
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
	return l, nil
}

// State returns LoginValid or LoginInvalid. EINVAL: the object was closed.
func (l *Login) State() (LoginState, error) {
	if l.ctx == nil {
		return LoginInvalid, failure.Zero("crypto login query", "Context.NewLogin")
	}
	l.ctx.store.mu.Lock()
	defer l.ctx.store.mu.Unlock()
	if l.closed {
		return LoginInvalid, failure.New("crypto login query", syscall.EINVAL, "the login was closed")
	}
	return l.stateLocked(), nil
}

func (l *Login) stateLocked() LoginState {
	if l.closed || l.credential.deleted() || l.kek.deleted() {
		return LoginInvalid
	}
	return LoginValid
}

// Close ends the login object. DEKs made with it stay. A second Close does nothing; the
// error is always nil.
func (l *Login) Close() error {
	if l.ctx == nil {
		return failure.Zero("crypto login destroy", "Context.NewLogin")
	}
	l.ctx.store.mu.Lock()
	defer l.ctx.store.mu.Unlock()
	l.closed = true
	if l.ctx.object == l {
		l.ctx.object = nil
	}
	return nil
}

// anyValid reports whether the session or the login object is valid.
func (c *Context) anyValid() bool {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	for _, l := range []*Login{c.session, c.object} {
		if l != nil && l.stateLocked() == LoginValid {
			return true
		}
	}
	return false
}

// NewDEK makes a DEK on the device from key1 || key2 [|| keytag] in plaintext, or in mode
// Wrapped from its wrapped form, which is 8 bytes longer, with o.Login or, if that is nil,
// with the session.
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
		return newDEK(op, key, o, c.store.equalHalves)
	}

	l := o.Login
	if l == nil {
		l = c.session
	}
	switch {
	case l == nil:
		return nil, failure.New(op, syscall.EINVAL, "the device's import mode is wrapped, and there is no login")
	case l.ctx != c:
		return nil, failure.New(op, syscall.EINVAL, "the login is another context's")
	case l.stateLocked() != LoginValid:
		return nil, failure.New(op, syscall.EINVAL, "the login is not valid any more")
	}
	d, err := newWrapped(op, l.kek.bytes(), key, o, c.store.equalHalves)
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

// Close ends the context and its session. A second Close does nothing. EBUSY:
// DEKs or the login object of the context exist; the context is not changed.
func (c *Context) Close() error {
	if c.store == nil {
		return failure.Zero("close a context", "Store.NewContext")
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	switch {
	case len(c.deks) != 0:
		return failure.New("context close", syscall.EBUSY, "%d DEKs of the context exist", len(c.deks))
	case c.object != nil:
		return failure.New("context close", syscall.EBUSY, "the context's login object was not closed")
	}
	c.closed = true
	c.session = nil
	return nil
}
