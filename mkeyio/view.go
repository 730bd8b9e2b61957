package mkeyio

import (
	"io"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/fullio"
	"github.com/softmkey/softmkey/internal/base/geometry"
	"github.com/softmkey/softmkey/mkey"
)

// Store holds the stream behind a [View]. An *os.File is one.
type Store interface {
	io.ReaderAt
	io.WriterAt
}

// View gives access at any offset to data that is stored as the output of a
// job: for example to the data of a file with fields, or to the plaintext of an
// encrypted file. Reads check and decrypt, writes sign and encrypt. It
// implements [io.ReaderAt] and [io.WriterAt], and any number of goroutines may
// use it at once.
//
// A view reads and writes whole granules: the blocks and data units that begin
// together. A write that covers a part of a granule reads the rest first. One
// WriteAt of the Store writes up to a MiB of granules. If the program is killed
// during the write, the store has old blocks, new blocks, and at most one block
// whose field does not fit; a read reports that block.
type View struct {
	job    StreamJob // makes the content of the store from the content of the view
	f      Store
	size   int64 // bytes of the view
	stored int64
	plain  bool // the store has what the view has

	write, read shape // shapes of the job and of its reverse
	granule     int64 // length of a granule in bytes of the view
	kept        int64 // length of a granule in bytes of the store
	last        int64 // where the last granule begins if it has a length of its own; the view's end otherwise
	piece       int64 // largest number of bytes of the view that one operation moves, a multiple of granule

	locks [64]sync.RWMutex // locks of the pieces, shared by pieces whose numbers are equal modulo 64

	mu     sync.Mutex // guards the following fields
	idle   []*viewWorker
	closed bool
}

// viewWorker transforms pieces in both directions. One goroutine uses it at a time.
type viewWorker struct {
	read, write         worker
	readSlot, writeSlot slot
}

// pieceSize is about how many bytes of a view one operation on the store moves.
const pieceSize = 1 << 20

// NewView returns the view of a store of size bytes. The job makes the content
// of the store from the content of the view. [Protect] gives a view of plain
// data over a store with fields, [Strip] a view with fields over a store of
// plain data. A new store is written by [Run] first: a view reads the blocks around a write, and checks them.
//
// StreamJob.Bad is called for every bad block that is found, from the goroutine that reads or writes.
// StreamJob.Offset, KeepGoing, Progress and Workers are not used.
//
// Errors are *operr.Error: EINVAL for a job that a key cannot do or whose boundaries are too far
// apart, and for a store that was truncated.
func NewView(j StreamJob, f Store, size int64) (*View, error) {
	const op = "mkeyio view"
	j = StreamJob{Direction: j.Direction, Signature: j.Signature, Crypto: j.Crypto, Bad: j.Bad, KeepGoing: true, keepEscapes: j.keepEscapes, units: j.units, chunk: 1}
	switch {
	case f == nil:
		return nil, failure.New(op, syscall.EINVAL, "no store is given")
	case size < 0 || size > everything:
		return nil, failure.New(op, syscall.EINVAL, "a store of %d bytes: must be 0 to %d", size, int64(everything))
	case j.Direction > RX:
		return nil, failure.New(op, syscall.EINVAL, "direction %d: must be TX or RX", j.Direction)
	}
	v := &View{job: j, f: f, stored: size, plain: j.Signature == nil && j.Crypto == nil}
	var err error
	if v.write, err = newShape(&j); err != nil {
		return nil, err
	}
	if v.write.serial {
		return nil, failure.New(op, syscall.EINVAL, "blocks and data units begin together only every %d bytes or more: a view needs them within %d", v.write.chunk, int64(chunkLimit))
	}
	back := v.reverse()
	if v.read, err = newShape(&back); err != nil {
		return nil, err
	}
	if v.size, _, err = v.read.length(size); err != nil {
		return nil, err
	}
	v.last = v.size
	if j.units != nil {
		v.last = wholeUnits(size, j.units.Unit)
	} else if j.Crypto != nil {
		encrypted := size
		if v.write.unitInInput {
			encrypted = v.size
		}
		if err := geometry.CheckJob(encrypted, int64(j.Crypto.DataUnitSize)); err != nil {
			return nil, err
		}
	}
	v.granule, v.kept = v.write.in.Len(v.write.chunk), v.write.out.Len(v.write.chunk)
	v.piece = max(pieceSize/v.granule, 1) * v.granule
	w, err := v.worker() // the key returns the errors of jobs that keys do not support
	if err != nil {
		return nil, err
	}
	v.release(w)
	return v, nil
}

// reverse returns the job from the store to the view.
func (v *View) reverse() StreamJob {
	j := v.job
	j.Direction = TX + RX - j.Direction
	return j
}

