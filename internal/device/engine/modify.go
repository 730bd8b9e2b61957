package engine

import (
	"cmp"
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
)

const opModify = "modify the QP"

// transition is a row of a table in ibv_modify_qp(3).
type transition struct {
	from, to           rdma.State
	required, optional ibv.AttrMask
}

// transitions are the tables of the types of QPs.
var transitions = map[rdma.QPType][]transition{
	rdma.RC: connected(
		ibv.AttrMaxDestRdAtomic|ibv.AttrMinRNRTimer,
		ibv.AttrTimeout|ibv.AttrRetryCnt|ibv.AttrRNRRetry|ibv.AttrMaxRdAtomic,
		ibv.AttrAccessFlags|ibv.AttrMinRNRTimer),
	rdma.UC: append(connected(0, 0, ibv.AttrAccessFlags), transition{rdma.StateSQE, rdma.StateRTS, 0, ibv.AttrCurState | ibv.AttrAccessFlags}),
	ibv.XRCSend: connected(0,
		ibv.AttrTimeout|ibv.AttrRetryCnt|ibv.AttrRNRRetry|ibv.AttrMaxRdAtomic,
		ibv.AttrAccessFlags),
	ibv.XRCRecv: connected(
		ibv.AttrMaxDestRdAtomic|ibv.AttrMinRNRTimer,
		ibv.AttrTimeout,
		ibv.AttrAccessFlags|ibv.AttrMinRNRTimer),
	ibv.DCI: {
		{rdma.StateReset, rdma.StateInit, ibv.AttrPKeyIndex | ibv.AttrPort, ibv.AttrAccessFlags},
		{rdma.StateInit, rdma.StateInit, 0, ibv.AttrPKeyIndex | ibv.AttrPort | ibv.AttrAccessFlags},
		{rdma.StateInit, rdma.StateRTR, ibv.AttrPathMTU, ibv.AttrPKeyIndex | ibv.AttrAV},
		{rdma.StateRTR, rdma.StateRTS, ibv.AttrSQPSN | ibv.AttrTimeout | ibv.AttrRetryCnt | ibv.AttrRNRRetry | ibv.AttrMaxRdAtomic, ibv.AttrCurState | ibv.AttrMinRNRTimer},
		{rdma.StateRTS, rdma.StateRTS, 0, ibv.AttrCurState | ibv.AttrMinRNRTimer},
		{rdma.StateRTS, rdma.StateSQD, 0, ibv.AttrSQDAsyncNotify},
		{rdma.StateSQD, rdma.StateRTS, 0, ibv.AttrCurState},
		{rdma.StateSQD, rdma.StateSQD, 0, ibv.AttrSQDAsyncNotify},
	},
	ibv.DCT: {
		{rdma.StateReset, rdma.StateInit, ibv.AttrPKeyIndex | ibv.AttrPort | ibv.AttrAccessFlags, 0},
		{rdma.StateInit, rdma.StateRTR, ibv.AttrPathMTU | ibv.AttrAV | ibv.AttrMinRNRTimer, ibv.AttrPKeyIndex},
	},
	rdma.UD: datagrams,
	ibv.GSI: datagrams,
}

// datagrams is the table of the types of QPs that send datagrams.
var datagrams = []transition{
	{rdma.StateReset, rdma.StateInit, ibv.AttrPKeyIndex | ibv.AttrPort | ibv.AttrQKey, 0},
	{rdma.StateInit, rdma.StateInit, 0, ibv.AttrPKeyIndex | ibv.AttrPort | ibv.AttrQKey},
	{rdma.StateInit, rdma.StateRTR, 0, ibv.AttrPKeyIndex | ibv.AttrQKey},
	{rdma.StateRTR, rdma.StateRTS, ibv.AttrSQPSN, ibv.AttrCurState | ibv.AttrQKey},
	{rdma.StateRTS, rdma.StateRTS, 0, ibv.AttrCurState | ibv.AttrQKey},
	{rdma.StateRTS, rdma.StateSQD, 0, ibv.AttrSQDAsyncNotify},
	{rdma.StateSQD, rdma.StateRTS, 0, ibv.AttrCurState | ibv.AttrQKey},
	{rdma.StateSQD, rdma.StateSQD, 0, ibv.AttrSQDAsyncNotify | ibv.AttrPKeyIndex | ibv.AttrQKey},
	{rdma.StateSQE, rdma.StateRTS, 0, ibv.AttrCurState | ibv.AttrQKey},
}

