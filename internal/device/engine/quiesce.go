package engine

import (
	"slices"
	"sync"

	"github.com/softmkey/softmkey/rdma"
)

// touchedQPs holds the QPs that have used memory since quiesce waited for them. There is one for
// each PD, so that closing a region does not take longer the more QPs other PDs have.
type touchedQPs struct {
	mu   sync.Mutex
	list []*QP // QP.touchedAt is the index
}

// touchedOf returns the list that the QP belongs to.
func touchedOf(qp *QP) *touchedQPs {
	if qp.typ == rdma.XRCRecv {
		return &qp.pd.dev.xrc
	}
	return &qp.pd.touched
}

// touch records that the QP is about to use memory. It is called before the
// memory is looked up: a region that is closed afterwards waits for the QP.
func (qp *QP) touch() {
	if qp.touched.Load() {
		return
	}
	t := touchedOf(qp)
	t.mu.Lock()
	defer t.mu.Unlock()
	if qp.touched.Load() {
		return
	}
	qp.touchedAt = int32(len(t.list))
	t.list = append(t.list, qp)
	qp.touched.Store(true)
}

// untouch removes a closed QP from its list. QP.touched stays as it is.
func (qp *QP) untouch() {
	t := touchedOf(qp)
	t.mu.Lock()
	defer t.mu.Unlock()
	i, last := int(qp.touchedAt), len(t.list)-1
	if i > last || t.list[i] != qp {
		return
	}
	moved := t.list[last]
	t.list[i], moved.touchedAt = moved, int32(i)
	t.list[last] = nil
	t.list = t.list[:last]
}

// take empties the list and returns the QPs that were in it.
func (t *touchedQPs) take() []*QP {
	t.mu.Lock()
	defer t.mu.Unlock()
	qps := t.list
	t.list = nil
	for _, qp := range qps {
		qp.touched.Store(false)
	}
	return qps
}

// copy returns the QPs in the list.
func (t *touchedQPs) copy() []*QP {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.list)
}

// quiesce returns when no QP uses memory that was removed from the PD before
// the call. It waits until each QP of the PD that has used memory since the
// last call has left the methods of its Handler once: the transport uses the
// slices of View and Place until then. It must not be called with the lock of a
// QP held. QPs of other PDs may wait for their own memory; only XRC receive QPs
// reach memory of other PDs. These stay touched, because calls for other PDs wait for
// them, too.
func (pd *PD) quiesce() {
	pd.quiescing.Lock()
	defer pd.quiescing.Unlock()
	for _, qp := range append(pd.touched.take(), pd.dev.xrc.copy()...) {
		qp.transport.State() // takes the lock under which the QP's Handler runs
	}
}
