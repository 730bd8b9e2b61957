package dek

import (
	"syscall"
	"testing"
)

// device is a Store of mode Wrapped that a crypto officer has provisioned.
type device struct {
	*Store
	kek, credential []byte
	login           loginArgs
}

// loginArgs are the arguments of a login.
type loginArgs struct {
	credentialID, kekID uint32
	credential          []byte // wrapped
}

func (a loginArgs) session(c *Context) error { return c.Login(a.credentialID, a.kekID, a.credential) }

func (a loginArgs) object(c *Context) (*Login, error) {
	return c.NewLogin(a.credentialID, a.kekID, a.credential)
}

func newDevice(t *testing.T) *device {
	t.Helper()
	d := &device{Store: NewStore(Wrapped), kek: keyOf(32, 100), credential: keyOf(CredentialSize, 200)}
	wantErrno(t, "add KEK", d.AddKEK(0x10, d.kek), 0)
	wantErrno(t, "add credential", d.AddCredential(MaxID, d.credential), 0)
	d.login = loginArgs{MaxID, 0x10, must(Wrap(d.kek, d.credential))}
	return d
}

// wrapped returns a key under the KEK, and its options.
func (d *device) wrapped(size KeySize, keytag bool) ([]byte, *DEKOptions) {
	n := size.Bytes()
	if keytag {
		n += KeyTagSize
	}
	return must(Wrap(d.kek, keyOf(n, 1))), &DEKOptions{HasKeyTag: keytag}
}

func TestOfficer(t *testing.T) {
	s := NewStore(Wrapped)
	for _, add := range []struct {
		name  string
		f     func(uint32, []byte) error
		id    uint32
		n     int
		errno syscall.Errno
	}{
		{"KEK of 128 bits", s.AddKEK, 0, 16, 0},
		{"KEK of 256 bits", s.AddKEK, MaxID, 32, 0},
		{"KEK of 192 bits", s.AddKEK, 5, 24, syscall.EINVAL},
		{"no KEK", s.AddKEK, 5, 0, syscall.EINVAL},
		{"KEK above 24 bits", s.AddKEK, MaxID + 1, 16, syscall.EINVAL},
		{"KEK twice", s.AddKEK, 0, 32, syscall.EEXIST},
		{"credential", s.AddCredential, 0, 40, 0},
		{"credential wrapped already", s.AddCredential, 1, 48, syscall.EINVAL},
		{"short credential", s.AddCredential, 1, 39, syscall.EINVAL},
		{"credential above 24 bits", s.AddCredential, 1 << 31, 40, syscall.EINVAL},
		{"credential twice", s.AddCredential, 0, 40, syscall.EEXIST},
	} {
		wantErrno(t, add.name, add.f(add.id, keyOf(add.n, 1)), add.errno)
	}
	wantErrno(t, "delete KEK", s.DeleteKEK(MaxID), 0)
	wantErrno(t, "delete KEK again", s.DeleteKEK(MaxID), syscall.ENOENT)
	wantErrno(t, "delete credential", s.DeleteCredential(0), 0)
	wantErrno(t, "delete credential again", s.DeleteCredential(0), syscall.ENOENT)
	wantErrno(t, "delete credential that never was", s.DeleteCredential(77), syscall.ENOENT)
	wantErrno(t, "add KEK again", s.AddKEK(MaxID, keyOf(16, 1)), 0)
}

