// Package mkey implements the memory keys (MKEYs) of mlx5 adapters as streams. A key maps
// a wire domain, the bytes that a network or a disk sees, to a memory domain, which is
// scattered over slices, regions and other keys. On the way the key signs, checks, strips
// and converts block signatures, and encrypts or decrypts with AES-XTS.
//
// [New] makes a key from a [Config]: a layout of memory, block signatures for either
// domain, AES-XTS, or several of them. [Key.TX] opens a range of the wire domain for
// reading: memory goes out. [Key.RX] opens one for writing: memory is filled. [Key.Check]
// returns the first block whose signature was bad, and [Key.Close] ends the key. The
// attributes are those of the manual pages mlx5dv_wr_mkey_configure(3),
// mlx5dv_wr_set_mkey_sig_block(3) and mlx5dv_wr_set_mkey_crypto(3), and the results are the
// adapter's, bit for bit.
//
// # Domains
//
// A domain without a signature is a stream of data. A domain with a signature is a
// stream of blocks, each followed by its field. The layout describes the memory domain.
// Offsets and lengths of TX and RX count bytes of the wire domain: a key over 516 bytes of
// memory with CRC32, and nothing on the wire, is a stream of 512 bytes.
//
// A transfer begins at a boundary of the wire domain's blocks and data units; any other
// offset is refused when the transfer is opened. A wire domain without a signature has
// the blocks of the memory domain. If memory is encrypted and signed, the offset must be
// a boundary of memory's blocks as well.
//
// A transfer may end anywhere. A last block that is not complete passes through: it has
// no field, which is neither generated nor checked. A block whose data is complete and
// whose field is missing counts as not complete. If a TX ends within a field, the stream
// has the beginning of that field; the beginning of a field that an RX ends with is
// dropped. If the two domains have blocks of different sizes, a transfer may begin within
// a block of the memory domain: that block passes through, and memory keeps its field.
//
// # Signature and crypto together
//
// A key with both attributes obeys the table of mlx5dv_wr_set_mkey_crypto(3), rows A to J.
// Two combinations beside the table are accepted because libmlx5 and adapters
// accept them: encrypting on TX with [SignatureAfterCrypto] and a signature in memory only
// is treated as row D, decrypting on TX with [SignatureBeforeCrypto] and a signature on
// the wire only as row G. That they equal D and G is inferred from the orders that the
// adapter knows; it was not measured on an adapter.
//
// # Errors
//
// There are three kinds. A configuration that cannot work is refused by [New] and
// [Key.Configure]. A transfer that is not allowed, because of its bounds, rights, offset
// or length, is refused when it is opened. Both errors are an [operr.Error] with the errno
// that the C interface gives. A bad signature is no error: the data flows on, and the key
// keeps the first bad block until [Key.Check] returns it.
//
// A key created with [Attr.StrictCheck] records one bad block for each configuration,
// as adapters do. By default a key records the next one as soon as Check has returned the
// last.
//
// # Memory
//
// An entry of a layout points into a [Memory]. A slice is one by the name of [Bytes], and
// is used in place: a transfer copies it once, from or to the caller's buffer. Memory that
// can only be copied, such as another process's, is a [Copied]: a step of up to 32 KiB
// takes one call of its [Space].
//
// # Concurrency
//
// A [Key] and its streams may be used by several goroutines; calls of one stream run one
// at a time. A stream keeps the configuration that was in force when it was opened, and
// looks memory up again at each access. A stream that is read in small pieces reads ahead;
// one that is written in small pieces collects them before it writes to memory.
//
// Closing a key ends its streams: each of their calls fails from then on, and Close
// waits for calls that are accessing the memory.
//
// # Differences from an adapter
//
// An adapter allows one configuration of a key in flight and leaves the key undefined
// after some errors; here a refused configuration leaves the last one in force. Addresses
// are positions in a Memory, not virtual addresses.
package mkey
