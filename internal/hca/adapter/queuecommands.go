package adapter

import (
	"math/bits"
	"time"

	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/rdma"
)

// The commands that make and change queues.

// AddEQ makes an event queue known by its number. Completion queues name one; events leave
// through [Events].
func (c *Context) AddEQ(number uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.eqs[number] = struct{}{}
}

// commandCreateCQ executes CREATE_CQ.
func (c *Context) commandCreateCQ(x *prm.Call) error {
	m := prm.ParseCreateCQ(x.In)
	c.mu.Lock()
	_, known := c.eqs[uint32(m.EQN)]
	c.mu.Unlock()
	if !known {
		return missing("EQ", uint32(m.EQN))
	}
	a := CQAttr{Entries: 1 << m.LogSize, CQESize: 64, IgnoreOverrun: m.IgnoreOverrun, Collapsed: m.Collapsed, EQN: uint32(m.EQN), Channel: c.guest, uid: x.UID}
	if m.CQE128 {
		a.CQESize = 128
	}
	var err error
	if a.UAR, err = c.uar(m.UAR); err != nil {
		return err
	}
	if a.umems[0], a.Ring, err = c.ringOf(x, "the ring", m.RingUmemValid, m.RingUmem, m.RingOff, m.Pages(a.CQESize)); err != nil {
		return err
	}
	if a.umems[1], a.DB, err = c.recordOf(x, m.DBUmemValid, m.DBUmem, m.DBAddr); err != nil {
		return err
	}
	q, err := c.CreateCQ(a)
	if err != nil {
		return err
	}
	prm.PutNumber(x.Out, q.number)
	if m.Count != 0 || m.Period != 0 {
		return q.Moderate(m.Count, m.Period)
	}
	return nil
}

var qpServices = map[uint8]rdma.QPType{prm.QPServiceRC: rdma.RC, prm.QPServiceUC: rdma.UC, prm.QPServiceUD: rdma.UD, prm.QPServiceDCI: rdma.DCI, prm.QPServiceGSI: rdma.GSI, prm.QPServiceUMR: rdma.UD, prm.QPServiceXRC: rdma.XRCSend}

