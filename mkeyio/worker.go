package mkeyio

import (
	"github.com/softmkey/softmkey/mkey"
)

// worker transforms chunks of a job's input into chunks of its output. Each goroutine
// has a worker of its own.
type worker interface {
	// work transforms s.in, which is at s.off of the input, into s.out. It returns the
	// chunk's bad blocks in order, valid until the next call.
	work(s *slot) ([]mkey.BadBlock, error)
	checks() *checker
	close()
}

// checking is the part that all workers share: what finds the bad blocks in their input. A
// worker with a key closes it with a method of its own.
type checking struct{ check *checker }

func (c checking) checks() *checker { return c.check }
func (c checking) close()           {}

// newWorker returns a worker for a job and its shape.
func newWorker(j *StreamJob, s *shape, checkOnly bool) (worker, error) {
	c, err := newChecker(j, s)
	if err != nil {
		return nil, err
	}
	check := checking{c}
	switch {
	case checkOnly:
		return checkWorker{check}, nil
	case j.units != nil:
		return unitWorker{check, j.units, j.Crypto.EncryptOnTX == (j.Direction == TX)}, j.units.DEK.Hold()
	case j.direct():
		return newDirectWorker(j, s, check)
	case s.serial:
		return newSerialWorker(j, s, check)
	}
	w := &keyWorker{checking: check, shape: s}
	w.key, err = newKey(j, &w.window)
	return w, err
}

// checkWorker checks the input and has no output.
type checkWorker struct{ checking }

func (w checkWorker) work(s *slot) ([]mkey.BadBlock, error) { return w.check.check(s.in, s.off) }

// keyWorker runs each chunk through its key as one transfer, at the chunk's position in the
// key's streams.
type keyWorker struct {
	checking
	shape  *shape
	key    *mkey.Key
	window window
}

func (w *keyWorker) close() { w.key.Close() }

func (w *keyWorker) work(s *slot) ([]mkey.BadBlock, error) {
	// A chunk begins at a boundary, so its positions in all streams follow from that in
	// the data.
	data := w.shape.in.Data(s.off)
	memory, wire := w.shape.memory0+w.shape.memory.Len(data), w.shape.wire0+w.shape.wire.Len(data)
	end, _, err := w.shape.length(s.off + int64(len(s.in)))
	if err != nil {
		return nil, err
	}
	s.outOff = w.shape.out.Len(data)
	s.out = grow(s.out, end-s.outOff)
	transfer := w.tx
	if w.shape.receives {
		transfer = w.rx
	}
	bad, err := transfer(s, memory, uint64(wire))
	if err != nil || bad == 0 {
		return nil, err
	}
	return badBlocks(w.key, w.check, bad, s)
}

func (w *keyWorker) tx(s *slot, memory int64, wire uint64) (int, error) {
	w.window = window{memory, s.in}
	t, err := w.key.NewReader(int64(wire), int64(len(s.out)))
	if err != nil {
		return 0, err
	}
	defer t.Close()
	_, err = t.ReadAt(s.out, 0)
	return t.Bad(), err
}

func (w *keyWorker) rx(s *slot, memory int64, wire uint64) (int, error) {
	w.window = window{memory, s.out}
	r, err := w.key.NewWriter(int64(wire), int64(len(s.in)))
	if err != nil {
		return 0, err
	}
	defer r.Close()
	if _, err := r.Write(s.in); err != nil {
		return 0, err
	}
	err = r.Finish()
	return r.Bad(), err
}

// badBlocks returns the bad blocks of a chunk, in which k has found bad > 0 of them.
func badBlocks(k *mkey.Key, c *checker, bad int, s *slot) ([]mkey.BadBlock, error) {
	first, err := k.Check()
	if err != nil {
		return nil, err
	}
	if bad > 1 && c.all {
		return c.check(s.in, s.off)
	}
	first.Domain = c.domain // a serial worker's key has exchanged domains
	c.bad = append(c.bad[:0], *first)
	return c.bad, nil
}
