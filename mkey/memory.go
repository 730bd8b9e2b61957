package mkey

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/rdma"
)

// Memory is the memory of a layout's entry: a slice ([Bytes]), a
// registered region, or another [Key]. Its methods may be called by several
// goroutines at once.
type Memory interface {
	// Reach reports whether n bytes from addr may be accessed with the rights need.
	// If a range may be accessed, so may every part of it. The error
	// is an *operr.Error: EFAULT for bounds, EACCES for rights.
	Reach(addr, n uint64, need rdma.Access) error

	// At returns the first contiguous piece of the n bytes from addr: at least
	// one byte, at most n. It is called with n > 0, on ranges that Reach has
	// accepted, and must still refuse a range that has become invalid since.
	// The caller uses the slice until the running call of the stream's method
	// returns.
	At(addr, n uint64, need rdma.Access) ([]byte, error)
}

// reference is a Memory that refers to another Memory, for example by a number. A layout
// calls Target at each use, and then uses the target instead, so that the rules of nesting
// apply to a key that is referred to. The target must not be a reference.
type reference interface {
	Memory
	Target() (Memory, error)
}

// Bytes is a slice that implements [Memory]. Addresses are offsets into the
// slice, and every right is granted.
type Bytes []byte

// Reach implements [Memory].
func (b Bytes) Reach(addr, n uint64, _ rdma.Access) error {
	if addr > uint64(len(b)) || n > uint64(len(b))-addr {
		return failure.New("mkey access", syscall.EFAULT, "range %d+%d lies outside of the %d bytes of the slice", addr, n, len(b))
	}
	return nil
}

// At implements [Memory].
func (b Bytes) At(addr, n uint64, need rdma.Access) ([]byte, error) {
	if err := b.Reach(addr, n, need); err != nil {
		return nil, err
	}
	return b[addr : addr+n], nil
}