func TestPlaintextMode(t *testing.T) {
	s := NewStore(Plaintext)
	c := s.NewContext()
	if s.Mode() != Plaintext {
		t.Error("mode", s.Mode())
	}
	wantErrno(t, "add KEK", s.AddKEK(1, keyOf(16, 0)), syscall.EOPNOTSUPP)
	wantErrno(t, "add credential", s.AddCredential(1, keyOf(40, 0)), syscall.EOPNOTSUPP)
	wantErrno(t, "login", c.Login(0, 0, nil), syscall.EOPNOTSUPP)
	wantErrno(t, "login object", second(c.NewLogin(0, 0, nil)), syscall.EOPNOTSUPP)
	if got := c.LoginState(); got != NoLogin {
		t.Error("login state", got)
	}
	wantErrno(t, "logout", c.Logout(), syscall.ENOENT)

	d := must(c.NewDEK(keyOf(32, 1), &DEKOptions{Opaque: [8]byte{9}}))
	if got := must(d.Query()); got != (Info{StateReady, [8]byte{9}}) {
		t.Errorf("query: %+v", got)
	}
	wantErrno(t, "a wrapped key", second(c.NewDEK(must(Wrap(keyOf(16, 0), keyOf(32, 1))), nil)), syscall.EINVAL)
	wantErrno(t, "a login", second(c.NewDEK(keyOf(32, 1), &DEKOptions{Login: new(Login)})), syscall.EINVAL)
	wantErrno(t, "close with a DEK left", c.Close(), syscall.EBUSY)
	wantErrno(t, "close", d.Close(), 0)
	wantErrno(t, "close", c.Close(), 0)
	wantErrno(t, "close again", c.Close(), 0)
	wantErrno(t, "create after close", second(c.NewDEK(keyOf(32, 1), nil)), syscall.EINVAL)
}

func TestLoginRefused(t *testing.T) {
	d := newDevice(t)
	wantErrno(t, "another KEK", d.AddKEK(0x11, keyOf(16, 3)), 0)
	wantErrno(t, "another credential", d.AddCredential(0x12, keyOf(40, 3)), 0)
	c := d.NewContext()
	for _, tt := range []struct {
		name   string
		change func(*loginArgs)
	}{
		{"unknown credential", func(a *loginArgs) { a.credentialID = 1 }},
		{"unknown KEK", func(a *loginArgs) { a.kekID = 1 }},
		{"credential id above 24 bits", func(a *loginArgs) { a.credentialID |= 1 << 24 }},
		{"KEK id above 24 bits", func(a *loginArgs) { a.kekID |= 1 << 24 }},
		{"another credential's id", func(a *loginArgs) { a.credentialID = 0x12 }},
		{"another KEK's id", func(a *loginArgs) { a.kekID = 0x11 }},
		{"credential in plaintext", func(a *loginArgs) { a.credential = d.credential }},
		{"no credential", func(a *loginArgs) { a.credential = nil }},
		{"wrong credential, well wrapped", func(a *loginArgs) { a.credential = must(Wrap(d.kek, keyOf(40, 201))) }},
		{"credential of another length, well wrapped", func(a *loginArgs) { a.credential = must(Wrap(d.kek, keyOf(48, 200))) }},
		{"a bit flipped", func(a *loginArgs) { a.credential = append([]byte(nil), a.credential...); a.credential[20] ^= 4 }},
	} {
		a := d.login
		tt.change(&a)
		wantErrno(t, tt.name, a.session(c), syscall.EINVAL)
		wantErrno(t, tt.name+" (object)", second(a.object(c)), syscall.EINVAL)
	}
	if got := c.LoginState(); got != NoLogin {
		t.Error("login state", got)
	}
}

func TestSession(t *testing.T) {
	d := newDevice(t)
	c, other := d.NewContext(), d.NewContext()
	wantErrno(t, "create without a login", second(c.NewDEK(d.wrapped(Size128, false))), syscall.EINVAL)
	wantErrno(t, "logout without a login", c.Logout(), syscall.ENOENT)

	wantErrno(t, "login", d.login.session(c), 0)
	wantErrno(t, "second login", d.login.session(c), syscall.EEXIST)
	wantErrno(t, "another context's login", d.login.session(other), 0)
	if got := c.LoginState(); got != LoginValid {
		t.Error("login state", got)
	}

	var deks []*DEK
	for _, size := range []KeySize{Size128, Size256} {
		for _, keytag := range []bool{false, true} {
			deks = append(deks, must(c.NewDEK(d.wrapped(size, keytag))))
		}
	}
	for name, wrapped := range map[string][]byte{
		"key in plaintext":     keyOf(32, 1),
		"cut off":              must(Wrap(d.kek, keyOf(32, 1)))[:32],
		"under another KEK":    must(Wrap(keyOf(32, 0), keyOf(32, 1))),
		"equal halves":         must(Wrap(d.kek, make([]byte, 32))),
		"keytag not announced": must(Wrap(d.kek, keyOf(40, 1))),
	} {
		wantErrno(t, name, second(c.NewDEK(wrapped, nil)), syscall.EINVAL)
	}

	// After logout, DEKs can be used but not queried.
	wantErrno(t, "logout", c.Logout(), 0)
	for _, x := range deks {
		wantErrno(t, "query without a login", second(x.Query()), syscall.EINVAL)
		wantErrno(t, "use without a login", second(x.Acquire([8]byte(keyOf(8, 1+byte(x.Size().Bytes()))))), 0)
		x.Release()
	}
	wantErrno(t, "login again", d.login.session(c), 0)
	for _, x := range deks {
		wantErrno(t, "query", second(x.Query()), 0)
		wantErrno(t, "close", x.Close(), 0)
	}
}

