package xts

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
)

// A Cipher must not show its keys in a log or a dump. With these methods fmt, for every
// verb, slog and encoding/json do not read its fields.

// String returns "AES-XTS cipher".
func (c *Cipher) String() string { return "AES-XTS cipher" }

// GoString is String.
func (c *Cipher) GoString() string { return c.String() }

// Format writes String for every verb.
func (c *Cipher) Format(f fmt.State, _ rune) { io.WriteString(f, c.String()) }

// LogValue is String.
func (c *Cipher) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalJSON is String as a JSON string.
func (c *Cipher) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }
