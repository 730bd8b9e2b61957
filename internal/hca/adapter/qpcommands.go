package adapter

import (
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// The commands that make and change queue pairs.

var qpServices = map[uint8]rdma.QPType{prm.QPServiceRC: rdma.RC, prm.QPServiceUC: rdma.UC, prm.QPServiceUD: rdma.UD, prm.QPServiceDCI: ibv.DCI, prm.QPServiceGSI: ibv.GSI, prm.QPServiceUMR: rdma.UD, prm.QPServiceXRC: ibv.XRCSend}

// createQP executes CREATE_QP. The receive queue is the first in the umem, and the
// send queue follows it.
func createQP(c *Context, x *prm.Call) error {
	m := prm.ParseQP(x.In)
	typ, known := qpServices[m.Service]
	switch {
	case !known, typ == ibv.DCI && c.guest, typ != ibv.DCI && m.Service >= prm.QPServiceXRC && (!c.guest || x.UID != 0):
		return refuse(prm.CmdBadParam, synNotSupported, "service type %#x: RC (0), UC (1), UD (2) and DCI (5) are supported, and for a guest no DCI, but for its kernel XRC (3), the GSI (8) and UMRs (0xc)", m.Service)
	case m.CounterSet != 0 && !c.guest: // package pci has counter sets
		return missing("counter set", uint32(m.CounterSet))
	case m.TimestampFormat > 1:
		return refuse(prm.CmdBadParam, synNotSupported, "timestamp format %d: 0 (free-running) and 1 (default) are supported", m.TimestampFormat)
	}
	if typ == ibv.XRCSend && m.NoSQ {
		return createXRCRecv(c, x, &m)
	}
	if typ == ibv.XRCSend { // kernels name an SRQ and a CQ that nothing uses
		m.RQType, m.RecvCQ = prm.RQNone, 0
	}
	a := QPAttr{Type: typ, UIDX: m.UserIndex, local: m.Service == prm.QPServiceUMR, pages: m.FastRegister, BlockSelfMcast: m.BlockSelfMcast, uid: x.UID}
	var err error
	if a.local && m.PD == 0 {
		a.PD, err = umrPD(c) // the command that takes the QP to INIT has the PD
	} else {
		a.PD, err = c.pd(x, m.PD)
	}
	if err != nil {
		return err
	}
	if a.UAR, err = c.uar(m.UAR); err != nil {
		return err
	}
	if a.SendCQ, err = c.cq(x, m.SendCQ); err != nil {
		return err
	}
	switch m.RQType {
	case prm.RQOwn:
		a.RQCount, a.RQShift = 1<<m.LogRQSize, uint32(m.LogRQStride)+4
	case prm.RQSRQ:
		if a.SRQ, err = find(c, x, "SRQ or RMP", c.srqs, m.SRQN); err != nil {
			return err
		}
	case prm.RQNone:
	default:
		return refuse(prm.CmdBadParam, synValue, "rq_type %d: must be 0 (own), 1 (SRQ or RMP) or 3 (none)", m.RQType)
	}
	if m.RQType != prm.RQNone || m.RecvCQ != 0 {
		if a.RecvCQ, err = c.cq(x, m.RecvCQ); err != nil {
			return err
		}
	}
	if !m.NoSQ {
		a.SQCount = 1 << m.LogSQSize
	}
	if a.SQCount != 0 || a.RQCount != 0 {
		umem, off := prm.QueueOf(x.In)
		recv := uint64(a.RQCount) << a.RQShift
		if a.umems[0], a.RQ, err = ringOf(c, x, "the queues", m.WQUmemValid, umem, off, m.Pages(recv+uint64(a.SQCount)*prm.BlockSize)); err != nil {
			return err
		}
		a.SQ = a.RQ.From(recv)
		if a.umems[1], a.DB, err = recordOf(c, x, m.DBUmemValid, m.DBUmem, m.DBAddr); err != nil {
			return err
		}
	}
	q, err := c.CreateQP(a)
	if err != nil {
		return err
	}
	prm.PutNumber(x.Out, q.number)
	return q.eng.SetPipelining(m.DrainSigErr)
}

// createXRCRecv executes CREATE_QP for the end of XRC that receives. Its requests and completions
// are those of the domain's SRQs.
func createXRCRecv(c *Context, x *prm.Call, m *prm.QPContext) error {
	domain := lookup(c, c.xrcds, m.XRCD)
	if domain == nil {
		return missing("XRC domain", m.XRCD)
	}
	q, err := c.CreateQP(QPAttr{Type: ibv.XRCRecv, XRCD: domain, UIDX: m.UserIndex, uid: x.UID})
	return answer(x, q, err)
}

// queryQP executes QUERY_QP.
func (q *QP) queryQP(x *prm.Call) error {
	ctx := q.context()
	prm.PutQP(x.Out, &ctx)
	return nil
}

// attachMCG executes ATTACH_TO_MCG.
func (q *QP) attachMCG(x *prm.Call) error {
	return q.AttachMcast(prm.GroupOf(x.In))
}

// detachMCG executes DETACH_FROM_MCG.
func (q *QP) detachMCG(x *prm.Call) error {
	return q.DetachMcast(prm.GroupOf(x.In))
}

// transitions are the states from which and to which commands take a QP.
var transitions = map[prm.Command]struct{ from, to rdma.State }{
	prm.CmdRst2InitQP:  {rdma.StateReset, rdma.StateInit},
	prm.CmdInit2InitQP: {rdma.StateInit, rdma.StateInit},
	prm.CmdInit2RTRQP:  {rdma.StateInit, rdma.StateRTR},
	prm.CmdRTR2RTSQP:   {rdma.StateRTR, rdma.StateRTS},
	prm.CmdRTS2RTSQP:   {rdma.StateRTS, rdma.StateRTS},
	prm.CmdSQErr2RTSQP: {rdma.StateSQE, rdma.StateRTS},
	prm.CmdSQD2RTSQP:   {rdma.StateSQD, rdma.StateRTS},
	prm.CmdToErrQP:     {anyState, rdma.StateErr},
	prm.CmdToRstQP:     {anyState, rdma.StateReset},
}

const anyState = rdma.State(0xff)

// changeQP executes the commands that change a QP's state.
func (q *QP) changeQP(x *prm.Call) error {
	m := prm.ParseQP(x.In)
	if m.CounterSet != 0 && !q.ctx.guest {
		return missing("counter set", uint32(m.CounterSet))
	}
	if x.Command == prm.CmdInit2InitQP && !q.attr.local {
		if err := q.eng.SetPipelining(m.DrainSigErr); err != nil || !q.ctx.guest {
			return err
		}
	}
	t := transitions[x.Command]
	if s := q.eng.State(); t.from != anyState && s != t.from {
		return refuse(prm.CmdBadParam, synState, "QP %#x is in %v, not in %v", q.number, s, t.from)
	}
	a, mask := QPModify{State: t.to}, ibv.AttrState
	if q.attr.local { // it has no peer, and nothing of one
		if t.from == t.to {
			return nil
		}
		return q.modify(&a, mask)
	}
	a.AccessFlags = uint32(accessOfQP(&m))
	switch x.Command {
	case prm.CmdRst2InitQP:
		a.Port, a.QKey = m.Path.Port, m.QKey
		mask |= ibv.AttrPKeyIndex | ibv.AttrPort
		if q.attr.Type.Datagram() {
			mask |= ibv.AttrQKey
		} else {
			mask |= ibv.AttrAccessFlags
		}
	case prm.CmdInit2InitQP, prm.CmdRTS2RTSQP, prm.CmdSQErr2RTSQP, prm.CmdSQD2RTSQP:
		mask |= q.optional(&a, &m)
	case prm.CmdInit2RTRQP:
		mask |= q.toRTR(&a, &m) | q.optional(&a, &m)
	case prm.CmdRTR2RTSQP:
		a.SQPSN = m.NextSendPSN
		mask |= ibv.AttrSQPSN | q.optional(&a, &m)
		switch q.attr.Type {
		case ibv.XRCRecv:
			a.Timeout = m.Path.AckTimeout
			mask |= ibv.AttrTimeout
		case rdma.RC, ibv.XRCSend, ibv.DCI:
			a.Timeout, a.RetryCnt, a.RNRRetry, a.MaxRdAtomic = m.Path.AckTimeout, m.RetryCount, m.RNRRetry, inFlight(m.LogSRAMax)
			mask |= ibv.AttrTimeout | ibv.AttrRetryCnt | ibv.AttrRNRRetry | ibv.AttrMaxRdAtomic
		}
	}
	return q.modify(&a, mask)
}

// umrPD returns the PD of QPs for UMRs, which is no object of the driver's.
func umrPD(c *Context) (*PD, error) {
	c.mu.Lock()
	pd := c.ownPD
	c.mu.Unlock()
	if pd != nil {
		return pd, nil
	}
	pd, err := c.AllocPD()
	if err == nil {
		c.mu.Lock()
		c.ownPD = pd
		c.mu.Unlock()
	}
	return pd, err
}

// toRTR takes the attributes of INIT2RTR_QP.
func (q *QP) toRTR(a *QPModify, m *prm.QPContext) (mask ibv.AttrMask) {
	switch {
	case q.attr.Type.Datagram():
		return 0
	case q.attr.Type == ibv.DCI: // each request has its own peer
		a.PathMTU = m.MTU
		return ibv.AttrPathMTU
	}
	a.PathMTU, a.DestQPN, a.RQPSN = m.MTU, m.RemoteQPN, m.NextRecvPSN
	a.AV = AHAttr{
		IsGlobal: true, DGID: m.Path.GID, SGIDIndex: m.Path.SourceIndex, HopLimit: m.Path.HopLimit, TrafficClass: m.Path.TrafficClass, FlowLabel: m.Path.FlowLabel,
		SL: m.Path.Priority, MAC: m.Path.MAC, UDPPort: m.Path.UDPPort,
	}
	a.loopback, a.exact = m.Path.ForceLoopback, true
	mask = ibv.AttrAV | ibv.AttrPathMTU | ibv.AttrDestQPN | ibv.AttrRQPSN
	if q.attr.Type == rdma.RC || q.attr.Type == ibv.XRCRecv {
		a.MaxDestRdAtomic, a.MinRNRTimer = inFlight(m.LogRRAMax), m.MinRNRNAK
		mask |= ibv.AttrMaxDestRdAtomic | ibv.AttrMinRNRTimer
	}
	return mask
}

// inFlight returns the number of READs and atomics in flight, of which a context has the
// logarithm.
func inFlight(log uint8) uint8 { return uint8(1) << min(log, 7) }

// optional takes the attributes that opt_param_mask selects: the peer's rights, of which those
// that are not selected stay, the Q_Key and the RNR timer.
func (q *QP) optional(a *QPModify, m *prm.QPContext) (mask ibv.AttrMask) {
	if q.attr.Type.Datagram() {
		if m.OptParams&prm.OptQKey != 0 {
			a.QKey, mask = m.QKey, ibv.AttrQKey
		}
		return mask
	}
	if m.OptParams&prm.OptRNRTimer != 0 && (q.attr.Type == rdma.RC || q.attr.Type == ibv.XRCRecv) && a.State != rdma.StateInit {
		a.MinRNRTimer, mask = m.MinRNRNAK, ibv.AttrMinRNRTimer
	}
	if m.OptParams&(prm.OptRead|prm.OptWrite|prm.OptAtomic) == 0 || q.attr.Type == ibv.DCI {
		return mask
	}
	access := rdma.Access(q.eng.Query().AccessFlags)
	for _, r := range []struct {
		opt    uint32
		on     bool
		access rdma.Access
	}{{prm.OptRead, m.Read, rdma.RemoteRead}, {prm.OptWrite, m.Write, rdma.RemoteWrite}, {prm.OptAtomic, m.Atomic, rdma.RemoteAtomic}} {
		if m.OptParams&r.opt != 0 {
			access &^= r.access
			if r.on {
				access |= r.access
			}
		}
	}
	a.AccessFlags = uint32(access)
	return mask | ibv.AttrAccessFlags
}

// accessOfQP returns the peer's rights of a context.
func accessOfQP(m *prm.QPContext) (a rdma.Access) {
	if m.Read {
		a |= rdma.RemoteRead
	}
	if m.Write {
		a |= rdma.RemoteWrite
	}
	if m.Atomic {
		a |= rdma.RemoteAtomic
	}
	return a
}

// qpStates are the states of QUERY_QP; a queue in SQD may still be on its way there.
var qpStates = map[rdma.State]uint8{
	rdma.StateReset: prm.QPStateReset, rdma.StateInit: prm.QPStateInit, rdma.StateRTR: prm.QPStateRTR, rdma.StateRTS: prm.QPStateRTS,
	rdma.StateSQE: prm.QPStateSQErr, rdma.StateErr: prm.QPStateErr, rdma.StateSQD: prm.QPStateSQDrained,
}

// context returns the contents of QUERY_QP. A program that asks has seen why the QP
// stopped.
func (q *QP) context() prm.QPContext {
	m := q.eng.Query()
	q.eng.Lock()
	defer q.eng.Unlock()
	ctx := prm.QPContext{
		State: qpStates[q.eng.StateLocked()], PD: q.attr.PD.number, UserIndex: q.attr.UIDX, RemoteQPN: m.DestQPN, MTU: uint8(m.PathMTU), LogMsgMax: logMaxMsg(), NextSendPSN: m.SQPSN, NextRecvPSN: m.RQPSN,
		SendCQ: numberOf(q.attr.SendCQ), RecvCQ: numberOf(q.attr.RecvCQ), QKey: m.QKey, RetryCount: m.RetryCnt, RNRRetry: m.RNRRetry, MinRNRNAK: m.MinRNRTimer,
		Read: m.AccessFlags&rdma.RemoteRead != 0, Write: m.AccessFlags&rdma.RemoteWrite != 0, Atomic: m.AccessFlags&rdma.RemoteAtomic != 0,
		HWSendBlock: q.sq.next, SWSendBlock: q.sq.rung, HWRecv: uint32(q.rq.next), SWRecv: uint32(q.rq.rung),
		Path: prm.Path{Port: 1, AckTimeout: m.Timeout, SourceIndex: q.sq.av.SGIDIndex, HopLimit: q.sq.av.HopLimit, TrafficClass: q.sq.av.TrafficClass, FlowLabel: q.sq.av.FlowLabel, GID: q.sq.av.DGID, MAC: q.sq.av.MAC, UDPPort: q.sq.av.UDPPort, Priority: q.sq.av.SL},
	}
	if q.eng.StateLocked() == rdma.StateSQD && q.sq.inFlight() > 0 {
		ctx.State = prm.QPStateSQDrain
	}
	return ctx
}
