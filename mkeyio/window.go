package mkeyio

import (
	"syscall"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/operr"
)

// window is the memory of a worker's key: the part of a long memory domain that
// the worker has in hand.
type window struct {
	base int64
	buf  []byte
}

// Reach implements [mkey.Memory]. Every range can be reached: the worker moves the
// window to where its key will look.
func (w *window) Reach(uint64, uint64, mkey.Access) error { return nil }

// At implements [mkey.Memory].
func (w *window) At(addr, n uint64, _ mkey.Access) ([]byte, error) {
	from := int64(addr) - w.base
	if from < 0 || from+int64(n) > int64(len(w.buf)) {
		return nil, operr.New("mkeyio run", syscall.EFAULT, "range %d+%d lies outside of the window %d+%d", addr, n, w.base, len(w.buf))
	}
	return w.buf[from:][:n], nil
}

// sliding is the memory of a key that is written from its beginning to its end. It
// grows with what the key writes, until that is taken.
type sliding struct {
	window
	done int64 // everything before this position has been written
}

// At implements [mkey.Memory]. A key writes in order, so what lies before addr is
// final.
func (s *sliding) At(addr, n uint64, _ mkey.Access) ([]byte, error) {
	s.done = int64(addr)
	from := s.done - s.base
	if need := from + int64(n); need > int64(len(s.buf)) {
		s.buf = append(s.buf, make([]byte, need-int64(len(s.buf)))...)
	}
	return s.buf[from:][:n], nil
}

// take moves what is written before end to dst and returns it.
func (s *sliding) take(dst []byte, end int64) []byte {
	n := end - s.base
	dst = append(dst[:0], s.buf[:n]...)
	s.buf = s.buf[:copy(s.buf, s.buf[n:])]
	s.base = end
	return dst
}

// everything is the length of a layout that no stream is longer than.
const everything = 1 << 56

// newKey returns a key for a job whose memory domain stands in m.
func newKey(j *Job, m mkey.Memory) (*mkey.Key, error) {
	return mkey.New(mkey.Config{
		Access:    mkey.LocalWrite,
		Layout:    mkey.List{{Memory: m, Length: everything}},
		Signature: j.Signature,
		Crypto:    j.Crypto,
	})
}
