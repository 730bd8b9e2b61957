package engine

import (
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/rdma"
)

// dctHandler is the handler of a QP of type ibv.DCT.
type dctHandler struct{ *handler }

// Joined implements roce.DCTHandler: it makes the QP that executes the requests of one
// initiator with the rights of the DCT.
func (h dctHandler) Joined(rc *roce.QP) roce.Handler {
	dct := (*QP)(h.handler)
	dct.mu.Lock()
	conn := dct.conn
	dct.mu.Unlock()
	qp := &QP{pd: dct.pd, typ: rdma.RC, front: dct.front.(DCTFront).Joined(), shared: true, dct: dct, transport: rc, state: rdma.StateRTR, conn: conn}
	qp.trace, _ = qp.front.(TraceFront)
	qp.access.Store(uint32(conn.AccessFlags))
	return (*handler)(qp)
}

// Left implements roce.DCTHandler.
func (h dctHandler) Left(of roce.Handler) {
	dct, qp := (*QP)(h.handler), (*QP)(of.(*handler))
	qp.mu.Lock()
	unfinished := qp.drop()
	qp.dropScatter()
	qp.mu.Unlock()
	qp.untouch()
	dct.front.(DCTFront).Left(qp.front, unfinished)
}
