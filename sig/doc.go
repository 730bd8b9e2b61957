// Package sig computes, checks and converts block signatures over runs of blocks in
// memory: the T10 Data Integrity Field with a CRC or an IP checksum as its guard, CRC32,
// CRC32C and CRC64, and NVMe's protection information with guards of 16, 32 and
// 64 bits.
//
// A stream with a signature is a block of data, its field, the next block, its
// field, and so on. A [Format] gives the length of a block and the content of its field.
// Five methods of Format serve most programs, on byte slices:
//
//	f.Generate(buf)           fields of a stream, in place
//	f.Protect(dst, src)       data to stream
//	f.Verify(buf)             check a stream
//	f.Strip(dst, src)         check a stream and copy its data
//	f.Convert(to, dst, src)   check a stream and write it in another format
//
// [NewWriter] and [NewReader] are Protect and Strip for Go's readers and
// writers: files and connections of any length. Package mkeyio does the same on all cores.
//
// A stream may end within a block. The bytes of that block have no field: they are copied
// and not checked. A stream without the whole field of its last block was truncated, which
// is an error.
//
// A [Transform] serves callers that have blocks rather than streams. Its fields
// may be interleaved with the blocks or in a buffer of their own, it starts at
// any block number, and it has masks that select the bytes to check and to
// copy. A memory key uses two transforms, one for each direction. The methods of Format keep
// transforms for calls to come, so that a call of Generate or Verify with one block costs a
// few tens of nanoseconds more than with a Transform of the caller's. A Transform is worth
// keeping for single blocks at the highest rates, and for programs with more than a dozen
// formats.
//
// # NVMe
//
// The types NVMe16, NVMe32 and NVMe64 have their field within metadata of any
// length, and a storage tag beside the reference tag. Where this package speaks of the
// bytes of a field, it means the whole metadata. The metadata beside the field is not
// changed if fields are generated in place. It is copied if input and output have
// metadata of one length with the field at the same place, and zero in all other outputs.
// Memory keys do not have these types.
//
// # Errors
//
// A format or a length that cannot be processed is an *operr.Error with EINVAL, returned
// before any byte moves. So is a Format of Type NoSignature where there must be a signature: the
// zero Format checks nothing, and therefore passes nothing as correct. A bad block is an
// [*Error] with its kind, number, offset, and the stored and computed value; the data is moved
// all the same. If several parts of a field are bad, the guard comes first, then the
// application tag, then the reference tag.
//
// # Concurrency and memory
//
// A Format is a value and a Transform never changes: both may be used by any number
// of goroutines. Only the error of a bad block is allocated, and the transform of a format at its first use. Source and destination must
// not overlap, unless a method says that they may be the same memory.
//
// # Limits
//
// The signatures find accidental damage. They do not protect against changes on
// purpose: whoever can write the data can also write the right field.
package sig
