// Package keydoor gives the device access to the part of a memory key that package
// mkey does not export: streams for a transport that works packet by packet,
// configuration in two steps, and invalidation.
//
// The device executes requests for others. It opens and closes a stream for every
// message, so its streams are pooled and must be closed exactly once; it checks a
// configuration when the request is built and merges it when the request executes.
// A program that uses memory keys directly needs neither, and finds the safe form of
// both in package mkey.
//
// Package mkey sets the variables of this package when it is initialised. They take
// its types as any, because it imports this package.
package keydoor

// Of returns the device's half of a key, which must be a *mkey.Key. It does not
// allocate.
var Of func(key any) Key

// ListTX and ListRX open the bytes of a list of memory, a *mkey.List, as a stream without
// a key. need is the rights that the memory must grant, a mkey.Access. A list may have
// keys without signature and crypto attributes in it. The stream reads ahead and writes
// behind if some of the memory can only be copied, so that a call of its space serves
// many packets. Fewer bytes than the list has room for may be written. The list may be
// changed once the call has returned.
var (
	ListTX func(list any, need uint32) (TX, error)
	ListRX func(list any, need uint32) (RX, error)
)

// Key is the device's half of a memory key.
type Key interface {
	// TX opens length bytes of the wire domain from offset for its owner to read. The
	// errors are those of TX in package mkey.
	TX(offset, length uint64) (TX, error)

	// RX opens length bytes of the wire domain from offset for its owner to write.
	RX(offset, length uint64) (RX, error)

	// RXUpTo is RX for a message that may be shorter than room bytes, as for a receive
	// request. Whether AES-XTS can process the message's length is found by Finish.
	RXUpTo(offset, room uint64) (RX, error)

	// RemoteTX is TX for a peer's RDMA READ: the key must grant RemoteRead. The stream
	// fails once the key is configured anew. checked is 0, or the result of TX.Checked of
	// an earlier stream over the same range: bad blocks before it are not reported again.
	RemoteTX(offset, length, checked uint64) (TX, error)

	// RemoteRX is RX for a peer's RDMA WRITE: the key must grant RemoteWrite. The
	// stream fails once the key is configured anew.
	RemoteRX(offset, length uint64) (RX, error)

	// Atomic replaces the 8 bytes at addr by the result of next, unless its second
	// result is false, and returns the old value. Values are in native byte order. The
	// key must grant RemoteAtomic and have no signature or crypto attributes. The
	// caller serialises atomics.
	Atomic(addr uint64, next func(old uint64) (uint64, bool)) (old uint64, err error)

	// Prepare checks an update, a *mkey.Update, as far as that does not depend on the
	// state of any key, and copies it. The key is not changed.
	Prepare(update any) (Prepared, error)

	// Apply merges a prepared update with the configuration in force and puts the
	// result in force. After an error the key is unchanged.
	Apply(p Prepared) error

	// Invalidate frees the key and reports whether it was in use. When it returns, no
	// stream of the key is inside the memory, and none gets there again.
	Invalidate() bool

	// InvalidateRemote is Invalidate for a peer's SEND with invalidate. A key that was
	// created without RemoteInvalidate is EACCES, a free one EINVAL.
	InvalidateRemote() error

	// SetNumber changes the number that reports of bad blocks repeat.
	SetNumber(n uint32)
}

// Prepared is an update that [Key.Prepare] has checked. It belongs to one key.
type Prepared interface {
	// Key returns the *mkey.Key that it belongs to.
	Key() any
}

// TX is a stream out of memory. It is not safe for concurrent use, and must be closed
// exactly once. After the key was freed every call fails.
type TX interface {
	// ReadAt fills p with the stream's bytes from off. Reading on where the last call
	// ended is fast; other offsets are produced again. After an error the call may be
	// repeated.
	ReadAt(p []byte, off uint64) error

	// View returns n bytes of the stream from off in the stream's read-ahead buffer,
	// valid until the next call; nil if the caller must use ReadAt. A stream without
	// signature and crypto work reads ahead only if its memory can only be copied.
	View(off uint64, n int) []byte

	// Len returns the length of the stream in bytes.
	Len() uint64

	// Bad returns how many bad blocks were found so far. The stream may be some blocks
	// ahead of its reader.
	Bad() int

	// Checked returns the number of the block before which every block was checked, for
	// RemoteTX.
	Checked() uint64

	// Close ends the stream and puts it back into the pool.
	Close()
}

// RX is a stream into memory. It is not safe for concurrent use, and must be closed
// exactly once. After the key was freed every call fails.
type RX interface {
	// Write takes the next bytes of the stream, all of them or none. They may reach
	// memory later, with Flush or Finish at the latest.
	Write(p []byte) error

	// Place returns the next n bytes of the stream's write-behind buffer, for the
	// caller to fill; nil if the caller must use Write.
	Place(n int) []byte

	// Placed takes the n bytes that the caller put where the last Place said.
	Placed(n int) error

	// Flush writes to memory every whole block that the stream has taken.
	Flush() error

	// Finish ends the message. A length that AES-XTS cannot process is EMSGSIZE.
	// Finishing again does nothing.
	Finish() error

	// Written returns how many bytes the stream has taken.
	Written() uint64

	// Bad returns how many bad blocks were found so far: all of them, after Finish.
	Bad() int

	// Close ends the stream and puts it back into the pool. Bytes that were neither
	// flushed nor finished are dropped.
	Close()
}