// Size returns the number of bytes of the view. It does not change.
func (v *View) Size() int64 { return v.size }

// Granule returns the number of bytes that are read and written together.
// Operations are fastest on whole granules, at their boundaries.
func (v *View) Granule() int64 { return v.granule }

// Close releases the view's keys, which hold its DEK, when the operations in progress have ended. It
// does not close the store. Later operations return EBADF.
func (v *View) Close() error {
	if v.f == nil {
		return failure.Zero("mkeyio view", "NewView")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	for _, w := range v.idle {
		w.close()
	}
	v.idle = nil
	return nil
}

func (w *viewWorker) close() {
	w.read.close()
	w.write.close()
}

func (v *View) worker() (*viewWorker, error) {
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		return nil, failure.New("mkeyio view", syscall.EBADF, "the view is closed")
	}
	if n := len(v.idle); n > 0 {
		w := v.idle[n-1]
		v.idle = v.idle[:n-1]
		v.mu.Unlock()
		return w, nil
	}
	v.mu.Unlock()
	back := v.reverse()
	w := new(viewWorker)
	var err error
	if w.read, err = newWorker(&back, &v.read, false); err != nil {
		return nil, err
	}
	if w.write, err = newWorker(&v.job, &v.write, false); err != nil {
		w.read.close()
		return nil, err
	}
	return w, nil
}

func (v *View) release(w *viewWorker) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		w.close()
		return
	}
	v.idle = append(v.idle, w)
}

// ReadAt implements [io.ReaderAt]. At a bad block it returns the number of bytes before it, and an
// [*mkey.BadBlock]. p has the data of the bad blocks, too.
func (v *View) ReadAt(p []byte, off int64) (int, error) {
	if v.f == nil {
		return 0, failure.Zero("mkeyio view read", "NewView")
	}
	if off < 0 {
		return 0, failure.New("mkeyio view read", syscall.EINVAL, "offset %d: must not be negative", off)
	}
	if off >= v.size {
		return 0, io.EOF
	}
	end, atEnd := len(p), error(nil)
	if int64(end) > v.size-off {
		end, atEnd = int(v.size-off), io.EOF
	}
	n := 0
	var first error
	err := v.each(off, int64(end), false, func(w *viewWorker, a, b int64) error {
		from, to := v.round(a, b)
		var data []byte
		var bad []mkey.BadBlock
		var err error
		if from == a && to == b { // whole granules need no merge
			own := w.readSlot.out
			w.readSlot.out = p[a-off : b-off : b-off]
			_, bad, err = v.load(w, from, to)
			w.readSlot.out = own
		} else if data, bad, err = v.load(w, from, to); err == nil {
			copy(p[a-off:b-off], data[a-from:])
		}
		if err != nil {
			return err
		}
		if first == nil {
			n = int(b - off)
		}
		for i := range bad {
			at, until := v.extent(&bad[i])
			if until <= a || at >= b {
				continue // the bad block is in the granule but outside of p
			}
			v.found(&bad[i])
			if first == nil {
				first, n = new(bad[i]), max(int(at-off), 0)
			}
		}
		return nil
	})
	if err != nil {
		return n, err
	}
	if first != nil {
		return n, first
	}
	return n, atEnd
}

// WriteAt implements [io.WriterAt]. The store keeps its length: a write beyond
// the end of the view is ENOSPC. A write that covers a part of a bad block, or
// of a granule with a bad block, changes nothing there and returns an
// [*mkey.BadBlock], because a new signature would hide the damage. If the view
// has fields, WriteAt checks them and does not write a bad block.
func (v *View) WriteAt(p []byte, off int64) (int, error) {
	if v.f == nil {
		return 0, failure.Zero("mkeyio view write", "NewView")
	}
	const op = "mkeyio view write"
	if off < 0 {
		return 0, failure.New(op, syscall.EINVAL, "offset %d: must not be negative", off)
	}
	if off > v.size || int64(len(p)) > v.size-off {
		return 0, failure.New(op, syscall.ENOSPC, "%d bytes at %d: the view has %d bytes", len(p), off, v.size)
	}
	n := 0
	err := v.each(off, int64(len(p)), true, func(w *viewWorker, a, b int64) error {
		if err := v.merge(w, p[a-off:b-off], a, b); err != nil {
			return err
		}
		n = int(b - off)
		return nil
	})
	return n, err
}

