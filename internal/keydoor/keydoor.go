// Package keydoor is the device's interface to the part of a memory key that package mkey
// does not export: streams for a transport that works packet by packet, configuration in
// two steps, and invalidation.
//
// The device executes requests on behalf of programs. It opens and closes a stream for
// every message, so its streams are pooled and must be closed exactly once. It checks a
// configuration when the request is built and merges it when the request executes. A
// program that uses memory keys directly needs neither; package mkey has safe forms of
// both.
//
// Package mkey sets the variables of this package during initialisation. They take mkey's
// types as any, because mkey imports this package.
package keydoor

import (
	"encoding/binary"

	"github.com/softmkey/softmkey/rdma"
)

// Of returns the device's interface to a key, which must be a *mkey.Key. It does not
// allocate.
var Of func(key any) Key

// AtomicCopied executes an atomic operation on n bytes, 4 or 8, at an address of a Space, and
// returns their old value. next returns the new value and whether to write it. Package mkey sets
// the variable.
var AtomicCopied func(space any, addr uint64, n int, next func(old uint64) (v uint64, write bool)) (uint64, error)

// ChangeWord executes an atomic operation on b, a word of 4 or 8 bytes in native byte order.
func ChangeWord(b []byte, next func(old uint64) (v uint64, write bool)) (old uint64, changed bool) {
	if len(b) == 4 {
		old = uint64(binary.NativeEndian.Uint32(b))
	} else {
		old = binary.NativeEndian.Uint64(b)
	}
	v, changed := next(old)
	switch {
	case !changed:
	case len(b) == 4:
		binary.NativeEndian.PutUint32(b, uint32(v))
	default:
		binary.NativeEndian.PutUint64(b, v)
	}
	return old, changed
}

// ListTX and ListRX open the bytes of a *mkey.List as a stream without a key. need is the
// rdma.Access that the memory must grant. The list may contain keys without signature and
// crypto attributes. If some of the memory can only be copied, the stream reads ahead or
// writes behind, so that one call of the address space serves many packets. A message may
// be shorter than the list. The list may be changed once the call has returned.
var (
	ListTX func(list any, need rdma.Access) (TX, error)
	ListRX func(list any, need rdma.Access) (RX, error)
)

// AcceptEqualHalves makes a *dek.Store accept keys with two equal halves, which
// FIPS 140-3 forbids and adapters accept. EqualHalves reports whether a
// *dek.DEK has such a key. Package dek sets them.
var (
	AcceptEqualHalves func(store any)
	EqualHalves       func(key any) bool
)

// Key is the device's interface to a memory key.
type Key interface {
	// TX opens length bytes of the wire domain at offset for the owner to read. It
	// returns the errors of mkey.Key.NewReader.
	TX(offset, length uint64) (TX, error)

	// RX opens length bytes of the wire domain at offset for the owner to write.
	RX(offset, length uint64) (RX, error)

	// RXUpTo is RX for a message of at most room bytes, for example of a receive
	// request. Finish checks whether AES-XTS can process the message's length.
	RXUpTo(offset, room uint64) (RX, error)

	// RemoteTX is TX for a peer's RDMA READ: the key must grant RemoteRead, and the
	// stream fails once the key is configured again. repeated says that the peer repeats
	// a READ for which there was a stream before; checked is then the largest result of
	// TX.Checked of the earlier streams, and otherwise 0. Bad blocks that were checked
	// are not reported again, and a transaction signature does not change its PSV again.
	RemoteTX(offset, length, checked uint64, repeated bool) (TX, error)

	// RemoteRX is RX for a peer's RDMA WRITE: the key must grant RemoteWrite, and the
	// stream fails once the key is configured again.
	RemoteRX(offset, length uint64) (RX, error)

	// Atomic passes the n bytes at addr, 4 or 8, to next, stores the result unless next
	// returns false, and returns the old value. Values are in native byte
	// order. The key must grant RemoteAtomic and must not have signature or
	// crypto attributes. The caller executes one atomic at a time.
	Atomic(addr uint64, n int, next func(old uint64) (uint64, bool)) (old uint64, err error)

	// Prepare copies an update, an *Update, and checks everything that does
	// not depend on the state of a key. It does not change the key.
	Prepare(update any) (Prepared, error)

	// Apply merges a prepared update with the current configuration and activates the
	// result. After an error the key is unchanged.
	Apply(p Prepared) error

	// Invalidate frees the key and reports whether it was in use. After it returns,
	// no stream of the key accesses memory.
	Invalidate() bool

	// InUse reports whether the key was configured and not freed since.
	InUse() bool

	// InvalidateRemote is Invalidate for a peer's SEND with invalidate. It returns
	// EACCES for a key that was created without RemoteInvalidate, and EINVAL for a
	// free key.
	InvalidateRemote() error

	// Rest returns how many of length bytes from offset lie behind the last block that is whole, with its
	// field: they have no field, and nothing checks them. It is 0 for a key without a signature.
	Rest(offset, length uint64) uint64

	// Unreported returns the record that mkey.Key.Check would return, a *mkey.BadBlock,
	// if no earlier call has returned it, and nil otherwise. The key keeps the record for
	// Check.
	Unreported() any

	// SetNumber changes the number that identifies the key in reports of bad blocks.
	SetNumber(n uint32)
}

// Prepared is an update that [Key.Prepare] has checked. It applies to one key only.
type Prepared interface {
	// Key returns the *mkey.Key to which the update applies.
	Key() any
}

// TX is a stream that reads memory. It is not safe for concurrent use and must be closed
// exactly once. Once the key is freed, every call fails.
type TX interface {
	// ReadAt fills p with the stream's bytes from offset off. Sequential reads are
	// fast; for other offsets the bytes are produced again. A failed call may be
	// repeated.
	ReadAt(p []byte, off uint64) error

	// View returns n bytes of the stream from off in the stream's read-ahead buffer,
	// valid until the next call. It returns nil if the caller must use ReadAt. A
	// stream without signature and crypto work reads ahead only if its memory can
	// only be copied.
	View(off uint64, n int) []byte

	// Len returns the length of the stream in bytes.
	Len() uint64

	// Bad returns the number of bad blocks found so far. The stream may have checked
	// some blocks that were not read yet.
	Bad() int

	// Checked returns how far the stream has checked its blocks, for RemoteTX.
	Checked() uint64

	// Close closes the stream and returns it to the pool.
	Close()
}

// RX is a stream that writes memory. It is not safe for concurrent use and must be closed
// exactly once. Once the key is freed, every call fails.
type RX interface {
	// Write accepts the next bytes of the stream, all of them or none. They reach
	// memory at the latest when Flush or Finish is called.
	Write(p []byte) error

	// Place returns the next n bytes of the stream's write-behind buffer for the
	// caller to fill. It returns nil if the caller must use Write.
	Place(n int) []byte

	// Placed accepts the n bytes that the caller wrote to the memory from Place.
	Placed(n int) error

	// Flush writes to memory all complete blocks that the stream has accepted.
	Flush() error

	// Finish ends the message. It returns EMSGSIZE for a length that AES-XTS cannot
	// process. Further calls do nothing.
	Finish() error

	// Written returns the number of bytes that the stream has accepted.
	Written() uint64

	// Bad returns the number of bad blocks found so far. After Finish, all blocks
	// have been checked.
	Bad() int

	// Close closes the stream and returns it to the pool. Bytes that were not flushed or
	// finished are dropped.
	Close()
}
