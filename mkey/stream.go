package mkey

import (
	"io"
	"io/fs"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/rdma"
)

// generation lets a handle detect that it was closed. Streams are pooled: once
// a stream is closed, another handle may have it. A handle records the stream's
// count of closings when it is opened, and does nothing once the count differs.
// The mutex is in the stream because the compiler would move a handle with a
// mutex to the heap.
//
// Only the handle that has the stream changes the count. A new handle therefore reads it
// without the mutex: the pool, which got the stream from the handle before, orders the two.
type generation struct {
	mu     sync.Mutex
	closed uint64 // guarded by mu
}

// TX is a stream that reads a range of a key's wire domain. It implements [io.ReaderAt]
// and [io.Closer]. Its methods may be called by several goroutines; a lock lets one
// run at a time.
type TX struct {
	stream *txStream
	opened uint64 // value of stream.closed when the handle was opened
	length uint64
	bad    int // guarded by stream.mu: number of bad blocks, once the stream was closed
}

// TX opens length bytes of the wire domain from offset for reading. The offset must be a
// boundary of blocks and data units. TX detects every error that does not depend on later
// events. It returns EFAULT or EACCES for bounds and rights along the whole path,
// EMSGSIZE for a length that AES-XTS cannot process, and EINVAL for a key that is free or
// lacks crypto attributes or the right keytag.
//
// The stream holds a DEK and a buffer until it is closed.
func (k *Key) TX(offset, length uint64) (*TX, error) {
	return new(TX).open(k, offset, length)
}

// open returns t. It is a function of its own to make TX small enough for the compiler to
// inline: a handle that does not escape from TX's caller then stays on the stack.
func (t *TX) open(k *Key, offset, length uint64) (*TX, error) {
	s, err := k.openTX(offset, length, 0)
	if err != nil {
		return nil, err
	}
	t.stream, t.opened, t.length = s, s.closed, length
	return t, nil
}

// isClosed is called with stream.mu held.
func (t *TX) isClosed() bool { return t.opened != t.stream.closed }

// Len returns the length of the stream in bytes.
func (t *TX) Len() uint64 { return t.length }

// ReadAt implements [io.ReaderAt]. Sequential reads are fast; for other offsets the bytes
// are produced again. p must not overlap the key's memory.
//
// An error other than [io.EOF] means that the memory can no longer be accessed or that
// the key was closed. Bytes read before stay valid, and the call may be repeated.
func (t *TX) ReadAt(p []byte, off int64) (int, error) {
	if t.stream == nil {
		return 0, failure.Zero("mkey read", "Key.TX")
	}
	t.stream.mu.Lock()
	defer t.stream.mu.Unlock()
	switch {
	case t.isClosed():
		return 0, errClosed("mkey read")
	case off < 0:
		return 0, failure.New("mkey read", syscall.EINVAL, "offset %d: must not be negative", off)
	case uint64(off) > t.length:
		return 0, io.EOF
	}
	var end error
	if left := t.length - uint64(off); uint64(len(p)) > left {
		p, end = p[:left], io.EOF
	}
	if err := t.stream.ReadAt(p, uint64(off)); err != nil {
		return 0, err
	}
	return len(p), end
}

// Bad returns the number of bad blocks found so far. The stream may have checked some
// blocks that were not read yet.
func (t *TX) Bad() int {
	t.stream.mu.Lock()
	defer t.stream.mu.Unlock()
	if t.isClosed() {
		return t.bad
	}
	return t.stream.Bad()
}

// Close ends the stream. Closing it again does nothing. The error is always nil.
func (t *TX) Close() error {
	if t.stream == nil {
		return failure.Zero("mkey read", "Key.TX")
	}
	t.stream.mu.Lock()
	defer t.stream.mu.Unlock()
	if !t.isClosed() {
		t.bad = t.stream.Bad()
		t.stream.closed++
		t.stream.Close()
	}
	return nil
}

// RX is a stream that writes a range of a key's wire domain. It implements
// [io.WriteCloser]. Its methods may be called by several goroutines; a lock lets one
// run at a time.
type RX struct {
	stream *rxStream
	opened uint64 // value of stream.closed when the handle was opened

	finished bool   // guarded by stream.mu, as the next two
	written  uint64 // number of bytes written, once the stream was closed; bad likewise
	bad      int
}