// withoutPeer is the table of QPs of local requests.
var withoutPeer = []transition{
	{from: rdma.StateReset, to: rdma.StateInit}, {from: rdma.StateInit, to: rdma.StateRTR}, {from: rdma.StateRTR, to: rdma.StateRTS},
}

// table returns the table of the QP.
func (qp *QP) table() []transition {
	if qp.local {
		return withoutPeer
	}
	return transitions[qp.typ]
}

// connected returns the table of a type that is connected to a peer. rtr are the
// attributes that RTR requires besides the peer's address, rts the attributes that RTS
// requires besides the PSN, and later the attributes that may be changed afterwards.
func connected(rtr, rts, later ibv.AttrMask) []transition {
	return []transition{
		{rdma.StateReset, rdma.StateInit, ibv.AttrPKeyIndex | ibv.AttrPort | ibv.AttrAccessFlags, 0},
		{rdma.StateInit, rdma.StateInit, 0, ibv.AttrPKeyIndex | ibv.AttrPort | ibv.AttrAccessFlags},
		{rdma.StateInit, rdma.StateRTR, ibv.AttrAV | ibv.AttrPathMTU | ibv.AttrDestQPN | ibv.AttrRQPSN | rtr, ibv.AttrPKeyIndex | ibv.AttrAccessFlags},
		{rdma.StateRTR, rdma.StateRTS, ibv.AttrSQPSN | rts, ibv.AttrCurState | later},
		{rdma.StateRTS, rdma.StateRTS, 0, ibv.AttrCurState | later},
		{rdma.StateRTS, rdma.StateSQD, 0, ibv.AttrSQDAsyncNotify},
		{rdma.StateSQD, rdma.StateRTS, 0, ibv.AttrCurState | later},
		{rdma.StateSQD, rdma.StateSQD, 0, ibv.AttrSQDAsyncNotify | later},
	}
}

// Modify changes the QP's state and attributes (ibv_modify_qp(3)). It returns
// EINVAL, and changes nothing, if the transition does not exist, if an
// attribute is missing or not allowed for it, or if a value is out of range.
func (qp *QP) Modify(m ibv.QPModify, mask ibv.AttrMask) error {
	qp.modify.Lock()
	defer qp.modify.Unlock()
	qp.mu.Lock()
	from, to := qp.state, qp.state
	if mask&ibv.AttrCurState != 0 && m.CurState != from {
		qp.mu.Unlock()
		return failure.New(opModify, syscall.EINVAL, "the QP is in %v, not in %v", from, m.CurState)
	}
	if mask&ibv.AttrState != 0 {
		to = m.State
	}
	merged, err := qp.merge(m, mask, from, to)
	qp.mu.Unlock()
	if err != nil {
		return err
	}
	switch to {
	case rdma.StateReset:
		qp.setState(from, to, ibv.QPModify{})
		qp.transport.Reset()
		qp.forget()
		return nil
	case rdma.StateErr:
		qp.setState(from, to, merged)
		qp.transport.Fail()
		qp.mu.Lock()
		defer qp.mu.Unlock()
		qp.flush()
		return nil
	case rdma.StateRTR:
		if from == rdma.StateInit {
			err = qp.transport.RTR(qp.recvConfig(&merged))
		}
	case rdma.StateRTS:
		if from == rdma.StateRTR {
			err = qp.transport.RTS(roce.SendConfig{
				PSN: merged.SQPSN, Timeout: merged.Timeout, RetryCount: merged.RetryCnt, RNRRetry: merged.RNRRetry, MaxRdAtomic: uint8(merged.MaxRdAtomic),
			})
		}
	}
	if err == nil && mask&ibv.AttrQKey != 0 && from >= rdma.StateRTR {
		qp.transport.SetQKey(merged.QKey)
	}
	if err == nil && mask&ibv.AttrMinRNRTimer != 0 && from >= rdma.StateRTR {
		err = qp.transport.SetMinRNRTimer(merged.MinRNRTimer)
	}
	if err != nil {
		return err
	}
	qp.setState(from, to, merged)
	if to == rdma.StateRTS {
		qp.transport.Kick()
	}
	return nil
}

