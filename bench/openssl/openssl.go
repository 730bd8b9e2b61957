// Package openssl binds AES-XTS and AES key wrap of OpenSSL (Debian libssl-dev), with
// which tests and benchmarks compare packages xts and dek.
package openssl

// #cgo LDFLAGS: -lcrypto
// #include "openssl.h"
import "C"

import (
	"errors"
	"unsafe"
)

var errRefused = errors.New("openssl: refused")

// XTS is AES-XTS with one key and one direction. It is not safe for concurrent use.
type XTS struct{ ctx *C.EVP_CIPHER_CTX }

// NewXTS returns an XTS for key1 || key2 of 32 or 64 bytes.
func NewXTS(key []byte, decrypt bool) (XTS, error) {
	encrypt := C.int(1)
	if decrypt {
		encrypt = 0
	}
	x := XTS{C.xts_new(pointer(key), C.int(len(key)*4), encrypt)}
	if x.ctx == nil {
		return x, errRefused
	}
	return x, nil
}

// Unit encrypts or decrypts one data unit; tweak is its number, least significant byte
// first.
func (x XTS) Unit(dst, src []byte, tweak [16]byte) error {
	if len(dst) < len(src) || C.xts_unit(x.ctx, pointer(dst), pointer(src), C.int(len(src)), pointer(tweak[:])) == 0 {
		return errRefused
	}
	return nil
}

// Free releases x.
func (x XTS) Free() { C.EVP_CIPHER_CTX_free(x.ctx) }

// Wrap wraps key under kek by AES key wrap (RFC 3394).
func Wrap(kek, key []byte) ([]byte, error) {
	out := make([]byte, len(key)+8)
	if C.wrap(pointer(kek), C.int(len(kek)*8), pointer(key), C.int(len(key)), pointer(out)) == 0 {
		return nil, errRefused
	}
	return out, nil
}

func pointer(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(b)) }
