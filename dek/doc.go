// Package dek keeps the data encryption keys of a device, and says who may bring
// keys in.
//
// A [DEK] is a pair of AES keys for package xts, with eight bytes of metadata and
// perhaps a keytag. It is made from plaintext by [New], or through a [Store], which
// is the key store of one device and knows the rules of a real one
// (mlx5dv_crypto_login(3), mlx5dv_crypto_login_create(3), mlx5dv_dek_create(3)).
//
// # Import modes
//
// A Store in mode [Plaintext] takes keys as they are. A Store in mode [Wrapped]
// takes them only wrapped by AES key wrap (RFC 3394, IV 0xA6A6A6A6A6A6A6A6) under an
// import KEK that the crypto officer has put on the device, and only with a login:
//
//   - The officer provisions KEKs and credentials by number ([Store.AddKEK],
//     [Store.AddCredential]), and deletes them.
//   - A user's [Context] logs in with a credential, 40 bytes that come wrapped under
//     a KEK: once for the whole context ([Context.Login]), or any number of times as
//     objects that are passed when a DEK is made ([Context.NewLogin]).
//   - A login is needed to make and to query a wrapped DEK, not to use one. Deleting
//     its credential or KEK makes it invalid; DEKs made before stay.
//
// # Where keys are
//
// Expanded keys, keytags, KEKs and credentials live outside the Go heap, in memory
// that is locked (never in swap) and on Linux also left out of core dumps and
// wiped in forked children; it is overwritten when they are destroyed. A key takes 2
// KiB of it, and ENOMEM is answered where the system gives no more (RLIMIT_MEMLOCK, see
// getrlimit(2)). What this package cannot overwrite are the
// copies that libraries make while they work: crypto/aes's schedule of a KEK and the
// intermediate blocks of an unwrap, and the schedule of a DEK on machines without
// AES instructions. The caller overwrites what it passed in.
//
// No type of this package shows a key, whatever verb or encoder it is printed with.
//
// # Errors
//
// Every error is an [*operr.Error]; errors.Is finds the errno that the manual pages
// name.
package dek
