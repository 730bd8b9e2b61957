package adapter

import (
	"github.com/softmkey/softmkey/internal/keydoor"
)

// Vec is a piece of the program's memory and the bytes that are read from it or
// written to it.
type Vec = keydoor.Vec

// Memory is the memory of a context's program, a [keydoor.Space]. Its methods are safe for
// concurrent use; errors are an errno's, EFAULT for memory that is not there. Values are
// compared: the type is a pointer.
type Memory interface {
	Read(addr uint64, dst []byte) error  // all of dst, or an error
	Write(addr uint64, src []byte) error // all of src, or an error
	ReadV(vecs []Vec) error              // in one batch
	WriteV(vecs []Vec) error             // in one batch, in order

	// Map returns a view of n bytes that is shared with the program, or nil if the
	// range can only be copied. It is asked when a queue is created; the view is used
	// until the queue is destroyed.
	Map(addr uint64, n int) []byte
}

// Pinner is a Memory that knows which ranges a kernel would pin for an adapter. The ranges of a
// Memory that is no Pinner are tried at their ends.
type Pinner interface {
	// Pinnable returns nil if every page of the range can be pinned: for reading or, if write is
	// set, for writing. Otherwise the error says which page cannot, and why.
	Pinnable(addr, length uint64, write bool) error
}
