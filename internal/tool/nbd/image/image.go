// Package image makes a block device of an image: a file whose content is the output of a job, seen
// through a [mkeyio.View].
//
// An [Image] counts what its clients do and reports each bad block once. Two of its rules keep data
// that a client believes to be safe:
//
//   - After a flush has failed, all later ones fail. The kernel reports such an error once, to
//     one caller, and the data that it could not write may be lost for every client.
//   - Bad blocks are repaired only in an image that fits its format; see [Image.AllowRepair].
package image

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/sig"
)

// Store holds the bytes of an image. [File] makes one of an *os.File.
type Store interface {
	io.ReaderAt
	io.WriterAt

	// Sync returns when all bytes that were written before are on stable storage.
	Sync() error

	// Discard says that a range is not needed any more. Its bytes may change or stay.
	Discard(off, n int64) error
}

// Options describe an image.
type Options struct {
	// Job makes the content of the store from what the clients see. Its fields that [mkeyio.NewView]
	// does not use are ignored, and so is Bad.
	Job mkeyio.StreamJob
	// Encryption is what the store has in place of the result of Job, which has then neither signature nor crypto;
	// nil: the result of Job.
	Encryption *mkeyio.Encryption

	Size     int64 // length of the store
	ReadOnly bool  // nothing is written: Flush has nothing to do

	// The following functions may be called by several goroutines at the same time. None is nil.

	Bad    func(b *mkey.BadBlock)                   // a block was found bad that was good before, or was not known
	Kept   func(block uint64)                       // a block was found bad and not repaired, for the first time
	Failed func(op string, offset int64, err error) // the first error of the store of its kind; op is read, write, flush or trim
}

// Counts are the numbers of an image since it was opened.
type Counts struct {
	Read, Written uint64 // bytes
	Bad           uint64 // blocks that were reported
	Repaired      uint64 // blocks that were signed again
	Refused       uint64 // requests that failed because of a bad block
	Failures      uint64 // requests that failed because of an error of the store
	First         *mkey.BadBlock
}

// Image is a block device. Its methods may be called by several goroutines at the same time.
type Image struct {
	*mkeyio.View
	store   Store
	o       Options
	block   int64 // bytes of the device between the beginnings of two blocks; 0: no blocks
	discard bool  // trim may discard bytes of the store
	flusher flusher
	repair  repair

	mu       sync.Mutex // guards the following fields
	seen     seen       // bad blocks that were reported
	failures map[failureKind]struct{}
	first    *mkey.BadBlock

	read, written, bad, repaired, refused, failed atomic.Uint64
}

type failureKind struct {
	op    string
	errno syscall.Errno
}

// New returns the image in a store. Its errors are those of [mkeyio.NewView].
func New(s Store, o Options) (*Image, error) {
	m := &Image{store: s, o: o, failures: make(map[failureKind]struct{})}
	o.Job.Bad = m.found
	var err error
	if o.Encryption != nil {
		m.View, err = o.Encryption.View(s, o.Size)
	} else {
		m.View, err = mkeyio.NewView(o.Job, s, o.Size)
	}
	if err != nil {
		return nil, err
	}
	m.flusher.sync = s.Sync
	stored, seen := o.formats()
	switch {
	case stored != nil:
		m.block = int64(stored.Block())
	case seen != nil:
		m.block = int64(seen.Stride())
	}
	m.discard = stored == nil
	return m, nil
}

// Close flushes the image. It returns the error of the flush that failed first.
func (m *Image) Close() error {
	_ = m.View.Close() // always returns nil
	if m.repair.plain != nil {
		_ = m.repair.plain.Close()
	}
	return m.flush()
}

// Counts returns the numbers so far.
func (m *Image) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Counts{
		Read: m.read.Load(), Written: m.written.Load(), Bad: m.bad.Load(), Repaired: m.repaired.Load(),
		Refused: m.refused.Load(), Failures: m.failed.Load(), First: m.first,
	}
}

