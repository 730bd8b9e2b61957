package keydoor

import "github.com/softmkey/softmkey/rdma"

// Copied is a mkey.Memory whose bytes can only be copied, for example those of another
// process. A layout calls Space instead of At. A stream copies in steps of up to 32 KiB,
// with one call of the [Space] for all the pieces of a step.
type Copied interface {
	Reach(addr, n uint64, need rdma.Access) error
	At(addr, n uint64, need rdma.Access) ([]byte, error)

	// Space returns the Space that contains the n bytes from addr, and their address
	// in it. It is called under the same conditions as At. The n bytes must be
	// contiguous in the Space. A nil Space means that these bytes can be used in
	// place; At is then called.
	Space(addr, n uint64, need rdma.Access) (s Space, at uint64, err error)
}

// Space copies between buffers and memory that cannot be used in place. Values of it are
// compared, so the type should be a pointer. Its methods may be called by several
// goroutines at once, and do not keep the slices.
type Space interface {
	// ReadV fills the buffers from their addresses. After an error their content is
	// undefined.
	ReadV(v []Vec) error

	// WriteV writes the buffers to their addresses. After an error, any of the bytes may
	// have been written.
	WriteV(v []Vec) error
}

// Vec is a range of addresses in a [Space] and the buffer for its bytes. A call has at
// most 512 of them, none empty. They are in rising order of their addresses, so that
// adjacent ranges can be copied as one; only overlapping ranges may be out of order.
type Vec struct {
	Addr uint64
	Buf  []byte
}
