package mkeytest

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
)

// Space is a slice as memory that can only be copied. It implements both [keydoor.Copied]
// and [keydoor.Space]. Addresses of the memory are offsets into the slice; addresses of the
// space are higher by Base. Space is not safe for concurrent use.
type Space struct {
	Mem  []byte
	Base uint64

	// Rights are the granted rights; local reads need none.
	Rights rdma.Access

	// Fail, if not nil, is called for each piece before it is copied.
	Fail func(v keydoor.Vec) error

	Reads, Writes int // calls of ReadV and WriteV
	Pieces        int // pieces of all calls
}

// Reach implements [mkey.Memory].
func (s *Space) Reach(addr, n uint64, need rdma.Access) error {
	if need&^s.Rights != 0 {
		return failure.New("mkeytest space", syscall.EACCES, "rights %#x, %#x are needed", uint32(s.Rights), uint32(need))
	}
	return mkey.Bytes(s.Mem).Reach(addr, n, need)
}

// At implements [mkey.Memory]. It fails, because the memory cannot be used in place.
func (s *Space) At(addr, n uint64, need rdma.Access) ([]byte, error) {
	return nil, failure.New("mkeytest space", syscall.EOPNOTSUPP, "the memory can only be copied")
}

// Space implements [keydoor.Copied].
func (s *Space) Space(addr, n uint64, need rdma.Access) (keydoor.Space, uint64, error) {
	return s, s.Base + addr, s.Reach(addr, n, need)
}

// ReadV implements [keydoor.Space].
func (s *Space) ReadV(v []keydoor.Vec) error {
	s.Reads++
	return s.each(v, func(mem, buf []byte) { copy(buf, mem) })
}

// WriteV implements [keydoor.Space].
func (s *Space) WriteV(v []keydoor.Vec) error {
	s.Writes++
	return s.each(v, func(mem, buf []byte) { copy(mem, buf) })
}

func (s *Space) each(v []keydoor.Vec, f func(mem, buf []byte)) error {
	s.Pieces += len(v)
	if len(v) == 0 || len(v) > 512 {
		return failure.New("mkeytest space", syscall.EINVAL, "%d pieces: must be 1 to 512", len(v))
	}
	for _, p := range v {
		if s.Fail != nil {
			if err := s.Fail(p); err != nil {
				return err
			}
		}
		n := uint64(len(p.Buf))
		if at := p.Addr - s.Base; n == 0 || p.Addr < s.Base || at > uint64(len(s.Mem)) || n > uint64(len(s.Mem))-at {
			return failure.New("mkeytest space", syscall.EFAULT, "range %d+%d lies outside of the memory", p.Addr, n)
		}
		f(s.Mem[p.Addr-s.Base:][:n], p.Buf)
	}
	return nil
}
