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

// handle is the part that Reader and Writer have in common. The zero value has no stream.
type handle struct {
	stream *generation
	opened uint64 // value of stream.closed when the handle was opened
	bad    int    // number of bad blocks, once the stream was closed; guarded by stream.mu until then
}

// lock locks the stream for an operation. After an error, the stream is not locked, and nothing changes the handle any
// more.
func (h *handle) lock(op, maker string) error {
	if h.stream == nil {
		return failure.Zero(op, maker)
	}
	h.stream.mu.Lock()
	if h.opened != h.stream.closed {
		h.stream.mu.Unlock()
		return errClosed(op)
	}
	return nil
}

// Reader is a stream that reads a range of a key's wire domain (TX). It implements
// [io.ReadCloser] and [io.ReaderAt]. Its methods may be called by several goroutines; a lock
// lets one run at a time.
type Reader struct {
	handle
	tx     *txStream
	length int64
	pos    int64 // guarded by stream.mu: offset of the next Read
}

// NewReader opens n bytes of the wire domain from offset off for reading. The offset must be a
// boundary of blocks and data units. NewReader detects every error that does not depend on later
// events. It returns EFAULT or EACCES for bounds and rights along the whole path,
// EMSGSIZE for a length that AES-XTS cannot process, and EINVAL for a negative number and for
// a DEK without the right keytag.
//
// The stream holds a DEK and a buffer until it is closed.
func (k *Key) NewReader(off, n int64) (*Reader, error) { return new(Reader).open(k, off, n) }

// open returns t. It is a function of its own to make NewReader small enough for the compiler
// to inline: a handle that does not escape from the caller then stays on the stack.
func (t *Reader) open(k *Key, off, n int64) (*Reader, error) {
	if off < 0 || n < 0 {
		return nil, errNegative(off, n)
	}
	s, err := k.openTX(uint64(off), uint64(n), 0)
	if err != nil {
		return nil, err
	}
	t.handle, t.tx, t.length = handle{stream: &s.generation, opened: s.closed}, s, n
	return t, nil
}

func errNegative(off, n int64) error {
	return failure.New("mkey access", syscall.EINVAL, "offset %d, length %d: must not be negative", off, n)
}

// Size returns the length of the stream in bytes.
func (t *Reader) Size() int64 { return t.length }

// Read implements [io.Reader]. Errors are those of ReadAt.
func (t *Reader) Read(p []byte) (int, error) {
	if err := t.lock("mkey read", "Key.NewReader"); err != nil {
		return 0, err
	}
	defer t.stream.mu.Unlock()
	n, err := t.readAt(p, t.pos)
	t.pos += int64(n)
	return n, err
}

// ReadAt implements [io.ReaderAt]. Sequential reads are fast; for other offsets the bytes
// are produced again. p must not overlap the key's memory.
//
// An error other than [io.EOF] means that the memory can no longer be accessed or that
// the key was closed. Bytes read before stay valid, and the call may be repeated.
func (t *Reader) ReadAt(p []byte, off int64) (int, error) {
	if err := t.lock("mkey read", "Key.NewReader"); err != nil {
		return 0, err
	}
	defer t.stream.mu.Unlock()
	return t.readAt(p, off)
}

// readAt is called with stream.mu held.
func (t *Reader) readAt(p []byte, off int64) (int, error) {
	switch {
	case off < 0:
		return 0, failure.New("mkey read", syscall.EINVAL, "offset %d: must not be negative", off)
	case off > t.length:
		return 0, io.EOF
	}
	var end error
	if left := t.length - off; int64(len(p)) > left {
		p, end = p[:left], io.EOF
	}
	if err := t.tx.ReadAt(p, uint64(off)); err != nil {
		return 0, err
	}
	return len(p), end
}

// Bad returns the number of bad blocks found so far. The stream may have checked some
// blocks that were not read yet.
func (t *Reader) Bad() int {
	if t.lock("mkey read", "Key.NewReader") != nil {
		return t.bad
	}
	defer t.stream.mu.Unlock()
	return t.tx.Bad()
}

