package dek

import (
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// Generate returns a random key1 || key2 of the given size, followed by a random keytag if
// keytag is true. It panics if size is not one of the constants. The caller overwrites the
// result after its use.
func Generate(size KeySize, keytag bool) []byte {
	if size > Size256 {
		panic("dek: unknown key size")
	}
	n := size.Bytes()
	key := make([]byte, n, n+KeyTagSize)
	// Equal halves are refused everywhere, so they are not returned here.
	for subtle.ConstantTimeCompare(key[:n/2], key[n/2:]) == 1 {
		rand.Read(key)
	}
	if keytag {
		key = key[:n+KeyTagSize]
		rand.Read(key[n:])
	}
	return key
}

// ParseKey returns the key1 || key2 that a file holds: 32 or 64 raw bytes, or their
// hexadecimal digits, with white space around and between them. 64 bytes that are
// all hexadecimal digits are the digits of 32 bytes: a random key looks like that
// once in 10^68 times. EINVAL: anything else, and two equal halves. The result does
// not share memory with file, and the caller overwrites both.
func ParseKey(file []byte) ([]byte, error) {
	const op = "key file"
	key, err := parse(op, file, 32, 64)
	if err != nil {
		return nil, err
	}
	if half := len(key) / 2; subtle.ConstantTimeCompare(key[:half], key[half:]) == 1 {
		clear(key)
		return nil, failure.New(op, syscall.EINVAL, "key1 and key2 are equal")
	}
	return key, nil
}

// ParseKEK returns the KEK that a file holds: 16 or 32 raw bytes, or their
// hexadecimal digits. The rules are those of [ParseKey].
func ParseKEK(file []byte) ([]byte, error) { return parse("KEK file", file, 16, 32) }

// ParseWrapped returns the wrapped key that a file holds, without or with a keytag: 40,
// 48, 72 or 80 raw bytes, or their hexadecimal digits. The rules are those of
// [ParseKey].
func ParseWrapped(file []byte) ([]byte, error) {
	return parse("wrapped key file", file, 40, 48, 72, 80)
}

// parse tries hexadecimal digits first, because a file of random bytes never looks like
// them.
func parse(op string, file []byte, sizes ...int) ([]byte, error) {
	digits := bytes.Join(bytes.Fields(file), nil)
	defer clear(digits)
	b := make([]byte, hex.DecodedLen(len(digits)))
	if _, err := hex.Decode(b, digits); err == nil && slices.Contains(sizes, len(b)) {
		return b, nil
	}
	clear(b)
	if slices.Contains(sizes, len(file)) {
		return bytes.Clone(file), nil
	}
	want := strings.ReplaceAll(strings.Trim(fmt.Sprint(sizes[:len(sizes)-1]), "[]"), " ", ", ")
	return nil, failure.New(op, syscall.EINVAL, "%d bytes: must be %s or %d raw bytes, or their hexadecimal digits", len(file), want, sizes[len(sizes)-1])
}