// commandCreateQP executes CREATE_QP. The receive queue is the first in the umem, and the
// send queue follows it.
func (c *Context) commandCreateQP(x *prm.Call) error {
	m := prm.ParseQP(x.In)
	typ, known := qpServices[m.Service]
	switch {
	case !known, typ == rdma.DCI && c.guest, typ != rdma.DCI && m.Service >= prm.QPServiceXRC && (!c.guest || x.UID != 0):
		return refuse(prm.CmdBadParam, synNotSupported, "service type %#x: RC (0), UC (1), UD (2) and DCI (5) are supported, and for a guest no DCI, but for its kernel XRC (3), the GSI (8) and UMRs (0xc)", m.Service)
	case m.CounterSet != 0 && !c.guest: // package pci has counter sets
		return missing("counter set", uint32(m.CounterSet))
	case m.TimestampFormat > 1:
		return refuse(prm.CmdBadParam, synNotSupported, "timestamp format %d: 0 (free-running) and 1 (default) are supported", m.TimestampFormat)
	}
	if typ == rdma.XRCSend && m.NoSQ {
		return c.createXRCRecv(x, &m)
	}
	if typ == rdma.XRCSend { // kernels name an SRQ and a CQ that nothing uses
		m.RQType, m.RecvCQ = prm.RQNone, 0
	}
	a := QPAttr{Type: typ, UIDX: m.UserIndex, local: m.Service == prm.QPServiceUMR, pages: m.FastRegister, BlockSelfMcast: m.BlockSelfMcast, uid: x.UID}
	var err error
	if a.local && m.PD == 0 {
		a.PD, err = c.umrPD() // the command that takes the QP to INIT has the PD
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
		if a.umems[0], a.RQ, err = c.ringOf(x, "the queues", m.WQUmemValid, umem, off, m.Pages(recv+uint64(a.SQCount)*prm.BlockSize)); err != nil {
			return err
		}
		a.SQ = a.RQ.From(recv)
		if a.umems[1], a.DB, err = c.recordOf(x, m.DBUmemValid, m.DBUmem, m.DBAddr); err != nil {
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
func (c *Context) createXRCRecv(x *prm.Call, m *prm.QPContext) error {
	domain := lookup(c, c.xrcds, m.XRCD)
	if domain == nil {
		return missing("XRC domain", m.XRCD)
	}
	q, err := c.CreateQP(QPAttr{Type: rdma.XRCRecv, XRCD: domain, UIDX: m.UserIndex, uid: x.UID})
	if err != nil {
		return err
	}
	prm.PutNumber(x.Out, q.number)
	return nil
}

// createRMP executes CREATE_RMP. An RMP is a shared receive queue.
func (c *Context) createRMP(x *prm.Call) error {
	m := prm.ParseCreateRMP(x.In)
	switch {
	case !m.Known:
		return refuse(prm.CmdBadParam, synNotSupported, "a queue that is neither a list (0) nor cyclic (1)")
	case m.LogSize > 15:
		return refuse(prm.CmdBadParam, synValue, "2^%d requests: at most 2^15", m.LogSize)
	}
	a := SRQAttr{RMP: true, Cyclic: m.Cyclic, MaxWR: 1 << m.LogSize, WQEShift: uint32(m.LogStride), Limit: uint32(m.Limit), uid: x.UID}
	var err error
	if a.PD, err = c.pd(x, m.PD); err != nil {
		return err
	}
	if a.umems[0], a.Ring, err = c.ringOf(x, "the ring", m.RingUmemValid, m.RingUmem, m.RingOff, m.Pages()); err != nil {
		return err
	}
	if a.umems[1], a.DB, err = c.recordOf(x, m.DBUmemValid, m.DBUmem, m.DBAddr); err != nil {
		return err
	}
	s, err := c.CreateSRQ(a)
	if err != nil {
		return err
	}
	prm.PutNumber(x.Out, s.number)
	return nil
}

// modifyRMP executes MODIFY_RMP: the limit, below which an event is raised.
func (c *Context) modifyRMP(x *prm.Call, s *SRQ) error {
	limit, ok := prm.ParseModifyRMP(x.In)
	if !ok {
		return refuse(prm.CmdBadParam, synNotSupported, "RMP %#x: only its limit can be changed", s.number)
	}
	return s.Modify(0, limit, SRQLimit)
}

// queryRMP executes QUERY_RMP.
func (c *Context) queryRMP(x *prm.Call, s *SRQ) error {
	limit, failed := s.state()
	prm.PutRMP(x.Out, limit, uint8(bits.TrailingZeros32(s.attr.MaxWR)), uint8(s.shift), failed)
	return nil
}

// armXRCSRQ executes ARM_XRC_SRQ: the limit, below which an event is raised.
func (c *Context) armXRCSRQ(x *prm.Call, s *SRQ) error {
	return s.Modify(0, prm.ParseArmXRCSRQ(x.In), SRQLimit)
}

// queryXRCSRQ executes QUERY_XRC_SRQ.
func (c *Context) queryXRCSRQ(x *prm.Call, s *SRQ) error {
	limit, failed := s.state()
	prm.PutXRCSRQ(x.Out, limit, uint8(bits.TrailingZeros32(s.attr.MaxWR)), uint8(s.shift-4), failed)
	return nil
}

// modifyCQ executes MODIFY_CQ: the moderation of events, or another ring.
func (c *Context) modifyCQ(x *prm.Call, q *CQ) error {
	m := prm.ParseModifyCQ(x.In)
	if x.Mod == prm.CQResize {
		return c.resizeCQ(x, q, m.Fields)
	}
	if x.Mod != 0 || m.Fields&^(prm.CQPeriod|prm.CQCount|prm.CQMode) != 0 {
		return refuse(prm.CmdBadParam, synNotSupported, "modifier %d, fields %#x: only period (%#x), count (%#x) and mode (%#x) can be changed", x.Mod, m.Fields, prm.CQPeriod, prm.CQCount, prm.CQMode)
	}
	if m.Fields&prm.CQMode != 0 && m.Mode > prm.PeriodFromCompletion {
		return refuse(prm.CmdBadParam, synNotSupported, "period mode %d: must be %d (from an event) or %d (from a completion)", m.Mode, prm.PeriodFromEvent, prm.PeriodFromCompletion)
	}
	// A period begins with the first completion that waits, in either mode: with few completions the modes
	// differ by at most a period.
	count, period := q.moderation()
	if m.Fields&prm.CQPeriod != 0 {
		period = m.Period
	}
	if m.Fields&prm.CQCount != 0 {
		count = m.Count
	}
	return q.Moderate(count, period)
}

// resizeCQ executes MODIFY_CQ with the modifier that moves a queue to another ring.
func (c *Context) resizeCQ(x *prm.Call, q *CQ, fields uint32) error {
	const all = prm.CQLogSize | prm.CQPageOffset | prm.CQPageSize
	m := prm.ParseCreateCQ(x.In)
	switch {
	case fields != all:
		return refuse(prm.CmdBadParam, synNotSupported, "fields %#x of a new ring: must be %#x, its size, the size of its pages and the offset in the first", fields, all)
	case m.RingUmemValid:
		return refuse(prm.CmdBadParam, synNotSupported, "CQ %#x: a new ring on a umem is not supported", q.number)
	}
	size := 64
	if m.CQE128 {
		size = 128
	}
	_, ring, err := c.ringOf(x, "the new ring", false, 0, 0, m.Pages(size))
	if err != nil {
		return err
	}
	return q.Resize(ring, 1<<m.LogSize, size)
}

// queryCQ executes QUERY_CQ.
func (c *Context) queryCQ(x *prm.Call, q *CQ) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.look()
	m := prm.CQContext{CQE128: q.cqeSize == 128, IgnoreOverrun: q.attr.IgnoreOverrun, Collapsed: q.attr.Collapsed, LogSize: uint8(bits.TrailingZeros32(q.entries)), EQN: uint8(q.attr.EQN),
		Period: uint16(q.arm.period / time.Microsecond), Count: uint16(q.arm.count)}
	if u := q.attr.UAR; u != nil {
		m.UAR = u.number
	}
	prm.PutCQ(x.Out, m, prm.CQState{
		Failed: q.failed, Armed: q.arm.armed, Consumer: q.consumer, Producer: q.producer,
	})
	return nil
}

// allocXRCD executes ALLOC_XRCD.
func (c *Context) allocXRCD(x *prm.Call) error {
	d, err := c.OpenXRCD()
	if err != nil {
		return err
	}
	prm.PutNumber(x.Out, d.number)
	return enter(c, x.Command.String(), c.xrcds, d.number, d)
}

// createXRCSRQ executes CREATE_XRC_SRQ.
func (c *Context) createXRCSRQ(x *prm.Call) error {
	m := prm.ParseCreateXRCSRQ(x.In)
	a := SRQAttr{Type: srqXRC, XRCD: lookup(c, c.xrcds, m.XRCD), MaxWR: 1 << m.LogSize, WQEShift: uint32(m.LogStride) + 4, UIDX: m.UserIndex, Limit: uint32(m.Limit), uid: x.UID}
	if a.XRCD == nil {
		return missing("XRC domain", m.XRCD)
	}
	var err error
	if a.PD, err = c.pd(x, m.PD); err != nil {
		return err
	}
	if a.CQ, err = c.cq(x, m.CQ); err != nil {
		return err
	}
	if _, a.Ring, err = c.ringOf(x, "the ring", false, 0, 0, m.Pages()); err != nil {
		return err
	}
	if _, a.DB, err = c.recordOf(x, false, 0, m.DBAddr); err != nil {
		return err
	}
	s, err := c.CreateSRQ(a)
	if err != nil {
		return err
	}
	prm.PutNumber(x.Out, s.number)
	return nil
}

// queryQP executes QUERY_QP.
func (c *Context) queryQP(x *prm.Call, q *QP) error {
	ctx := q.context()
	prm.PutQP(x.Out, &ctx)
	return nil
}

// attachMCG executes ATTACH_TO_MCG.
func (c *Context) attachMCG(x *prm.Call, q *QP) error {
	return q.AttachMcast(prm.GroupOf(x.In))
}

// detachMCG executes DETACH_FROM_MCG.
func (c *Context) detachMCG(x *prm.Call, q *QP) error {
	return q.DetachMcast(prm.GroupOf(x.In))
}

// changeQP executes the commands that change a QP's state.
func (c *Context) changeQP(x *prm.Call, q *QP) error {
	m := prm.ParseQP(x.In)
	from := func(want rdma.State) error {
		if s := q.eng.State(); s != want {
			return refuse(prm.CmdBadParam, synState, "QP %#x is in %v, not in %v", q.number, s, want)
		}
		return nil
	}
	a := QPModify{AccessFlags: uint32(accessOfQP(&m))}
	mask := rdma.AttrState
	connected := !q.attr.Type.Datagram()
	if m.CounterSet != 0 && !c.guest {
		return missing("counter set", uint32(m.CounterSet))
	}
	if q.attr.local {
		return c.changeLocalQP(x, q, from)
	}
	var err error
	switch x.Command {
	case prm.CmdRst2InitQP:
		err = from(rdma.StateReset)
		a.State, a.Port, a.QKey = rdma.StateInit, m.Path.Port, m.QKey
		mask |= rdma.AttrPKeyIndex | rdma.AttrPort
		if connected {
			mask |= rdma.AttrAccessFlags
		} else {
			mask |= rdma.AttrQKey
		}
	case prm.CmdInit2InitQP:
		if err := q.eng.SetPipelining(m.DrainSigErr); err != nil || !c.guest {
			return err
		}
		err = from(rdma.StateInit)
		a.State = rdma.StateInit
		mask |= q.optional(&a, &m)
	case prm.CmdRTS2RTSQP, prm.CmdSQErr2RTSQP, prm.CmdSQD2RTSQP:
		err = from(map[prm.Command]rdma.State{prm.CmdRTS2RTSQP: rdma.StateRTS, prm.CmdSQErr2RTSQP: rdma.StateSQE, prm.CmdSQD2RTSQP: rdma.StateSQD}[x.Command])
		a.State = rdma.StateRTS
		mask |= q.optional(&a, &m)
	case prm.CmdInit2RTRQP:
		err = from(rdma.StateInit)
		mask |= q.toRTR(&a, &m) | q.optional(&a, &m)
	case prm.CmdRTR2RTSQP:
		err = from(rdma.StateRTR)
		a.State, a.SQPSN = rdma.StateRTS, m.NextSendPSN
		mask |= rdma.AttrSQPSN | q.optional(&a, &m)
		switch q.attr.Type {
		case rdma.XRCRecv:
			a.Timeout = m.Path.AckTimeout
			mask |= rdma.AttrTimeout
		case rdma.RC, rdma.XRCSend, rdma.DCI:
			a.Timeout, a.RetryCnt, a.RNRRetry, a.MaxRdAtomic = m.Path.AckTimeout, m.RetryCount, m.RNRRetry, inFlight(m.LogSRAMax)
			mask |= rdma.AttrTimeout | rdma.AttrRetryCnt | rdma.AttrRNRRetry | rdma.AttrMaxRdAtomic
		}
	case prm.CmdToErrQP:
		a.State = rdma.StateErr
	case prm.CmdToRstQP:
		a.State = rdma.StateReset
	}
	if err != nil {
		return err
	}
	return q.modify(&a, mask)
}

// changeLocalQP is changeQP for a QP without a peer.
func (c *Context) changeLocalQP(x *prm.Call, q *QP, from func(rdma.State) error) (err error) {
	to := rdma.StateReset
	switch x.Command {
	case prm.CmdRst2InitQP:
		to, err = rdma.StateInit, from(rdma.StateReset)
	case prm.CmdInit2InitQP:
		return from(rdma.StateInit)
	case prm.CmdInit2RTRQP:
		to, err = rdma.StateRTR, from(rdma.StateInit)
	case prm.CmdRTR2RTSQP:
		to, err = rdma.StateRTS, from(rdma.StateRTR)
	case prm.CmdToErrQP:
		to = rdma.StateErr
	}
	if err != nil {
		return err
	}
	return q.modify(&QPModify{State: to}, rdma.AttrState)
}

// umrPD returns the PD of QPs for UMRs, which is no object of the driver's.
func (c *Context) umrPD() (*PD, error) {
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
func (q *QP) toRTR(a *QPModify, m *prm.QPContext) (mask rdma.AttrMask) {
	a.State = rdma.StateRTR
	switch {
	case q.attr.Type.Datagram():
		return 0
	case q.attr.Type == rdma.DCI: // each request has its own peer
		a.PathMTU = m.MTU
		return rdma.AttrPathMTU
	}
	a.PathMTU, a.DestQPN, a.RQPSN = m.MTU, m.RemoteQPN, m.NextRecvPSN
	a.AV = AHAttr{
		IsGlobal: true, DGID: m.Path.GID, SGIDIndex: m.Path.SourceIndex, HopLimit: m.Path.HopLimit, TrafficClass: m.Path.TrafficClass, FlowLabel: m.Path.FlowLabel,
		SL: m.Path.Priority, MAC: m.Path.MAC, UDPPort: m.Path.UDPPort,
	}
	a.loopback, a.exact = m.Path.ForceLoopback, true
	mask = rdma.AttrAV | rdma.AttrPathMTU | rdma.AttrDestQPN | rdma.AttrRQPSN
	if q.attr.Type == rdma.RC || q.attr.Type == rdma.XRCRecv {
		a.MaxDestRdAtomic, a.MinRNRTimer = inFlight(m.LogRRAMax), m.MinRNRNAK
		mask |= rdma.AttrMaxDestRdAtomic | rdma.AttrMinRNRTimer
	}
	return mask
}

// inFlight returns the number of READs and atomics in flight, of which a context has the
// logarithm.
func inFlight(log uint8) uint8 { return uint8(1) << min(log, 7) }

// optional takes the attributes that opt_param_mask selects: the peer's rights, of which those
// that are not selected stay, the Q_Key and the RNR timer.
func (q *QP) optional(a *QPModify, m *prm.QPContext) (mask rdma.AttrMask) {
	if q.attr.Type.Datagram() {
		if m.OptParams&prm.OptQKey != 0 {
			a.QKey, mask = m.QKey, rdma.AttrQKey
		}
		return mask
	}
	if m.OptParams&prm.OptRNRTimer != 0 && (q.attr.Type == rdma.RC || q.attr.Type == rdma.XRCRecv) && a.State != rdma.StateInit {
		a.MinRNRTimer, mask = m.MinRNRNAK, rdma.AttrMinRNRTimer
	}
	if m.OptParams&(prm.OptRead|prm.OptWrite|prm.OptAtomic) == 0 || q.attr.Type == rdma.DCI {
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
	return mask | rdma.AttrAccessFlags
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