// RX opens length bytes of the wire domain from offset for writing. The key must grant
// LocalWrite. Errors are those of [Key.TX].
//
// [RX.Finish] or [RX.Close] ends the transfer. The stream holds a DEK and a buffer until it is closed.
func (k *Key) RX(offset, length uint64) (*RX, error) {
	return new(RX).open(k, offset, length, true)
}

// open returns r. It is separate for the same reason as TX.open.
func (r *RX) open(k *Key, offset, length uint64, exact bool) (*RX, error) {
	s, err := k.openRX(offset, length, rdma.LocalWrite, exact)
	if err != nil {
		return nil, err
	}
	r.stream, r.opened = s, s.closed
	return r, nil
}

// RXUpTo is RX for a transfer of at most room bytes. Finish returns EMSGSIZE if AES-XTS
// cannot process the length of the transfer.
func (k *Key) RXUpTo(offset, room uint64) (*RX, error) {
	return new(RX).open(k, offset, room, false)
}

// isClosed is called with stream.mu held.
func (r *RX) isClosed() bool { return r.opened != r.stream.closed }

// Write implements io.Writer. It writes all of p or returns an error. It returns EFAULT,
// and writes nothing, if p has more bytes than the stream has room for. Bytes may reach
// memory later, with Finish at the latest.
//
// If the memory can no longer be accessed, or the key was closed, the stream ends: every
// later call returns the same error, and the number of bytes written is undefined. p must
// not overlap the key's memory.
func (r *RX) Write(p []byte) (int, error) {
	if r.stream == nil {
		return 0, failure.Zero("mkey write", "Key.RX")
	}
	r.stream.mu.Lock()
	defer r.stream.mu.Unlock()
	if r.isClosed() {
		return 0, errClosed("mkey write")
	}
	if err := r.stream.Write(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes to memory all complete blocks and data units that the stream has accepted.
// After that, Bad counts all of them.
func (r *RX) Flush() error {
	if r.stream == nil {
		return failure.Zero("mkey flush", "Key.RX")
	}
	r.stream.mu.Lock()
	defer r.stream.mu.Unlock()
	if r.isClosed() {
		return errClosed("mkey flush")
	}
	return r.stream.Flush()
}

// Finish ends the transfer. It writes the data of an incomplete last block to memory
// without a field, and encrypts or decrypts an incomplete last data unit. It returns
// EMSGSIZE for a length that AES-XTS cannot process. After Finish nothing can be written;
// further calls do nothing.
func (r *RX) Finish() error {
	if r.stream == nil {
		return failure.Zero("mkey finish", "Key.RX")
	}
	r.stream.mu.Lock()
	defer r.stream.mu.Unlock()
	switch {
	case r.finished:
		return nil
	case r.isClosed():
		return errClosed("mkey finish")
	}
	if err := r.stream.Finish(); err != nil {
		return err
	}
	r.finished = true
	return nil
}

// Written returns the number of bytes that the stream has accepted.
func (r *RX) Written() uint64 {
	r.stream.mu.Lock()
	defer r.stream.mu.Unlock()
	if r.isClosed() {
		return r.written
	}
	return r.stream.Written()
}

// Bad returns the number of bad blocks found so far. After Finish, all blocks have been
// checked.
func (r *RX) Bad() int {
	r.stream.mu.Lock()
	defer r.stream.mu.Unlock()
	if r.isClosed() {
		return r.bad
	}
	return r.stream.Bad()
}

// Close ends the stream. It finishes the transfer first, if Finish was not called, and returns the error of that. The stream
// ends even then, and the last bytes that were written may not be in memory. Closing a stream again does nothing.
func (r *RX) Close() error {
	if r.stream == nil {
		return failure.Zero("mkey close", "Key.RX")
	}
	r.stream.mu.Lock()
	defer r.stream.mu.Unlock()
	if r.isClosed() {
		return nil
	}
	err := r.stream.Finish()
	r.finished = err == nil
	r.written, r.bad = r.stream.Written(), r.stream.Bad()
	r.stream.closed++
	r.stream.Close()
	return err
}

// errClosed is the error of a call after Close. [errors.Is] finds EBADF and
// [fs.ErrClosed] in it.
func errClosed(op string) error {
	return &operr.Error{Op: op, Errno: syscall.EBADF, Reason: "the stream was used after Close", Err: fs.ErrClosed}
}