// found reports a bad block, unless it was reported before.
func (m *Image) found(b *mkey.BadBlock) {
	m.mu.Lock()
	fresh := m.seen.add(b.Sig.Block)
	if m.first == nil {
		m.first = b
	}
	m.mu.Unlock()
	if fresh {
		m.bad.Add(1)
		m.o.Bad(b)
	}
}

// ReadAt implements nbd.Device.
func (m *Image) ReadAt(p []byte, off int64) (int, error) {
	n, err := m.View.ReadAt(p, off)
	if isBad(err) && m.mend(off, int64(len(p))) {
		n, err = m.View.ReadAt(p, off)
	}
	m.read.Add(uint64(n))
	if !errors.Is(err, io.EOF) {
		m.check("read", off, err)
	}
	return n, err
}

// WriteAt implements nbd.Device.
func (m *Image) WriteAt(p []byte, off int64) (int, error) {
	n, err := m.View.WriteAt(p, off)
	if isBad(err) && m.mend(off, int64(len(p))) {
		n, err = m.View.WriteAt(p, off)
	}
	m.written.Add(uint64(n))
	m.check("write", off, err)
	if n > 0 && m.block > 0 { // a block that becomes bad again is reported again
		m.mu.Lock()
		m.seen.remove(uint64(off/m.block), uint64((off+int64(n)-1)/m.block))
		m.mu.Unlock()
	}
	return n, err
}

// zeroPiece holds the zeros that Zero writes at a time.
var zeroPiece = make([]byte, 1<<20)

// Zero implements nbd.Device.
func (m *Image) Zero(off, n int64) error {
	for n > 0 {
		// Pieces end on granule boundaries. A granule that is written in part must be read first,
		// so only the first and the last one of the range are read.
		k := min(n, int64(len(zeroPiece)))
		if end := (off + k) / m.Granule() * m.Granule(); k < n && end > off {
			k = end - off
		}
		if _, err := m.WriteAt(zeroPiece[:k], off); err != nil {
			return err
		}
		off, n = off+k, n-k
	}
	return nil
}

// Trim implements nbd.Device. A store with fields stays as it is, because a hole would have no field. Otherwise the
// granules that lie within the range are discarded.
func (m *Image) Trim(off, n int64) error {
	if !m.discard {
		return nil
	}
	g := m.Granule()
	from, to := (off+g-1)/g*g, (off+n)/g*g
	if _, seen := m.o.formats(); seen != nil { // without the fields that the clients see
		from, to = from/m.block*int64(seen.Block()), to/m.block*int64(seen.Block())
	}
	if from >= to {
		return nil
	}
	err := m.store.Discard(from, to-from)
	m.check("trim", from, err)
	return err
}

// Flush implements nbd.Device.
func (m *Image) Flush() error {
	err := m.flush()
	if err != nil {
		m.failed.Add(1)
	}
	return err
}

func (m *Image) flush() error {
	if m.o.ReadOnly {
		return nil // some read-only file systems refuse to sync
	}
	err, first := m.flusher.flush()
	if first {
		m.o.Failed("flush", 0, err)
	}
	return err
}

// check counts and reports the error of a request.
func (m *Image) check(op string, off int64, err error) {
	if err == nil {
		return
	}
	if isBad(err) {
		m.refused.Add(1)
		return
	}
	m.failed.Add(1)
	kind := failureKind{op, failure.Errno(err, 0)}
	m.mu.Lock()
	_, known := m.failures[kind]
	m.failures[kind] = struct{}{}
	m.mu.Unlock()
	if !known {
		m.o.Failed(op, off, err)
	}
}

func isBad(err error) bool {
	var bad *mkey.BadBlock
	return errors.As(err, &bad)
}

// formats returns the formats of the fields in the store and of those that the clients see, nil for none.
func (o *Options) formats() (stored, seen *sig.Format) {
	switch s := o.Job.Signature; {
	case s == nil:
		return nil, nil
	case o.Job.Direction == mkeyio.TX:
		return s.Wire, s.Memory
	default:
		return s.Memory, s.Wire
	}
}
