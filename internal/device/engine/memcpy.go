package engine

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/rdma"
)

// MaxMemcpy is the largest number of bytes that one request copies between local ranges. Other
// QPs that use the memory of the PD may wait that long.
const MaxMemcpy = 1 << 20

// memcpyStep is the number of bytes that are copied at a time.
const memcpyStep = 64 << 10

// memcpy executes a request that copies one local range to another.
func (qp *QP) memcpy(r *SendRequest) (rdma.Status, error) {
	const op = "copy memory"
	if len(r.SGEs) != 2 || r.SGEs[0].Length != r.SGEs[1].Length {
		return rdma.StatusLocQPOpErr, failure.New(op, syscall.EINVAL, "request %d: it needs a source and a destination of the same length", r.ID)
	}
	n := int(r.SGEs[0].Length)
	if n > MaxMemcpy {
		return rdma.StatusLocLenErr, failure.New(op, syscall.EMSGSIZE, "request %d: %d bytes, at most %d are copied", r.ID, n, MaxMemcpy)
	}
	from := &r.exec.memory // closed when the request completes
	if err := from.open(r.SGEs[:1], reading); err != nil {
		return localStatus(err), err
	}
	to := transferPool.Get().(*transfer)
	to.begin(qp, requester)
	err := qp.copy(from, to, r.SGEs[1:], n)
	to.close()
	to.qp, to.pd, to.err = nil, nil, nil
	transferPool.Put(to)
	if err != nil {
		return localStatus(err), err
	}
	return rdma.StatusSuccess, nil
}

func (qp *QP) copy(from, to *transfer, dst []rdma.SGE, n int) error {
	if err := to.open(dst, writing); err != nil {
		return err
	}
	buf := make([]byte, min(n, memcpyStep))
	for off := 0; off < n; off += len(buf) {
		b := buf[:min(len(buf), n-off)]
		if err := from.ReadAt(b, uint64(off)); err != nil {
			return err
		}
		if err := to.Write(b); err != nil {
			return err
		}
		if err := qp.scatter.write(); err != nil { // it keeps b otherwise
			return err
		}
	}
	return to.finish()
}
