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

func (a loginArgs) in(c *Context) (*Login, error) {
	return c.NewLogin(a.credentialID, a.kekID, a.credential)
}

func newDevice(t *testing.T) *device {
	t.Helper()
	d := &device{Store: NewStore(Wrapped), kek: keyOf(32, 100), credential: keyOf(credentialSize, 200)}
	wantErrno(t, "add KEK", d.AddKEK(0x10, d.kek), 0)
	wantErrno(t, "add credential", d.AddCredential(maxID, d.credential), 0)
	d.login = loginArgs{maxID, 0x10, must(Wrap(d.kek, d.credential))}
	return d
}

// wrapped returns a key under the KEK.
func (d *device) wrapped(size KeySize, keytag bool) []byte {
	n := size.Bytes()
	if keytag {
		n += KeyTagSize
	}
	return must(Wrap(d.kek, keyOf(n, 1)))
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
		{"KEK of 256 bits", s.AddKEK, maxID, 32, 0},
		{"KEK of 192 bits", s.AddKEK, 5, 24, syscall.EINVAL},
		{"no KEK", s.AddKEK, 5, 0, syscall.EINVAL},
		{"KEK above 24 bits", s.AddKEK, maxID + 1, 16, syscall.EINVAL},
		{"KEK twice", s.AddKEK, 0, 32, syscall.EEXIST},
		{"credential", s.AddCredential, 0, 40, 0},
		{"credential wrapped already", s.AddCredential, 1, 48, syscall.EINVAL},
		{"short credential", s.AddCredential, 1, 39, syscall.EINVAL},
		{"credential above 24 bits", s.AddCredential, 1 << 31, 40, syscall.EINVAL},
		{"credential twice", s.AddCredential, 0, 40, syscall.EEXIST},
	} {
		wantErrno(t, add.name, add.f(add.id, keyOf(add.n, 1)), add.errno)
	}
	wantErrno(t, "delete KEK", s.DeleteKEK(maxID), 0)
	wantErrno(t, "delete KEK again", s.DeleteKEK(maxID), syscall.ENOENT)
	wantErrno(t, "delete credential", s.DeleteCredential(0), 0)
	wantErrno(t, "delete credential again", s.DeleteCredential(0), syscall.ENOENT)
	wantErrno(t, "delete credential that never was", s.DeleteCredential(77), syscall.ENOENT)
	wantErrno(t, "add KEK again", s.AddKEK(maxID, keyOf(16, 1)), 0)
}

func TestPlaintextMode(t *testing.T) {
	s := NewStore(Plaintext)
	c := s.NewContext()
	if s.Mode() != Plaintext {
		t.Error("mode", s.Mode())
	}
	wantErrno(t, "add KEK", s.AddKEK(1, keyOf(16, 0)), syscall.EOPNOTSUPP)
	wantErrno(t, "add credential", s.AddCredential(1, keyOf(40, 0)), syscall.EOPNOTSUPP)
	wantErrno(t, "login", second(c.NewLogin(0, 0, nil)), syscall.EOPNOTSUPP)

	d := must(c.NewDEK(keyOf(32, 1), nil))
	wantErrno(t, "check", d.Check(), 0)
	x := must(c.NewDEK(must(Wrap(keyOf(16, 0), keyOf(32, 1))), nil)) // as long as a key with a keytag
	wantErrno(t, "a wrapped key", second(x.Acquire([8]byte{})), syscall.EINVAL)
	wantErrno(t, "close", x.Close(), 0)
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
		wantErrno(t, tt.name, second(a.in(c)), syscall.EINVAL)
	}
}

func TestLogin(t *testing.T) {
	d := newDevice(t)
	c, other := d.NewContext(), d.NewContext()
	key := d.wrapped(Size128, true)
	wantErrno(t, "create without a login", second(c.NewDEK(key, nil)), syscall.EINVAL)
	a := must(d.login.in(c))
	o := &DEKOptions{Login: a}
	wantErrno(t, "second login", second(d.login.in(c)), syscall.EEXIST)
	wantErrno(t, "second login that is wrong", second(c.NewLogin(0, 0, nil)), syscall.EEXIST)
	if !a.Valid() {
		t.Error("the login is not valid after a second was refused")
	}
	neighbour := must(d.login.in(other))
	wantErrno(t, "create with a login that was not passed", second(c.NewDEK(key, nil)), syscall.EINVAL)
	wantErrno(t, "create with another context's login", second(other.NewDEK(key, o)), syscall.EINVAL)

	var deks []*DEK
	for _, size := range []KeySize{Size128, Size256} {
		for _, keytag := range []bool{false, true} {
			x := must(c.NewDEK(d.wrapped(size, keytag), o))
			if x.Size() != size || x.hasKeyTag != keytag {
				t.Errorf("%v, keytag %v: made %v", size, keytag, x)
			}
			deks = append(deks, x)
		}
	}
	for name, wrapped := range map[string][]byte{
		"key in plaintext":  keyOf(32, 1),
		"cut off":           must(Wrap(d.kek, keyOf(32, 1)))[:32],
		"cut to a key":      must(Wrap(d.kek, keyOf(40, 1)))[:40],
		"under another KEK": must(Wrap(keyOf(32, 0), keyOf(32, 1))),
		"equal halves":      must(Wrap(d.kek, make([]byte, 32))),
	} {
		wantErrno(t, name, second(c.NewDEK(wrapped, o)), syscall.EINVAL)
	}

	// Without a login, DEKs can be used but not asked for their state.
	wantErrno(t, "close another context's login", neighbour.Close(), 0)
	wantErrno(t, "close with DEKs left", c.Close(), syscall.EBUSY)
	wantErrno(t, "close the login", a.Close(), 0)
	if a.Valid() {
		t.Error("a closed login is valid")
	}
	wantErrno(t, "create with a closed login", second(c.NewDEK(key, o)), syscall.EINVAL)
	for _, x := range deks {
		wantErrno(t, "state without a login", x.Check(), syscall.EINVAL)
		wantErrno(t, "use without a login", second(x.Acquire([8]byte(keyOf(8, 1+byte(x.Size().Bytes()))))), 0)
		x.Release()
	}
	b := must(d.login.in(c))
	wantErrno(t, "close the first login again", a.Close(), 0)
	wantErrno(t, "another login after the first was closed twice", second(d.login.in(c)), syscall.EEXIST)
	for _, x := range deks {
		wantErrno(t, "state", x.Check(), 0)
		wantErrno(t, "close", x.Close(), 0)
	}
	wantErrno(t, "close with the login left", c.Close(), syscall.EBUSY)
	wantErrno(t, "close the login", b.Close(), 0)
	wantErrno(t, "close", c.Close(), 0)
	wantErrno(t, "login after close", second(d.login.in(c)), syscall.EINVAL)
}

