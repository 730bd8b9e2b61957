// Package dek keeps the data encryption keys of a device, and decides who may import
// keys.
//
// A [DEK] is a pair of AES keys for package xts, with eight bytes of metadata and an
// optional keytag. [New] makes one from plaintext, [NewWrapped] from a wrapped key. A
// [Store] is the key store of one device and follows the rules of an adapter
// (mlx5dv_crypto_login(3), mlx5dv_crypto_login_create(3), mlx5dv_dek_create(3)).
//
// # Import modes
//
// A Store in mode [Plaintext] imports keys in plaintext. A Store in mode [Wrapped]
// imports only keys that are wrapped by AES key wrap (RFC 3394, initial value
// 0xA6A6A6A6A6A6A6A6) under an import KEK, and needs a login:
//
//   - The crypto officer provisions KEKs and credentials, each under a number
//     ([Store.AddKEK], [Store.AddCredential]), and deletes them.
//   - A program's [Context] logs in with a credential: 40 bytes, wrapped under a KEK. It has
//     one [Login] at most, which is passed when a DEK is made.
//   - Making a wrapped DEK, and checking it, needs a valid login; using a DEK does not. A login
//     becomes invalid when its credential or its KEK is deleted. DEKs that were made with
//     it stay.
//
// # Who may use a DEK
//
// A DEK belongs to the device context that made it and, if [DEKOptions] name one, to a
// protection domain: [DEK.UsableBy] reports whether a memory key may name it. A memory
// key holds the DEK that its configuration names ([DEK.Hold]), and a transfer holds it
// while it uses the cipher ([DEK.Acquire]). A DEK that is held cannot be closed: EBUSY.
//
// # Where secrets are
//
// KEKs, credentials, keytags, round keys and every intermediate value of key wrap are
// outside the Go heap, in pages that are locked (never swapped) and, on Linux, left out
// of core dumps and empty in forked children. They are overwritten when they are not
// needed any more. A DEK takes 2 KiB of that memory. ENOMEM is the error where the system
// gives no more (RLIMIT_MEMLOCK, see getrlimit(2)).
//
// Three things are outside this package's reach:
//
//   - Slices that the caller passes in, and those that [Generate], [Unwrap] and the Parse
//     functions return. The caller overwrites them.
//   - Registers. The core dump of a thread that is encrypting at that moment has round
//     keys in its register notes.
//   - The signal stack. A signal that interrupts an encryption saves the registers there,
//     until the next signal of that thread.
//
// No type of this package shows a key, with any verb of package fmt or any encoder.
//
// # Errors
//
// Every error is an *operr.Error; errors.Is finds the errno that the manual pages
// name.
package dek
