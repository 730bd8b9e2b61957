package engine

import (
	"slices"
	"sync"

	"github.com/softmkey/softmkey/internal/ibv"
)

// Closing a region or key must wait until no QP uses its memory. Waiting for all QPs would take long if there are many
// thousands, most of them idle. Therefore a QP adds itself to a list before it looks memory up (touch). quiesce empties
// the list and waits only for the QPs that were in it.

// touchedQPs lists the QPs of a PD that may have used its memory since the last call of quiesce. The device has another
// list, for XRC receive QPs, which use the memory of several PDs.
type touchedQPs struct {
	mu   sync.Mutex
	list []*QP // QP.touchedIndex is the index of a QP
}

// touchedOf returns the list that the QP belongs to.
func touchedOf(qp *QP) *touchedQPs {
	if qp.typ == ibv.XRCRecv {
		return &qp.pd.dev.xrc
	}
	return &qp.pd.touched
}

// touch adds the QP to its list, unless it is there. It is called before the QP looks memory up. So if the QP finds a
// region or key that is then closed, quiesce finds the QP in the list.
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
	qp.touchedIndex = int32(len(t.list))
	t.list = append(t.list, qp)
	qp.touched.Store(true)
}

// untouch removes a closed QP from its list, if it is there. The QP is not added again: if it was in the list,
// QP.touched stays set, and otherwise its closed transport calls no more methods that would touch it.
func (qp *QP) untouch() {
	t := touchedOf(qp)
	t.mu.Lock()
	defer t.mu.Unlock()
	i, last := int(qp.touchedIndex), len(t.list)-1
	if i > last || t.list[i] != qp {
		return
	}
	moved := t.list[last]
	t.list[i], moved.touchedIndex = moved, int32(i)
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

// quiesce waits until no QP uses memory that was removed from the PD before the call. A QP uses memory that it has looked
// up only within methods of its roce.Handler, which run under the transport's lock of the QP. So quiesce takes and
// releases that lock of each QP in the list. The caller must hold no such lock.
//
// Only one call for a PD runs at a time (pd.quiescing). Otherwise a second call would find the list empty and return,
// although the first one still waits for the QPs that were in the list.
//
// XRC receive QPs stay in their list, because calls for other PDs must wait for them, too.
func (pd *PD) quiesce() {
	pd.quiescing.Lock()
	defer pd.quiescing.Unlock()
	for _, qp := range append(pd.touched.take(), pd.dev.xrc.snapshot()...) {
		qp.transport.State() // takes the lock and releases it
	}
}