// Close ends the stream. Closing it again does nothing. The error is always nil.
func (t *Reader) Close() error {
	if t.stream == nil {
		return failure.Zero("mkey read", "Key.NewReader")
	}
	if t.lock("mkey read", "Key.NewReader") != nil {
		return nil
	}
	defer t.stream.mu.Unlock()
	t.bad = t.tx.Bad()
	t.stream.closed++
	t.tx.Close()
	return nil
}

// Writer is a stream that writes a range of a key's wire domain (RX). It implements
// [io.WriteCloser]. Its methods may be called by several goroutines; a lock lets one
// run at a time.
type Writer struct {
	handle
	rx       *rxStream
	finished bool // guarded by stream.mu until the stream is closed
}

// NewWriter opens the wire domain from offset off for writing at most n bytes. The key must
// grant LocalWrite. Errors are those of [Key.NewReader], but for a length that AES-XTS cannot
// process, which [Writer.Finish] finds.
//
// [Writer.Finish] or [Writer.Close] ends the transfer. The stream holds a DEK and a buffer until
// it is closed.
func (k *Key) NewWriter(off, n int64) (*Writer, error) { return new(Writer).open(k, off, n) }

// open returns r. It is separate for the same reason as Reader.open.
func (r *Writer) open(k *Key, off, n int64) (*Writer, error) {
	if off < 0 || n < 0 {
		return nil, errNegative(off, n)
	}
	s, err := k.openRX(uint64(off), uint64(n), rdma.LocalWrite, false)
	if err != nil {
		return nil, err
	}
	r.handle, r.rx = handle{stream: &s.generation, opened: s.closed}, s
	return r, nil
}

// Write implements io.Writer. It writes all of p or returns an error. It returns EFAULT,
// and writes nothing, if p has more bytes than the stream has room for. Bytes may reach
// memory later, with Finish at the latest.
//
// If the memory can no longer be accessed, or the key was closed, the stream ends: every
// later call returns the same error, and the number of bytes written is undefined. p must
// not overlap the key's memory.
func (r *Writer) Write(p []byte) (int, error) {
	if err := r.lock("mkey write", "Key.NewWriter"); err != nil {
		return 0, err
	}
	defer r.stream.mu.Unlock()
	if err := r.rx.Write(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes to memory all complete blocks and data units that the stream has accepted.
// After that, Bad counts all of them.
func (r *Writer) Flush() error {
	if err := r.lock("mkey flush", "Key.NewWriter"); err != nil {
		return err
	}
	defer r.stream.mu.Unlock()
	return r.rx.Flush()
}

// Finish ends the transfer. It writes the data of an incomplete last block to memory
// without a field, and encrypts or decrypts an incomplete last data unit. It returns
// EMSGSIZE for a length that AES-XTS cannot process. After Finish nothing can be written;
// further calls do nothing.
func (r *Writer) Finish() error {
	if err := r.lock("mkey finish", "Key.NewWriter"); err != nil {
		if r.finished {
			return nil
		}
		return err
	}
	defer r.stream.mu.Unlock()
	err := r.rx.Finish() // nil if the stream was finished
	r.finished = err == nil
	return err
}

// Bad returns the number of bad blocks found so far. After Finish, all blocks have been
// checked.
func (r *Writer) Bad() int {
	if r.lock("mkey write", "Key.NewWriter") != nil {
		return r.bad
	}
	defer r.stream.mu.Unlock()
	return r.rx.Bad()
}

// Close ends the stream. It finishes the transfer first, if Finish was not called, and returns the error of that. The stream
// ends even then, and the last bytes that were written may not be in memory. Closing a stream again does nothing.
func (r *Writer) Close() error {
	if r.stream == nil {
		return failure.Zero("mkey close", "Key.NewWriter")
	}
	if r.lock("mkey close", "Key.NewWriter") != nil {
		return nil
	}
	defer r.stream.mu.Unlock()
	err := r.rx.Finish()
	r.finished = err == nil
	r.bad = r.rx.Bad()
	r.stream.closed++
	r.rx.Close()
	return err
}

// errClosed is the error of a call after Close. [errors.Is] finds EBADF and
// [fs.ErrClosed] in it.
func errClosed(op string) error {
	return &operr.Error{Op: op, Errno: syscall.EBADF, Reason: "the stream was used after Close", Err: fs.ErrClosed}
}