// Repair signs the bad blocks of a range again. It writes only their fields: no
// byte of the data changes, nor metadata beside a field, nor a tag that the
// format does not check. If the fields are encrypted, the ciphertext around a
// field changes with it, and its data is the same only under the key and the
// tweaks of the job. The caller must know that the data is right, and that the
// store was made by this job. The store must have fields.
func (v *View) Repair(off, n int64) error {
	if v.f == nil {
		return failure.Zero("mkeyio view repair", "NewView")
	}
	const op = "mkeyio view repair"
	if off < 0 || n < 0 || off > v.size || n > v.size-off {
		return failure.New(op, syscall.EINVAL, "%d bytes at %d: the view has %d bytes", n, off, v.size)
	}
	if !v.read.in.Signed() {
		return failure.New(op, syscall.EINVAL, "the store has no fields")
	}
	return v.each(off, n, true, func(w *viewWorker, a, b int64) error {
		from, to := v.round(a, b)
		_, bad, err := v.load(w, from, to)
		if err != nil {
			return err
		}
		for i := range bad {
			if at, until := v.extent(&bad[i]); until <= a || at >= b {
				continue
			}
			if err := v.signAgain(w.readSlot.in, w.readSlot.off, bad[i].Sig.Block); err != nil {
				return err
			}
		}
		return nil
	})
}

// each calls f for the pieces of a range, under the piece's lock, with a
// worker. The lock is held while the store is read and written, so that
// reading, changing and writing a granule is one operation. Operations on other
// pieces usually do not wait.
func (v *View) each(off, n int64, write bool, f func(w *viewWorker, from, to int64) error) error {
	w, err := v.worker()
	if err != nil {
		return err
	}
	defer v.release(w)
	for a := off; a < off+n; {
		number, b := a/v.piece, off+n
		if a >= v.last { // the last granule is in one piece
			number = v.last / v.piece
		} else if end := (number + 1) * v.piece; end <= v.last {
			b = min(b, end)
		}
		lock := sync.Locker(&v.locks[number%int64(len(v.locks))])
		if !write {
			lock = v.locks[number%int64(len(v.locks))].RLocker()
		}
		lock.Lock()
		err = f(w, a, b)
		lock.Unlock()
		if err != nil {
			return err
		}
		a = b
	}
	return nil
}

// round returns the granules that a range touches.
func (v *View) round(a, b int64) (from, to int64) {
	from, to = a/v.granule*v.granule, (b+v.granule-1)/v.granule*v.granule
	if b > v.last {
		to = v.size
	}
	return min(from, v.last), min(to, v.size)
}

// storeAt returns the position in the store of a granule boundary of the view,
// or of its end.
func (v *View) storeAt(at int64) int64 {
	if at == v.size {
		return v.stored
	}
	return at / v.granule * v.kept
}

// load returns the content of granules and their bad blocks. Both are valid
// until the worker's next use.
func (v *View) load(w *viewWorker, from, to int64) ([]byte, []mkey.BadBlock, error) {
	s := &w.readSlot
	s.off = v.storeAt(from)
	n := v.storeAt(to) - s.off
	if v.plain && int64(cap(s.out)) >= n {
		s.out = s.out[:n]
		_, err := fullio.ReadAt(v.f, s.out, s.off)
		return s.out, nil, err
	}
	s.in = grow(s.in, n)
	if _, err := fullio.ReadAt(v.f, s.in, s.off); err != nil { // io.ErrUnexpectedEOF: the store was truncated meanwhile
		return nil, nil, err
	}
	bad, err := w.read.work(s)
	return s.out, bad, err
}

// save writes granules to the store.
func (v *View) save(w *viewWorker, data []byte, from int64) error {
	if v.plain {
		return fullio.WriteAt(v.f, data, v.storeAt(from))
	}
	s := &w.writeSlot
	s.in, s.off = data, from
	bad, err := w.write.work(s)
	if err != nil {
		return err
	}
	for i := range bad {
		v.found(&bad[i])
	}
	if len(bad) > 0 {
		return new(bad[0])
	}
	return fullio.WriteAt(v.f, s.out, s.outOff)
}

// merge writes p to a range within a piece, together with the rest of the granules at its ends.
func (v *View) merge(w *viewWorker, p []byte, a, b int64) error {
	from, to := v.round(a, b)
	if from == a && to == b {
		return v.save(w, p, a)
	}
	data, bad, err := v.load(w, from, to)
	if err != nil {
		return err
	}
	for i := range bad {
		if at, until := v.extent(&bad[i]); at < a || until > b {
			v.found(&bad[i])
			return new(bad[i])
		}
	}
	copy(data[a-from:], p)
	return v.save(w, data, from)
}

// extent returns the range of the view that corresponds to a bad block of the
// store.
func (v *View) extent(b *mkey.BadBlock) (from, to int64) {
	data := int64(b.Sig.Block) * v.read.in.Block
	return v.read.out.Len(data), min(v.read.out.Len(data+v.read.in.Block), v.size)
}

func (v *View) found(b *mkey.BadBlock) {
	if v.job.Bad != nil {
		v.job.Bad(new(*b))
	}
}
