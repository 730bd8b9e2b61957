// Package mkey is the memory key of mlx5 hardware as a stream: bytes go between a
// memory domain, scattered over regions and nested keys, and a wire domain, and on
// the way they are signed, checked, stripped, converted, encrypted and decrypted.
//
// A program without a device makes a key with [New] from a [Config]: a layout of
// its slices, block signatures for either domain, AES-XTS, or both. [Key.TX] then
// opens a range of the wire domain for reading: memory goes out. [Key.RX] opens one
// for writing: memory is filled. The attributes are those of the manual pages
// mlx5dv_wr_mkey_configure(3), mlx5dv_wr_set_mkey_sig_block(3) and
// mlx5dv_wr_set_mkey_crypto(3), and so are the results, bit for bit.
//
// # Domains
//
// A domain without a signature is a stream of data. One with a signature is a
// stream of blocks, each followed by its field. A layout describes the memory
// domain. Offsets and lengths of TX and RX count bytes of the wire domain. With
// CRC32 in memory and nothing on the wire, a key over 516 bytes of memory is a
// stream of 512 bytes.
//
// A transfer begins at a boundary of the wire domain's blocks and data units; any other
// offset is refused when it is opened. A wire domain without a signature has the blocks
// of the memory domain. Where memory is encrypted and signed, the offset must be a
// boundary of memory's blocks, too.
//
// It may end anywhere: a partial block at its end passes through without a field,
// neither generated nor checked, and so does a block that has its data but nothing of
// its field. What is sent and ends within a field is the beginning of the whole block;
// of what is received, the beginning of a field is dropped. Where the two domains have
// blocks of different sizes, a block of the memory domain that the transfer begins in
// the middle of passes through, too, and keeps the field that it has in memory.
//
// # Errors
//
// Three kinds are kept apart. A configuration that cannot work is refused by New,
// Configure or Stage. A transfer that may not be, for its bounds, rights, offset or
// length, is refused when it is opened. Both are an [operr.Error] with the errno that
// verbs names. A bad signature is neither: the data flows on, and the key remembers
// the first bad block until [Key.Check] asks for it.
//
// # Concurrency
//
// A Key is safe for concurrent use, a TX or RX is not. A stream keeps the
// configuration under which it was opened; memory is looked up again as it runs. For a
// transport that works packet by packet a TX reads memory a little ahead of its reader, and
// an RX fills it a little behind its writer, until Finish.
//
// # What is not emulated
//
// Hardware keeps at most one configuration of a key in flight and leaves its state
// undefined after some errors; here the last good configuration stays. Addresses
// are not virtual addresses but positions in a [Memory].
package mkey
