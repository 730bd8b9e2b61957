package mkeyio

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
)

// window is the memory of a worker's key: the part of a long memory domain that
// the worker has in a buffer.
type window struct {
	base int64
	buf  []byte
}

// Reach implements [mkey.Memory]. Every range may be accessed: the worker moves the window
// before its key accesses memory.
func (w *window) Reach(uint64, uint64, rdma.Access) error { return nil }

// At implements [mkey.Memory].
func (w *window) At(addr, n uint64, _ rdma.Access) ([]byte, error) {
	from := int64(addr) - w.base
	if from < 0 || from+int64(n) > int64(len(w.buf)) {
		return nil, failure.New("mkeyio run", syscall.EFAULT, "range %d+%d lies outside of the window %d+%d", addr, n, w.base, len(w.buf))
	}
	return w.buf[from:][:n], nil
}

// sliding is the memory of a key that writes in order. It grows with each write, until take
// removes the bytes.
type sliding struct {
	window
	done int64 // every byte before this position was written
}

// At implements [mkey.Memory]. The key writes in order, so the bytes before addr are final.
func (s *sliding) At(addr, n uint64, _ rdma.Access) ([]byte, error) {
	s.done = int64(addr)
	from := s.done - s.base
	if need := from + int64(n); need > int64(len(s.buf)) {
		s.buf = append(s.buf, make([]byte, need-int64(len(s.buf)))...)
	}
	return s.buf[from:][:n], nil
}

// take moves the bytes before end to dst and returns dst.
func (s *sliding) take(dst []byte, end int64) []byte {
	n := end - s.base
	dst = append(dst[:0], s.buf[:n]...)
	s.buf = s.buf[:copy(s.buf, s.buf[n:])]
	s.base = end
	return dst
}

// everything is the length of the layout. No stream is longer.
const everything = 1 << 56

// newKey returns a key for a job over the memory m.
func newKey(j *StreamJob, m mkey.Memory) (*mkey.Key, error) {
	return mkey.New(mkey.KeyConfig{
		Access:    rdma.LocalWrite,
		Layout:    mkey.List{{Memory: m, Length: everything}},
		Signature: j.Signature,
		Crypto:    j.Crypto,
	})
}
