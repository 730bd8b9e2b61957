package dek

import "fmt"

// No struct of this package has a key in it: keys are in locked memory, behind an
// unsafe.Pointer, which neither package fmt nor an encoder follows. This also holds in an
// unexported field of a caller's struct, of which package fmt calls no methods.

// String describes the DEK without its key.
func (d *DEK) String() string {
	s := fmt.Sprintf("DEK (%v", d.size)
	if d.hasKeyTag {
		s += ", keytag"
	}
	if d.wrapped {
		s += ", wrapped"
	}
	if d.refs.Load() < 0 {
		s += ", closed"
	}
	return s + ")"
}

// String describes the store by its import mode.
func (s *Store) String() string { return fmt.Sprintf("key store (import mode %v)", s.mode) }

// String describes the context by its session's state.
func (c *Context) String() string {
	return fmt.Sprintf("key store context (session: %v)", c.LoginState())
}

// String describes the login by its state.
func (l *Login) String() string {
	s, err := l.State()
	if err != nil {
		return "login (closed)"
	}
	return fmt.Sprintf("login (%v)", s)
}