func (qp *QP) recvConfig(m *ibv.QPModify) roce.RecvConfig {
	if qp.typ.Datagram() {
		return roce.RecvConfig{QKey: m.QKey, MTU: qp.pd.dev.ActiveMTU().Bytes()}
	}
	switch qp.typ {
	case ibv.DCI:
		return roce.RecvConfig{MTU: m.PathMTU.Bytes()}
	case ibv.DCT:
		return roce.RecvConfig{MTU: m.PathMTU.Bytes(), MaxDestRdAtomic: MaxRdAtomic, MinRNRTimer: m.MinRNRTimer, Route: packetconn.Route{HopLimit: m.AV.HopLimit}, TrafficClass: m.AV.TrafficClass}
	}
	return roce.RecvConfig{
		Peer: addrPort(m.AV), SGIDIndex: m.AV.SGIDIndex, Route: qp.pd.dev.route(m.AV), TrafficClass: m.AV.TrafficClass, DestQPN: m.DestQPN, MTU: m.PathMTU.Bytes(), PSN: m.RQPSN,
		MaxDestRdAtomic: m.MaxDestRdAtomic, MinRNRTimer: m.MinRNRTimer,
	}
}

// PeerLeft notes that the peer has ended the connection, as a reason for [QP.Modify] to ERR.
func (qp *QP) PeerLeft() {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	qp.peerLeft = true
}

// setState completes a Modify that began in the state began.
func (qp *QP) setState(began, to rdma.State, conn ibv.QPModify) {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	from := qp.state
	if from != began && (from == rdma.StateErr || from == rdma.StateSQE) && to != rdma.StateReset && to != rdma.StateErr {
		return // the QP failed while Modify was running
	}
	qp.state, qp.conn = to, conn
	qp.access.Store(uint32(conn.AccessFlags))
	if to == rdma.StateErr {
		qp.failed.Store(true)
		switch {
		case qp.cause != nil:
		case qp.peerLeft:
			qp.cause = failure.New("flush", syscall.ECANCELED, "the peer of QP %#x has disconnected", qp.Num())
		default:
			qp.cause = failure.New("flush", syscall.ECANCELED, "the program put QP %#x in ERR", qp.Num())
		}
	}
	switch {
	case to == rdma.StateSQD && from != rdma.StateSQD:
		// A bad signature that was found before is reported in any case.
		qp.notify = conn.SQDAsyncNotify || qp.badSignature
		qp.drain()
	case to == rdma.StateRTS:
		qp.notify = false
		if from == rdma.StateSQE {
			qp.failed.Store(false)
			qp.cause = nil
		}
	}
}

// merge checks a transition and returns the attributes after it. The caller
// holds qp.mu.
func (qp *QP) merge(m ibv.QPModify, mask ibv.AttrMask, from, to rdma.State) (ibv.QPModify, error) {
	invalid := func(format string, args ...any) (ibv.QPModify, error) {
		return ibv.QPModify{}, failure.New(opModify, syscall.EINVAL, format, args...)
	}
	if qp.closed {
		return invalid("it was closed")
	}
	given := mask &^ (ibv.AttrState | ibv.AttrCurState)
	if to == rdma.StateReset || to == rdma.StateErr {
		if given != 0 {
			return invalid("attributes %v on the way to %v, which takes none", given, to)
		}
		return qp.conn, nil
	}
	table := qp.table()
	var row *transition
	for i := range table {
		if table[i].from == from && table[i].to == to {
			row = &table[i]
		}
	}
	switch {
	case row == nil:
		return invalid("there is no way from %v to %v", from, to)
	case row.required&^given != 0:
		return invalid("%v to %v: attributes %v are missing", from, to, row.required&^given)
	case given&^(row.required|row.optional) != 0:
		return invalid("%v to %v: attributes %v cannot be set here", from, to, given&^(row.required|row.optional))
	}
	c := qp.conn
	c.SQDAsyncNotify = false
	for _, f := range fields(&m) {
		switch {
		case given&f.bit == 0:
		case !f.ok:
			return invalid("%s %v: must be %s", f.name, f.value, f.rule)
		default:
			f.copy(&c)
		}
	}
	return c, nil
}

