package mkeyio

import (
	"github.com/softmkey/softmkey/mkey"
)

// serialWorker runs the whole stream through one transfer of its key, one chunk
// after the other. A transfer whose length is not known can be an RX but not a
// TX. A TX job is therefore done as the RX of the mirrored job.
type serialWorker struct {
	checking
	shape  *shape
	key    *mkey.Key
	memory sliding
	rx     *mkey.Writer
	bad    int // bad blocks of rx so far
}

func newSerialWorker(j *StreamJob, s *shape, check checking) (*serialWorker, error) {
	w := &serialWorker{checking: check, shape: s}
	if j.Direction == TX {
		j = mirror(j)
	}
	w.memory.base, w.memory.done = s.out0, s.out0
	var err error
	if w.key, err = newKey(j, &w.memory); err != nil {
		return nil, err
	}
	if w.rx, err = w.key.NewWriter(int64(s.in0), everything/2); err != nil {
		w.key.Close()
		return nil, err
	}
	return w, nil
}

// mirror returns the job whose RX equals the TX of j: memory and wire are
// exchanged, and so are encryption and decryption, and the order of signature
// and crypto. The mirror of an allowed row is another allowed row. The pairs
// are A-F, B-J, C-H, D-G and E-I.
func mirror(j *StreamJob) *StreamJob {
	m := *j
	m.Direction = RX
	if j.Signature != nil {
		s := *j.Signature
		s.Memory, s.Wire = s.Wire, s.Memory
		s.MemoryCheckMask, s.WireCheckMask = s.WireCheckMask, s.MemoryCheckMask
		m.Signature = &s
	}
	if j.Crypto != nil {
		c := *j.Crypto
		c.EncryptOnTX = !c.EncryptOnTX
		c.Order = mkey.SignatureBeforeCrypto - c.Order
		m.Crypto = &c
	}
	return &m
}

func (w *serialWorker) close() {
	w.rx.Close()
	w.key.Close()
}

func (w *serialWorker) work(s *slot) ([]mkey.BadBlock, error) {
	if _, err := w.rx.Write(s.in); err != nil {
		return nil, err
	}
	// The chunk's bad blocks must be found before the next chunk is written.
	if err := w.rx.Flush(); err != nil {
		return nil, err
	}
	end := w.memory.done
	if s.last {
		if err := w.rx.Finish(); err != nil {
			return nil, err
		}
		n, _, err := w.shape.length(s.off + int64(len(s.in)))
		if err != nil {
			return nil, err
		}
		end = w.shape.out0 + n
	}
	s.outOff = w.memory.base - w.shape.out0
	s.out = w.memory.take(s.out, end)
	bad := w.rx.Bad() - w.bad
	if w.bad += bad; bad == 0 {
		return nil, nil
	}
	return badBlocks(w.key, w.check, bad, s)
}
