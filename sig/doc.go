// Package sig computes, checks and converts block signatures: the T10 Data
// Integrity Field with a CRC or an IP checksum for a guard, CRC32, CRC32C and
// CRC64, over runs of blocks in memory.
//
// A stream with a signature is a block of data, its field, the next block, its
// field, and so on. A [Format] says how long a block is and what its field holds.
// Five methods of Format do the everyday work on byte slices:
//
//	f.Generate(buf)           fields of a stream, in place
//	f.Protect(dst, src)       data to stream
//	f.Verify(buf)             check a stream
//	f.Strip(dst, src)         check a stream and copy its data
//	f.Convert(to, dst, src)   check a stream and write it in another format
//
// A stream may end inside a block. Those bytes pass through without a field and
// without a check.
//
// A [Transform] is the same for callers that have blocks rather than streams: with
// fields interleaved or in a buffer of their own, from any block number on, with
// masks for the bytes that are checked and those that are copied. A memory key is
// two of them, one in each direction.
//
// # Errors
//
// What cannot be done is an [*operr.Error] with EINVAL, found before any byte moves. A
// bad block is an [*Error] with its kind, number, offset and the stored and computed
// value; the data flows on. Within a block the order is guard, application tag,
// reference tag.
//
// # Concurrency and memory
//
// A Format is a value and a Transform never changes: both may be used by any number
// of goroutines. Nothing allocates, except for the error of a bad block. Source and
// destination may be the same memory where a method says so, and else may not
// overlap.
//
// # What it is not
//
// The signatures find accidents. None of them is a defence against somebody who
// changes data on purpose: whoever can write the data can write the field.
package sig
