package engine

import (
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/rdma"
)

// Gather reads the ranges of sges, each into the slice of bufs with the same
// index, in one batch. A front calls it in [Front.PeekSend] for the data of
// requests that wait in its queue, and hands the bytes out as
// [SendRequest.Gathered]: small messages would otherwise cost one system call
// each. Gather returns false if a range may not be read, or if the ranges are
// not all in one memory that can only be copied; the content of bufs is then
// undefined.
func (qp *QP) Gather(sges []rdma.SGE, bufs []keydoor.Vec) bool {
	qp.touch()
	var space keydoor.Space
	for i, s := range sges {
		e, err := qp.gathered(s.LKey)
		if err != nil || e.region == nil {
			return false
		}
		in, at, err := e.region.Space(s.Addr, uint64(s.Length), 0)
		if err != nil || in == nil || space != nil && in != space {
			return false
		}
		space, bufs[i].Addr = in, at
	}
	return space != nil && space.ReadV(bufs[:len(sges)]) == nil
}

// gathered looks up a key for Gather. A QP without a peer reads through all keys.
func (qp *QP) gathered(lkey uint32) (e keyEntry, err error) {
	if !qp.local {
		return qp.pd.lookup(lkey)
	}
	e.region = qp.pd.dev.Region(lkey)
	return e, nil
}

// openGathered opens the data of a request that the front has read already, if
// the range may still be read. Otherwise the request opens the range as usual,
// and fails there.
func (t *transfer) openGathered(r *SendRequest) bool {
	if len(r.SGEs) != 1 || uint64(len(r.Gathered)) != uint64(r.SGEs[0].Length) {
		return false
	}
	t.qp.touch()
	s := r.SGEs[0]
	e, err := t.pd.lookup(s.LKey)
	if err != nil || e.region == nil || e.region.Reach(s.Addr, uint64(s.Length), 0) != nil {
		return false
	}
	t.openInline(r.Gathered)
	return true
}