func TestRevocation(t *testing.T) {
	for name, revoke := range map[string]func(*device) error{
		"credential": func(d *device) error { return d.DeleteCredential(MaxID) },
		"KEK":        func(d *device) error { return d.DeleteKEK(0x10) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t)
			c := d.NewContext()
			wantErrno(t, "login", d.login.session(c), 0)
			object := must(d.login.object(c))
			x := must(c.NewDEK(d.wrapped(Size256, false)))
			key, withObject := d.wrapped(Size256, false)
			withObject.Login = object

			wantErrno(t, "revoke", revoke(d), 0)
			if got := c.LoginState(); got != LoginInvalid {
				t.Error("session state", got)
			}
			if got := must(object.State()); got != LoginInvalid {
				t.Error("object state", got)
			}
			wantErrno(t, "create with the session", second(c.NewDEK(d.wrapped(Size256, false))), syscall.EINVAL)
			wantErrno(t, "create with the object", second(c.NewDEK(key, withObject)), syscall.EINVAL)
			wantErrno(t, "query", second(x.Query()), syscall.EINVAL)
			wantErrno(t, "use", second(x.Acquire([8]byte{})), 0)
			x.Release()
			wantErrno(t, "login over an invalid session", d.login.session(c), syscall.EEXIST)

			// The same ids and values, provisioned again, do not revive the login.
			d.AddCredential(MaxID, d.credential)
			d.AddKEK(0x10, d.kek)
			if got := c.LoginState(); got != LoginInvalid {
				t.Error("session state after provisioning again", got)
			}
			wantErrno(t, "logout", c.Logout(), 0)
			wantErrno(t, "login", d.login.session(c), 0)
			wantErrno(t, "query", second(x.Query()), 0)
			wantErrno(t, "close", x.Close(), 0)
			wantErrno(t, "close object", object.Close(), 0)
			wantErrno(t, "close", c.Close(), 0)
		})
	}
}

func TestLoginObjects(t *testing.T) {
	d := newDevice(t)
	c, other := d.NewContext(), d.NewContext()
	a := must(d.login.object(c))
	key, o := d.wrapped(Size128, true)
	wantErrno(t, "create with an object that was not passed", second(c.NewDEK(key, o)), syscall.EINVAL)
	o.Login = a
	wantErrno(t, "create with another context's object", second(other.NewDEK(key, o)), syscall.EINVAL)
	x := must(c.NewDEK(key, o))

	// A context has one login object at most, besides the session.
	wantErrno(t, "second object", second(d.login.object(c)), syscall.EEXIST)
	wantErrno(t, "second object that is wrong", second(c.NewLogin(0, 0, nil)), syscall.EEXIST)
	wantErrno(t, "session beside the object", d.login.session(c), 0)
	wantErrno(t, "logout", c.Logout(), 0)
	if st, err := a.State(); st != LoginValid || err != nil {
		t.Errorf("the object after a second was refused: %v, %v", st, err)
	}
	neighbour := must(d.login.object(other))
	wantErrno(t, "close another context's object", neighbour.Close(), 0)

	wantErrno(t, "close with objects left", c.Close(), syscall.EBUSY)
	wantErrno(t, "close object", a.Close(), 0)
	wantErrno(t, "state of a closed object", second(a.State()), syscall.EINVAL)
	wantErrno(t, "create with a closed object", second(c.NewDEK(key, o)), syscall.EINVAL)
	wantErrno(t, "query with none", second(x.Query()), syscall.EINVAL)
	b := must(d.login.object(c))
	wantErrno(t, "close the first object again", a.Close(), 0)
	wantErrno(t, "another object after the first was closed twice", second(d.login.object(c)), syscall.EEXIST)
	wantErrno(t, "query with the other object", second(x.Query()), 0)

	// An invalid login object must also be closed before another is made.
	wantErrno(t, "delete the KEK", d.DeleteKEK(d.login.kekID), 0)
	wantErrno(t, "second object beside an invalid one", second(d.login.object(c)), syscall.EEXIST)
	wantErrno(t, "close object", b.Close(), 0)
	wantErrno(t, "close", x.Close(), 0)
	wantErrno(t, "close", c.Close(), 0)
	wantErrno(t, "login object after close", second(d.login.object(c)), syscall.EINVAL)
	wantErrno(t, "login after close", d.login.session(c), syscall.EINVAL)
}

