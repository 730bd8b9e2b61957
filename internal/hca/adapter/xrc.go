package adapter

import (
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// XRCD is an XRC domain: the messages that its receive QPs take name one of its SRQs. It
// belongs to the device: QPs and SRQs of several contexts may be in one domain. A message
// then reaches the SRQ, the CQ and the memory of another context than the QP's.
type XRCD struct {
	object
	users engine.Users

	mu   sync.Mutex // guards the following fields
	srqs map[uint32]*SRQ
	qps  map[uint32]*QP // receive QPs
}

// OpenXRCD makes an XRC domain. It outlives the context.
func (c *Context) OpenXRCD() (*XRCD, error) {
	x := &XRCD{object: object{ctx: c, number: newNumber(c, &c.dev.next.xrcd, c.xrcds)}, srqs: map[uint32]*SRQ{}, qps: map[uint32]*QP{}}
	c.trace(TraceObject, "xrcd", x.number, "create", nil)
	return x, nil
}

// Close frees the domain. EBUSY: something uses it.
func (x *XRCD) Close() error {
	first, err := x.users.Close("close the XRCD", x.ctx.qpsOf)
	if first {
		leave(x.ctx, x.ctx.xrcds, x.number)
		x.ctx.trace(TraceObject, "xrcd", x.number, "destroy", nil)
	}
	return err
}

// pd returns the protection domain for a receive QP of a context, which names none: RDMA
// requests of the peer reach the regions of this PD. It is that of the context's SRQs in
// the domain, or the oldest one of the context if there are none yet. SENDs use the PD of
// their SRQ.
func (x *XRCD) pd(op string, c *Context) (*PD, error) {
	x.mu.Lock()
	for _, s := range x.srqs {
		if s.ctx == c {
			x.mu.Unlock()
			return s.attr.PD, nil
		}
	}
	x.mu.Unlock()
	var oldest *PD
	for _, pd := range snapshot(c, c.pds) {
		if oldest == nil || pd.number < oldest.number {
			oldest = pd
		}
	}
	if oldest == nil {
		return nil, failure.New(op, syscall.EINVAL, "an XRC receive QP in a context without a PD")
	}
	return oldest, nil
}

func (x *XRCD) srq(number uint32) *SRQ {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.srqs[number]
}

// locked changes the objects of the domain.
func (x *XRCD) locked(change func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	change()
}

// open opens a receive QP of the domain again.
func (x *XRCD) open(qpn uint32) *QP {
	x.mu.Lock()
	defer x.mu.Unlock()
	q := x.qps[qpn]
	if q != nil {
		q.opens++
	}
	return q
}

// closed removes one of the opens of a receive QP and reports whether others are left.
func (x *XRCD) closed(q *QP) (left bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if q.opens > 0 {
		q.opens--
		return true
	}
	delete(x.qps, q.number)
	return false
}

// NextRecvFrom implements engine.XRCFront.
func (f *front) NextRecvFrom(srqn uint32) *engine.RecvRequest {
	q := (*QP)(f)
	if q.attr.XRCD == nil {
		return nil
	}
	srq := q.attr.XRCD.srq(srqn)
	if srq == nil {
		q.ctx.trace(TraceRefused, "qp", q.number, "receive", failure.New("receive", syscall.EINVAL, "SRQ %#x is not of the XRC domain", srqn))
		return engine.NoQueue
	}
	return q.takeFrom(srq)
}

// allocXRCD executes ALLOC_XRCD.
func allocXRCD(c *Context, x *prm.Call) error {
	d, err := c.OpenXRCD()
	if err != nil {
		return err
	}
	prm.PutNumber(x.Out, d.number)
	return enter(c, x.Command.String(), c.xrcds, d.number, d)
}

// createXRCSRQ executes CREATE_XRC_SRQ.
func createXRCSRQ(c *Context, x *prm.Call) error {
	m := prm.ParseCreateXRCSRQ(x.In)
	a := SRQAttr{Type: srqXRC, XRCD: lookup(c, c.xrcds, m.XRCD), MaxWR: 1 << m.LogSize, WQEShift: uint32(m.LogStride) + 4, UIDX: m.UserIndex, Limit: uint32(m.Limit), uid: x.UID}
	if a.XRCD == nil {
		return missing("XRC domain", m.XRCD)
	}
	var err error
	if a.CQ, err = c.cq(x, m.CQ); err != nil {
		return err
	}
	if _, a.Ring, err = ringOf(c, x, "the ring", false, 0, 0, m.Pages()); err != nil {
		return err
	}
	if _, a.DB, err = recordOf(c, x, false, 0, m.DBAddr); err != nil {
		return err
	}
	return c.createSRQ(x, a, m.PD)
}
