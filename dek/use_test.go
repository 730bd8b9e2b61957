package dek

import (
	"syscall"
	"testing"
)

// A domain is a protection domain.
type domain struct{ name string }

func (*domain) ProtectionDomain() {}

// TestUsableBy checks every combination of DEK, device and domain.
func TestUsableBy(t *testing.T) {
	pd, otherPD := &domain{"a"}, &domain{"b"}

	plain, otherPlain := NewStore(Plaintext).NewContext(), NewStore(Plaintext).NewContext()
	device := newDevice(t)
	wrapped, neighbour := device.NewContext(), device.NewContext()
	must(device.login.in(wrapped))
	must(device.login.in(neighbour))

	make := func(c *Context, pd PD) *DEK {
		if c == nil {
			d := must(New(keyOf(32, 1)))
			t.Cleanup(func() { d.Close() })
			return d
		}
		key := keyOf(32, 1)
		if c.store.mode == Wrapped {
			key = device.wrapped(Size128, false)
		}
		d := must(c.NewDEK(key, &DEKOptions{PD: pd, Login: c.login}))
		t.Cleanup(func() { d.Close() })
		return d
	}
	gone := make(plain, pd)
	gone.Close()

	for _, tt := range []struct {
		name  string
		d     *DEK
		by    *Context
		pd    PD
		errno syscall.Errno
	}{
		{"its device and domain", make(plain, pd), plain, pd, 0},
		{"no domain named", make(plain, nil), plain, pd, 0},
		{"of no device, on one of plaintext", make(nil, nil), plain, pd, 0},
		{"wrapped, on its device", make(wrapped, pd), wrapped, pd, 0},
		{"nil", nil, plain, pd, syscall.EINVAL},
		{"closed", gone, plain, pd, syscall.EINVAL},
		{"another device", make(plain, pd), otherPlain, pd, syscall.EINVAL},
		{"another context of its device", make(wrapped, pd), neighbour, pd, syscall.EINVAL},
		{"plaintext device's, on a wrapped one", make(plain, pd), wrapped, pd, syscall.EINVAL},
		{"wrapped device's, on a plaintext one", make(wrapped, pd), plain, pd, syscall.EINVAL},
		{"of no device, on a wrapped one", make(nil, nil), wrapped, pd, syscall.EINVAL},
		{"another domain", make(plain, pd), plain, otherPD, syscall.EINVAL},
		{"another domain, wrapped", make(wrapped, pd), wrapped, otherPD, syscall.EINVAL},
	} {
		wantErrno(t, tt.name, tt.d.UsableBy(tt.by, tt.pd), tt.errno)
	}
}

// TestNoKey calls the methods of a nil DEK and of the zero value.
func TestNoKey(t *testing.T) {
	c := NewStore(Plaintext).NewContext()
	for name, d := range map[string]*DEK{"nil": nil, "zero": {}} {
		wantErrno(t, name+": hold", d.Hold(), syscall.EINVAL)
		wantErrno(t, name+": acquire", second(d.Acquire([KeyTagSize]byte{})), syscall.EINVAL)
		wantErrno(t, name+": query", d.Check(), syscall.EINVAL)
		wantErrno(t, name+": keytag", second(d.KeyTag()), syscall.EINVAL)
		wantErrno(t, name+": usable", d.UsableBy(c, nil), syscall.EINVAL)
		wantErrno(t, name+": close", d.Close(), syscall.EINVAL)
	}
}

// TestShownKeyTag reads the keytag of DEKs without a device, which are the only
// DEKs that reveal it.
func TestShownKeyTag(t *testing.T) {
	key := append(keyOf(32, 1), "12345678"...)
	tagged := must(New(key))
	if tag, err := tagged.KeyTag(); err != nil || string(tag[:]) != "12345678" {
		t.Errorf("%q, %v", tag, err)
	}
	kek := keyOf(16, 2)
	wrapped := must(NewWrapped(kek, must(Wrap(kek, key))))
	if tag, err := wrapped.KeyTag(); err != nil || string(tag[:]) != "12345678" {
		t.Errorf("wrapped: %q, %v", tag, err)
	}
	for name, d := range map[string]*DEK{
		"without a keytag": must(New(keyOf(32, 1))),
		"of a device":      must(NewStore(Plaintext).NewContext().NewDEK(key, nil)),
		"nil":              nil,
	} {
		wantErrno(t, name, second(d.KeyTag()), syscall.EINVAL)
		if d != nil {
			d.Close()
		}
	}
	wantErrno(t, "close", tagged.Close(), 0)
	wantErrno(t, "close", wrapped.Close(), 0)
	wantErrno(t, "closed", second(tagged.KeyTag()), syscall.EINVAL)
}
