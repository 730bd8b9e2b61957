// Package xts is AES-XTS (IEEE Std 1619-2007, NIST SP 800-38E) over many data
// units per call.
//
// Storage encrypts sector by sector: the stream is cut into data units of a fixed
// size, and unit i is encrypted with the tweak t+i, usually the sector's number.
// [Cipher.Encrypt] and [Cipher.Decrypt] take a whole run of units, which is what
// makes them fast for small units; [Cipher.EncryptUnit] and [Cipher.DecryptUnit]
// take one. A unit is any number of bytes from 16 on: one that is not a multiple
// of 16 ends with ciphertext stealing, so that nothing grows.
//
// # What XTS gives, and what it does not
//
// XTS hides data at rest and nothing more. It has no authentication: a changed
// ciphertext block decrypts to a random-looking block without an error. The same
// data in the same place encrypts to the same ciphertext. Where more is needed,
// use an AEAD of crypto/cipher.
//
// # Buffers
//
// The destination may be the source (in place) or memory that does not overlap
// it; any other overlap panics, as it does in crypto/cipher. So do wrong lengths:
// they are bugs of the caller. What can come from outside, the key, is an error.
//
// # Concurrency
//
// A [Cipher] is safe for concurrent use, except for [Cipher.Close].
package xts