// TestDeviceConstants compares constants with those of <infiniband/mlx5dv.h>.
func TestDeviceConstants(t *testing.T) {
	for _, v := range []struct {
		name      string
		got, want int
	}{
		{"MLX5DV_CRYPTO_KEY_SIZE_128", int(Size128), 0},
		{"MLX5DV_CRYPTO_KEY_SIZE_256", int(Size256), 1},
		{"MLX5DV_DEK_STATE_READY", int(StateReady), 0},
		{"MLX5DV_DEK_STATE_ERROR", int(StateError), 1},
		{"MLX5DV_CRYPTO_LOGIN_STATE_VALID", int(LoginValid), 0},
		{"MLX5DV_CRYPTO_LOGIN_STATE_NO_LOGIN", int(NoLogin), 1},
		{"MLX5DV_CRYPTO_LOGIN_STATE_INVALID", int(LoginInvalid), 2},
	} {
		if v.got != v.want {
			t.Errorf("%s is %d, want %d", v.name, v.got, v.want)
		}
	}
}

// TestReplace replaces secrets on a device. Logins with the old ones become invalid, and DEKs
// that were made with them stay.
func TestReplace(t *testing.T) {
	for name, replace := range map[string]func(d *device, id uint32) error{
		"KEK":        func(d *device, id uint32) error { return d.ReplaceKEK(id, keyOf(16, 7)) },
		"credential": func(d *device, id uint32) error { return d.ReplaceCredential(id, keyOf(CredentialSize, 7)) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t)
			c := d.NewContext()
			defer c.Close()
			wantErrno(t, "replace nothing", replace(d, 0x99), syscall.ENOENT)
			wantErrno(t, "login", d.login.session(c), 0)
			k, err := c.NewDEK(must(Wrap(d.kek, keyOf(32, 1))), nil)
			wantErrno(t, "make a DEK", err, 0)
			id := d.login.kekID
			if name == "credential" {
				id = d.login.credentialID
			}
			wantErrno(t, "replace", replace(d, id), 0)
			if st := c.LoginState(); st != LoginInvalid {
				t.Errorf("the login is %v, want invalid", st)
			}
			wantErrno(t, "logout", c.Logout(), 0)
			wantErrno(t, "login with the old secrets", d.login.session(c), syscall.EINVAL)
			wantErrno(t, "use the DEK", second(k.Acquire([KeyTagSize]byte{})), 0)
			k.Release()
			wantErrno(t, "close the DEK", k.Close(), 0)
		})
	}
	d := newDevice(t)
	wantErrno(t, "a KEK of 15 bytes", d.ReplaceKEK(d.login.kekID, make([]byte, 15)), syscall.EINVAL)
	wantErrno(t, "a credential of 15 bytes", d.ReplaceCredential(d.login.credentialID, make([]byte, 15)), syscall.EINVAL)
	c := d.NewContext()
	defer c.Close()
	wantErrno(t, "login with the secrets that stayed", d.login.session(c), 0)
}

// TestErrorState puts a DEK into state error.
func TestErrorState(t *testing.T) {
	k, err := New(keyOf(32, 1), nil)
	wantErrno(t, "make a DEK", err, 0)
	wantErrno(t, "fail it", k.Fail(), 0)
	if info, err := k.Query(); err != nil || info.State != StateError {
		t.Errorf("state %v, %v, want error", info.State, err)
	}
	wantErrno(t, "use it", second(k.Acquire([KeyTagSize]byte{})), syscall.EINVAL)
	wantErrno(t, "close it", k.Close(), 0)
	wantErrno(t, "fail it again", k.Fail(), syscall.EINVAL)
}