// TestRevocation deletes and replaces secrets on a device. Logins with the old ones become
// invalid, and DEKs that were made with them stay.
func TestRevocation(t *testing.T) {
	for name, revoke := range map[string]func(*device) error{
		"delete credential":  func(d *device) error { return d.DeleteCredential(maxID) },
		"delete KEK":         func(d *device) error { return d.DeleteKEK(0x10) },
		"replace credential": func(d *device) error { return d.ReplaceCredential(maxID, keyOf(credentialSize, 7)) },
		"replace KEK":        func(d *device) error { return d.ReplaceKEK(0x10, keyOf(16, 7)) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t)
			c := d.NewContext()
			login := must(d.login.in(c))
			key, o := d.wrapped(Size256, false), &DEKOptions{Login: login}
			x := must(c.NewDEK(key, o))

			wantErrno(t, "revoke", revoke(d), 0)
			revoked := func(when string) {
				if login.Valid() {
					t.Errorf("the login is valid %s", when)
				}
				wantErrno(t, "create "+when, second(c.NewDEK(key, o)), syscall.EINVAL)
				wantErrno(t, "state "+when, x.Check(), syscall.EINVAL)
				wantErrno(t, "use "+when, second(x.Acquire([8]byte{})), 0)
				x.Release()
				wantErrno(t, "login beside an invalid one "+when, second(d.login.in(c)), syscall.EEXIST)
			}
			revoked("after the secret is gone")
			wantErrno(t, "login with the old secrets", second(d.login.in(d.NewContext())), syscall.EINVAL)

			// The same ids and values, provisioned again, do not revive the login.
			d.DeleteCredential(maxID)
			d.DeleteKEK(0x10)
			d.AddCredential(maxID, d.credential)
			d.AddKEK(0x10, d.kek)
			revoked("after provisioning again")
			wantErrno(t, "close the login", login.Close(), 0)
			again := must(d.login.in(c))
			wantErrno(t, "state", x.Check(), 0)
			wantErrno(t, "close", x.Close(), 0)
			wantErrno(t, "close the login", again.Close(), 0)
			wantErrno(t, "close", c.Close(), 0)
		})
	}
	d := newDevice(t)
	wantErrno(t, "replace no KEK", d.ReplaceKEK(0x99, keyOf(16, 7)), syscall.ENOENT)
	wantErrno(t, "replace no credential", d.ReplaceCredential(0x99, keyOf(credentialSize, 7)), syscall.ENOENT)
	wantErrno(t, "a KEK of 15 bytes", d.ReplaceKEK(d.login.kekID, make([]byte, 15)), syscall.EINVAL)
	wantErrno(t, "a credential of 15 bytes", d.ReplaceCredential(d.login.credentialID, make([]byte, 15)), syscall.EINVAL)
	must(d.login.in(d.NewContext())) // with the secrets that stayed
}

// TestDeviceConstants compares constants with those of <infiniband/mlx5dv.h>.
func TestDeviceConstants(t *testing.T) {
	if Size128 != 0 || Size256 != 1 { // MLX5DV_CRYPTO_KEY_SIZE_128 and _256
		t.Errorf("the sizes of keys are %d and %d, want 0 and 1", Size128, Size256)
	}
}

// TestErrorState puts a DEK into state error.
func TestErrorState(t *testing.T) {
	k, err := New(keyOf(32, 1))
	wantErrno(t, "make a DEK", err, 0)
	wantErrno(t, "fail it", k.Fail(), 0)
	wantErrno(t, "check it", k.Check(), syscall.EIO)
	wantErrno(t, "use it", second(k.Acquire([KeyTagSize]byte{})), syscall.EINVAL)
	wantErrno(t, "close it", k.Close(), 0)
	wantErrno(t, "fail it again", k.Fail(), syscall.EINVAL)
}
