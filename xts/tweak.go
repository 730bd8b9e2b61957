package xts

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"math/bits"
	"strings"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// Tweak is the number of a data unit: a 128-bit integer, which the standard
// writes as 16 bytes in little-endian order. Its zero value is number 0.
type Tweak struct {
	Lo, Hi uint64 // bits 0 to 63 and 64 to 127
}

// Add returns t+n, modulo 2^128.
func (t Tweak) Add(n uint64) Tweak {
	lo, carry := bits.Add64(t.Lo, n, 0)
	return Tweak{Lo: lo, Hi: t.Hi + carry}
}

// ParseTweak parses a tweak: decimal digits, or hexadecimal ones after 0x. It returns
// EINVAL for other text and for numbers of more than 128 bits.
func ParseTweak(s string) (Tweak, error) {
	digits, base := s, 10
	if strings.HasPrefix(s, "0x") || strings.HasPrefix(s, "0X") {
		digits, base = s[2:], 16
	}
	n, ok := new(big.Int).SetString(digits, base)
	if !ok || strings.HasPrefix(digits, "+") || strings.HasPrefix(digits, "-") {
		return Tweak{}, failure.New("xts tweak", syscall.EINVAL, "%q: must be decimal, or hexadecimal after 0x", s)
	}
	if n.BitLen() > 128 {
		return Tweak{}, failure.New("xts tweak", syscall.EINVAL, "%q: has more than 128 bits", s)
	}
	var b [16]byte
	n.FillBytes(b[:])
	return Tweak{Lo: binary.BigEndian.Uint64(b[8:]), Hi: binary.BigEndian.Uint64(b[:8])}, nil
}

// MarshalText returns the form of String.
func (t Tweak) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads the form of ParseTweak.
func (t *Tweak) UnmarshalText(text []byte) (err error) {
	*t, err = ParseTweak(string(text))
	return err
}

// String returns the tweak in hexadecimal, as [ParseTweak] reads it.
func (t Tweak) String() string {
	if t.Hi == 0 {
		return fmt.Sprintf("%#x", t.Lo)
	}
	return fmt.Sprintf("%#x%016x", t.Hi, t.Lo)
}