// field is an attribute of ibv.QPModify with its rule.
type field struct {
	bit   ibv.AttrMask
	name  string
	value any
	ok    bool
	rule  string
	copy  func(to *ibv.QPModify)
}

const accessQP = rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic

func fields(m *ibv.QPModify) []field {
	return []field{
		{ibv.AttrSQDAsyncNotify, "en_sqd_async_notify", m.SQDAsyncNotify, true, "", func(to *ibv.QPModify) { to.SQDAsyncNotify = m.SQDAsyncNotify }},
		{ibv.AttrAccessFlags, "access flags", m.AccessFlags, m.AccessFlags&^accessQP == 0, "bits of 0xf", func(to *ibv.QPModify) { to.AccessFlags = m.AccessFlags }},
		{ibv.AttrPKeyIndex, "P_Key index", m.PKeyIndex, m.PKeyIndex == 0, "0", func(to *ibv.QPModify) { to.PKeyIndex = m.PKeyIndex }},
		{ibv.AttrPort, "port", m.Port, m.Port == 1, "1", func(to *ibv.QPModify) { to.Port = m.Port }},
		{ibv.AttrQKey, "Q_Key", m.QKey, true, "", func(to *ibv.QPModify) { to.QKey = m.QKey }},
		{ibv.AttrAV, "address", m.AV.DGID, m.AV.DGID != rdma.GID{}, "a GID", func(to *ibv.QPModify) { to.AV = m.AV }},
		{ibv.AttrPathMTU, "path MTU", m.PathMTU, m.PathMTU.Bytes() != 0, "1 (256 bytes) to 5 (4096 bytes)", func(to *ibv.QPModify) { to.PathMTU = m.PathMTU }},
		{ibv.AttrTimeout, "timeout", m.Timeout, m.Timeout <= 31, "0 to 31", func(to *ibv.QPModify) { to.Timeout = m.Timeout }},
		{ibv.AttrRetryCnt, "retry count", m.RetryCnt, m.RetryCnt <= 7, "0 to 7", func(to *ibv.QPModify) { to.RetryCnt = m.RetryCnt }},
		{ibv.AttrRNRRetry, "RNR retry count", m.RNRRetry, m.RNRRetry <= 7, "0 to 7", func(to *ibv.QPModify) { to.RNRRetry = m.RNRRetry }},
		{ibv.AttrMinRNRTimer, "minimal RNR timer", m.MinRNRTimer, m.MinRNRTimer <= 31, "0 to 31", func(to *ibv.QPModify) { to.MinRNRTimer = m.MinRNRTimer }},
		{ibv.AttrRQPSN, "receive PSN", m.RQPSN, m.RQPSN < 1<<24, "of 24 bits", func(to *ibv.QPModify) { to.RQPSN = m.RQPSN }},
		{ibv.AttrSQPSN, "send PSN", m.SQPSN, m.SQPSN < 1<<24, "of 24 bits", func(to *ibv.QPModify) { to.SQPSN = m.SQPSN }},
		{ibv.AttrMaxRdAtomic, "max_rd_atomic", m.MaxRdAtomic, m.MaxRdAtomic >= 0 && m.MaxRdAtomic <= MaxRdAtomic, "0 to 16", func(to *ibv.QPModify) { to.MaxRdAtomic = m.MaxRdAtomic }},
		{ibv.AttrMaxDestRdAtomic, "max_dest_rd_atomic", m.MaxDestRdAtomic, m.MaxDestRdAtomic >= 0 && m.MaxDestRdAtomic <= MaxRdAtomic, "0 to 16", func(to *ibv.QPModify) { to.MaxDestRdAtomic = m.MaxDestRdAtomic }},
		{ibv.AttrDestQPN, "destination QP number", m.DestQPN, m.DestQPN < 1<<24, "of 24 bits", func(to *ibv.QPModify) { to.DestQPN = m.DestQPN }},
	}
}

// addrPort returns the address that packets to the peer go to.
func addrPort(a rdma.AH) netip.AddrPort {
	return netip.AddrPortFrom(a.DGID.Addr(), cmp.Or(a.UDPPort, roce.UDPPort))
}
