package adapter

import (
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// dctFront is a DCT as the engine sees it: an engine.DCTFront.
type dctFront struct{ *front }

// initiatorFront is the QP that executes the requests of one initiator of a DCT. It looks like
// the DCT: its completions have the DCT's number and go to the DCT's CQ.
type initiatorFront struct{ *front }

// Joined implements engine.DCTFront.
func (f dctFront) Joined() engine.Front {
	dct := (*QP)(f.front)
	return initiatorFront{(*front)(&QP{object: object{ctx: dct.ctx, number: dct.number}, attr: dct.attr})}
}

// Left implements engine.DCTFront.
func (f dctFront) Left(_ engine.Front, unfinished *engine.RecvRequest) {
	if unfinished != nil {
		slot := unfinished.Slot.(*recvSlot)
		slot.srq.giveBack(slot)
	}
}

// PeekSend implements engine.Front: there is no send queue.
func (f initiatorFront) PeekSend() *engine.SendRequest { return nil }

// Reset implements engine.Front.
func (f initiatorFront) Reset() {}

// Event implements engine.Front. The DCT goes on when a connection to it fails, so the program
// gets no event.
func (f initiatorFront) Event(t rdma.EventType, err error) {
	q := (*QP)(f.front)
	q.ctx.trace(TraceEvent, "qp", q.number, t.String(), err)
}

// createDCT executes CREATE_DCT, which takes the DCT to RTR.
func createDCT(c *Context, x *prm.Call) error {
	m := prm.ParseDCT(x.In)
	if m.Offload != 0 {
		return refuse(prm.CmdBadParam, synNotSupported, "offload type %d: tag matching is not supported", m.Offload)
	}
	a := QPAttr{Type: ibv.DCT, UIDX: m.UserIndex, DCKey: m.Key, uid: x.UID}
	var err error
	if a.PD, err = c.pd(x, m.PD); err != nil {
		return err
	}
	if a.RecvCQ, err = c.cq(x, m.CQ); err != nil {
		return err
	}
	if a.SRQ, err = find(c, x, "SRQ or RMP", c.srqs, m.SRQ); err != nil {
		return err
	}
	q, err := c.CreateQP(a)
	if err != nil {
		return err
	}
	rights := accessOfQP(&prm.QPContext{Read: m.Read, Write: m.Write, Atomic: m.Atomic})
	err = q.Modify(&QPModify{State: rdma.StateInit, Port: 1, AccessFlags: uint32(rights)}, ibv.AttrState|ibv.AttrPKeyIndex|ibv.AttrPort|ibv.AttrAccessFlags)
	if err == nil {
		err = q.Modify(&QPModify{State: rdma.StateRTR, PathMTU: m.MTU, MinRNRTimer: m.MinRNRNAK, loopback: true},
			ibv.AttrState|ibv.AttrPathMTU|ibv.AttrMinRNRTimer|ibv.AttrAV)
	}
	if err != nil {
		q.Close()
		return err
	}
	prm.PutNumber(x.Out, q.number)
	return nil
}

// dct returns the DCT with a number.
func (c *Context) dct(x *prm.Call, number uint32) (*QP, error) {
	q, err := c.qp(x, number)
	if err == nil && q.attr.Type != ibv.DCT {
		err = refuse(prm.CmdBadResource, synNoObject, "QP %#x is no DCT", q.number)
	}
	return q, err
}

// drainDCT executes DRAIN_DCT: the connections to the DCT end.
func (q *QP) drainDCT(x *prm.Call) error {
	return q.modify(&QPModify{State: rdma.StateErr}, ibv.AttrState)
}

// queryDCT executes QUERY_DCT.
func (q *QP) queryDCT(x *prm.Call) error {
	m := q.eng.Query()
	d := prm.DCT{
		UserIndex: q.attr.UIDX, CQ: numberOf(q.attr.RecvCQ), SRQ: q.attr.SRQ.number, PD: q.attr.PD.number, MinRNRNAK: m.MinRNRTimer, Key: q.attr.DCKey,
		MTU: uint8(m.PathMTU), Port: 1, Read: m.AccessFlags&rdma.RemoteRead != 0, Write: m.AccessFlags&rdma.RemoteWrite != 0, Atomic: m.AccessFlags&rdma.RemoteAtomic != 0,
	}
	if m.State == rdma.StateErr {
		d.State = prm.DCTStateDrained
	}
	prm.PutDCT(x.Out, &d)
	return nil
}
