package adapter

import (
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/engine"
	"github.com/softmkey/softmkey/operr"
)

// XRCD is an XRC domain: the messages that its receive QPs take name one of its SRQs.
type XRCD struct {
	ctx    *Context
	number uint32
	users  engine.Users

	mu   sync.Mutex // guards srqs
	srqs map[uint32]*SRQ
}

// OpenXRCD makes an XRC domain.
func (c *Context) OpenXRCD() (*XRCD, error) {
	x := &XRCD{ctx: c, number: c.dev.next.xrcd.Add(1), srqs: map[uint32]*SRQ{}}
	if err := enter(c, "open an XRCD", c.xrcds, x); err != nil {
		return nil, err
	}
	c.trace(TraceObject, "xrcd", x.number, "create", nil)
	return x, nil
}

// Number returns the domain's number.
func (x *XRCD) Number() uint32 { return x.number }

// Close frees the domain. EBUSY: something uses it.
func (x *XRCD) Close() error {
	first, err := x.users.Close("close the XRCD")
	if first {
		leave(x.ctx, x.ctx.xrcds, x)
		x.ctx.trace(TraceObject, "xrcd", x.number, "destroy", nil)
	}
	return err
}

// pd returns the protection domain for the receive QPs of the XRC domain, which name none:
// that of its SRQs, whose memory their messages reach. A QP that is made before the SRQs
// gets the oldest PD of the context.
func (x *XRCD) pd(op string) (*PD, error) {
	x.mu.Lock()
	for _, s := range x.srqs {
		x.mu.Unlock()
		return s.attr.PD, nil
	}
	x.mu.Unlock()
	var oldest *PD
	for _, pd := range snapshotValues(x.ctx, x.ctx.pds) {
		if oldest == nil || pd.number < oldest.number {
			oldest = pd
		}
	}
	if oldest == nil {
		return nil, operr.New(op, syscall.EINVAL, "an XRC receive QP in a context without a PD")
	}
	return oldest, nil
}

func (x *XRCD) srq(number uint32) *SRQ {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.srqs[number]
}

func (x *XRCD) add(s *SRQ) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.srqs[s.number] = s
}

func (x *XRCD) remove(s *SRQ) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.srqs, s.number)
}

// NextRecvFrom implements engine.XRCFront.
func (f *front) NextRecvFrom(srqn uint32) *engine.RecvRequest {
	q := (*QP)(f)
	if q.attr.XRCD == nil {
		return nil
	}
	srq := q.attr.XRCD.srq(srqn)
	if srq == nil {
		q.ctx.trace(TraceRefused, "qp", q.number, "receive", operr.New("receive", syscall.EINVAL, "SRQ %#x is not of the XRC domain", srqn))
		return nil
	}
	return q.takeFrom(srq)
}
