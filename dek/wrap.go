package dek

import (
	"crypto/aes"
	"syscall"

	josecipher "github.com/go-jose/go-jose/v4/cipher"

	"github.com/softmkey/softmkey/operr"
)

// wrapOverhead is what AES key wrap adds: the IV's block of 64 bits.
const wrapOverhead = 8

// Wrap wraps plaintext, such as a DEK or a credential, under kek by AES key wrap
// (RFC 3394; NIST SP 800-38F's KW). The result is 8 bytes longer. EINVAL: kek is not
// of 16 or 32 bytes, or plaintext is not a multiple of 8 and at least 16 bytes.
func Wrap(kek, plaintext []byte) ([]byte, error) {
	const op = "key wrap"
	if len(plaintext) < 16 || len(plaintext)%8 != 0 {
		return nil, operr.New(op, syscall.EINVAL, "%d bytes: must be a multiple of 8, and at least 16", len(plaintext))
	}
	if err := checkKEK(op, kek); err != nil {
		return nil, err
	}
	b, err := aes.NewCipher(kek)
	if err != nil {
		return nil, &operr.Error{Op: op, Errno: syscall.EINVAL, Reason: "AES refused the KEK", Err: err}
	}
	wrapped, err := josecipher.KeyWrap(b, plaintext)
	if err != nil {
		return nil, &operr.Error{Op: op, Errno: syscall.EINVAL, Reason: "not wrapped", Err: err}
	}
	return wrapped, nil
}

// Unwrap is the inverse of [Wrap]. EINVAL: a length that Wrap does not produce, or
// wrapped was not wrapped under kek or was changed.
func Unwrap(kek, wrapped []byte) ([]byte, error) {
	const op = "key unwrap"
	if len(wrapped) < 24 || len(wrapped)%8 != 0 {
		return nil, operr.New(op, syscall.EINVAL, "%d bytes: must be a multiple of 8, and at least 24", len(wrapped))
	}
	if err := checkKEK(op, kek); err != nil {
		return nil, err
	}
	plaintext, err := unwrap(kek, wrapped)
	if err != nil {
		return nil, operr.New(op, syscall.EINVAL, "not wrapped under this KEK, or changed since")
	}
	return plaintext, nil
}

func checkKEK(op string, kek []byte) error {
	if len(kek) != 16 && len(kek) != 32 {
		return operr.New(op, syscall.EINVAL, "KEK of %d bytes: must be 16 or 32", len(kek))
	}
	return nil
}

func unwrap(kek, wrapped []byte) ([]byte, error) {
	b, err := aes.NewCipher(kek)
	if err != nil {
		return nil, err
	}
	return josecipher.KeyUnwrap(b, wrapped)
}
