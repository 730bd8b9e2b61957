package engine

import (
	"slices"
	"sync"

	"github.com/softmkey/softmkey/rdma"
)

// A region or key that is closed must wait until no QP uses its memory. To wait for all QPs would take long where there
// are many thousands, most of them idle. So a QP enters a list before it looks memory up, and quiesce waits for the
// QPs in the list and empties it.

// touchedQPs is the list of a PD: the QPs that may have used its memory since the last quiesce. The device has one more, for
// XRC receive QPs, which use the memory of many PDs.
type touchedQPs struct {
	mu   sync.Mutex
	list []*QP // QP.touchedAt is a QP's index
}

// touchedOf returns the list that the QP belongs to.
func touchedOf(qp *QP) *touchedQPs {
	if qp.typ == rdma.XRCRecv {
		return &qp.pd.dev.xrc
	}
	return &qp.pd.touched
}

// touch puts the QP into its list, unless it is there. It is called before memory is looked up, so that whoever closes
// what the QP finds sees the QP in the list.
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

// untouch removes a closed QP from its list, if it is there. QP.touched stays as it is, so that touch does not put the
// QP back.
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

// snapshot returns the QPs in the list, and leaves them there.
func (t *touchedQPs) snapshot() []*QP {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.list)
}

// quiesce returns when no QP uses memory that was removed from the PD before the call. A QP uses what it has looked up
// until the transport has left the methods of its Handler, which run under the transport's lock of the QP: so quiesce
// takes the lock of each QP in the list once. It must not be called with the lock of a QP held.
//
// Calls for one PD wait for each other (quiescing): a second one finds the list empty while the first one still waits for
// the QPs that were in it.
//
// The XRC receive QPs stay in their list: a call for another PD must wait for them, too.
func (pd *PD) quiesce() {
	pd.quiescing.Lock()
	defer pd.quiescing.Unlock()
	for _, qp := range append(pd.touched.take(), pd.dev.xrc.snapshot()...) {
		qp.transport.State() // takes the lock and releases it
	}
}
