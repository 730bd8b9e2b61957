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

// String describes the context by its DEKs.
func (c *Context) String() string {
	if c.store == nil {
		return "key store context"
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	return fmt.Sprintf("key store context (%d DEKs)", len(c.deks))
}

// String describes the login by its validity.
func (l *Login) String() string {
	if l.Valid() {
		return "login (valid)"
	}
	return "login (invalid)"
}
