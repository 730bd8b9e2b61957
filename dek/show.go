package dek

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
)

// The methods in this file keep keys out of logs, error texts and dumps: fmt calls Format
// for every verb, slog calls LogValue and encoding/json MarshalJSON, so that none of them
// reads the fields. String and GoString are for direct calls.

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

// GoString returns the result of String.
func (d *DEK) GoString() string { return d.String() }

// Format writes the result of String for every verb.
func (d *DEK) Format(f fmt.State, _ rune) { io.WriteString(f, d.String()) }

// LogValue is String.
func (d *DEK) LogValue() slog.Value { return slog.StringValue(d.String()) }

// MarshalJSON is String as a JSON string.
func (d *DEK) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// String describes the attributes without the key.
func (a Attr) String() string {
	s := fmt.Sprintf("DEK attributes (%v, opaque %x", a.Size, a.Opaque)
	if a.HasKeyTag {
		s += ", keytag"
	}
	if a.Login != nil {
		s += ", wrapped"
	}
	return s + ")"
}

// GoString is String.
func (a Attr) GoString() string { return a.String() }

// Format writes String, whatever the verb.
func (a Attr) Format(f fmt.State, _ rune) { io.WriteString(f, a.String()) }

// LogValue is String.
func (a Attr) LogValue() slog.Value { return slog.StringValue(a.String()) }

// MarshalJSON is String as a JSON string.
func (a Attr) MarshalJSON() ([]byte, error) { return json.Marshal(a.String()) }

// String describes the attributes without the credential.
func (a LoginAttr) String() string {
	return fmt.Sprintf("login attributes (credential %#x, import KEK %#x)", a.CredentialID, a.ImportKEKID)
}

// GoString is String.
func (a LoginAttr) GoString() string { return a.String() }

// Format writes String, whatever the verb.
func (a LoginAttr) Format(f fmt.State, _ rune) { io.WriteString(f, a.String()) }

// LogValue is String.
func (a LoginAttr) LogValue() slog.Value { return slog.StringValue(a.String()) }

// MarshalJSON is String as a JSON string.
func (a LoginAttr) MarshalJSON() ([]byte, error) { return json.Marshal(a.String()) }

// String describes the store by its import mode, and shows nothing else.
func (s *Store) String() string { return fmt.Sprintf("key store (import mode %v)", s.mode) }

// GoString is String.
func (s *Store) GoString() string { return s.String() }

// Format writes String, whatever the verb.
func (s *Store) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// LogValue is String.
func (s *Store) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalJSON is String as a JSON string.
func (s *Store) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// String describes the context by its session's state.
func (c *Context) String() string {
	return fmt.Sprintf("key store context (session: %v)", c.LoginState())
}

// GoString is String.
func (c *Context) GoString() string { return c.String() }

// Format writes String, whatever the verb.
func (c *Context) Format(f fmt.State, _ rune) { io.WriteString(f, c.String()) }

// LogValue is String.
func (c *Context) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalJSON is String as a JSON string.
func (c *Context) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

// String describes the login by its state.
func (l *Login) String() string {
	s, err := l.State()
	if err != nil {
		return "login (closed)"
	}
	return fmt.Sprintf("login (%v)", s)
}

// GoString is String.
func (l *Login) GoString() string { return l.String() }

// Format writes String, whatever the verb.
func (l *Login) Format(f fmt.State, _ rune) { io.WriteString(f, l.String()) }

// LogValue is String.
func (l *Login) LogValue() slog.Value { return slog.StringValue(l.String()) }

// MarshalJSON is String as a JSON string.
func (l *Login) MarshalJSON() ([]byte, error) { return json.Marshal(l.String()) }
