// Package mkey implements the memory keys (MKEYs) of mlx5 adapters as streams.
//
// A memory key connects two views of the same data. The memory domain is the data in the
// program's memory, which may be scattered over slices, registered regions and other keys.
// The wire domain is the data as a network or a disk sees it, a stream of bytes. Either
// domain may have block signatures, and one of them may be encrypted. Reading the wire
// domain gathers the memory, and writing it scatters the data to memory. In between, the key
// generates, checks, strips and converts signatures, and encrypts or decrypts with AES-XTS.
//
// [New] creates a key from a [KeyConfig]: a layout of memory and, optionally, signatures and
// crypto attributes. [Key.NewReader] opens a range of the wire domain for reading (TX), [Key.NewWriter] opens
// one for writing. [Key.Check] returns the first block with a bad signature. The package
// examples show a key over one slice, and the keys of the manual pages.
//
// A program that uses keys for RDMA creates them with package verbs. Package mkeyio applies
// keys to files and streams.
//
// The attributes are those of the manual pages mlx5dv_wr_mkey_configure(3),
// mlx5dv_wr_set_mkey_sig_block(3) and mlx5dv_wr_set_mkey_crypto(3), and the results equal
// those of an adapter bit for bit.
//
// # Domains
//
// A domain without a signature is a stream of data. A domain with a signature is a stream of
// blocks, each followed by its field. The layout describes the memory domain. Offsets and
// lengths of readers and writers count bytes of the wire domain. For example, a key over 516 bytes of
// memory with CRC32, and no signature on the wire, is a stream of 512 bytes.
//
// A transfer begins at a boundary of the wire domain's blocks and data units; other offsets
// are refused when the transfer is opened. If the wire domain has no signature, the blocks
// of the memory domain apply. If memory is encrypted and signed, the offset must be a
// boundary of memory's blocks as well.
//
// A transfer may end anywhere. An incomplete last block passes through: its field is neither
// generated nor checked. A block with all its data but without its complete field is
// incomplete. If a reader ends within a field, the stream has the first bytes of that field. If
// a writer ends within a field, those bytes are dropped. If the two domains have blocks of
// different sizes, a transfer may begin within a block of the memory domain: that block
// passes through, and memory keeps its field.
//
// Addresses, and the lengths and offsets of domains, are uint64: an address
// space may be as large as 64 bits permit, and so may a key over it.
//
// # Signature and crypto together
//
// A key with both attributes obeys the table of mlx5dv_wr_set_mkey_crypto(3), rows A to J.
// Two combinations that the table lacks are accepted too, because libmlx5 and adapters
// accept them:
//
//   - Encryption on TX with [SignatureAfterCrypto], and a signature in memory only, works
//     as row D.
//   - Decryption on TX with [SignatureBeforeCrypto], and a signature on the wire only, works
//     as row G.
//
// That they equal rows D and G is inferred from the orders that adapters support; it was not
// measured on an adapter.
//
// # Errors
//
// New refuses a configuration that cannot work. NewReader and NewWriter refuse a
// transfer whose bounds, rights, offset or length are wrong. These errors are an
// *operr.Error with the errno of the C interface.
//
// A bad signature is not an error: the transfer continues, and the key keeps the first bad
// block until Key.Check returns it; then it records the next one.
//
// # Memory
//
// An entry of a layout refers to a [Memory]. [Bytes] makes a slice a Memory.
// The slice is used in place: a transfer copies each byte once, from or to the
// caller's buffer.
//
// # Concurrency
//
// A [Key] and its streams may be used by several goroutines; calls of one stream run one
// at a time. A stream keeps the configuration that was in force when it was opened, and
// looks up memory again at each access. A stream that is read in small pieces reads ahead;
// one that is written in small pieces collects them before it writes to memory.
//
// Closing a key ends its streams: each of their calls fails from then on, and Close
// waits for calls that are accessing the memory.
//
// # Differences from an adapter
//
// An adapter allows one configuration of a key in flight and leaves the key undefined
// after some errors; here a refused configuration leaves the previous one in force.
// Addresses are positions in a Memory, not virtual addresses.
package mkey
