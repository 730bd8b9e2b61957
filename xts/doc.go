// Package xts is AES-XTS (IEEE Std 1619-2007, NIST SP 800-38E) over many data
// units per call.
//
// Storage encrypts sector by sector: the stream is cut into data units of a
// fixed size, and unit i is encrypted with the tweak t+i, usually the sector's
// number. [Cipher.Encrypt] and [Cipher.Decrypt] take a whole run of units,
// which makes them fast for small units; [Cipher.EncryptUnit] and
// [Cipher.DecryptUnit] take one. A unit is any number of bytes from 16 on: one
// that is not a multiple of 16 ends with ciphertext stealing, so the ciphertext
// is as long as the plaintext.
//
// # Security
//
// XTS keeps data at rest confidential. It has no authentication: a changed
// ciphertext block decrypts to a random-looking block without an error. The
// same data in the same unit encrypts to the same ciphertext. Use an AEAD of
// crypto/cipher if that is not enough.
//
// # Buffers
//
// The destination may be the source (in place) or memory that does not overlap
// it. Any other overlap panics, as it does in crypto/cipher, and so do wrong lengths:
// they are bugs of the caller. A key, which can come from outside, is refused with an
// error.
//
// # Concurrency
//
// A [Cipher] is safe for concurrent use, except for [Cipher.Close].
package xts
