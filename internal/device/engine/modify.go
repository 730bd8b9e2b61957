package engine

import (
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
)

const opModify = "modify the QP"

// transition is a row of a table in ibv_modify_qp(3).
type transition struct {
	from, to           rdma.State
	required, optional rdma.AttrMask
}

// transitions are the tables of the types of QPs.
var transitions = map[rdma.QPType][]transition{
	rdma.RC: connected(
		rdma.AttrMaxDestRdAtomic|rdma.AttrMinRNRTimer,
		rdma.AttrTimeout|rdma.AttrRetryCnt|rdma.AttrRNRRetry|rdma.AttrMaxRdAtomic,
		rdma.AttrAccessFlags|rdma.AttrMinRNRTimer),
	rdma.UC: append(connected(0, 0, rdma.AttrAccessFlags), transition{rdma.StateSQE, rdma.StateRTS, 0, rdma.AttrCurState | rdma.AttrAccessFlags}),
	rdma.XRCSend: connected(0,
		rdma.AttrTimeout|rdma.AttrRetryCnt|rdma.AttrRNRRetry|rdma.AttrMaxRdAtomic,
		rdma.AttrAccessFlags),
	rdma.XRCRecv: connected(
		rdma.AttrMaxDestRdAtomic|rdma.AttrMinRNRTimer,
		rdma.AttrTimeout,
		rdma.AttrAccessFlags|rdma.AttrMinRNRTimer),
	rdma.DCI: {
		{rdma.StateReset, rdma.StateInit, rdma.AttrPKeyIndex | rdma.AttrPort, rdma.AttrAccessFlags},
		{rdma.StateInit, rdma.StateInit, 0, rdma.AttrPKeyIndex | rdma.AttrPort | rdma.AttrAccessFlags},
		{rdma.StateInit, rdma.StateRTR, rdma.AttrPathMTU, rdma.AttrPKeyIndex | rdma.AttrAV},
		{rdma.StateRTR, rdma.StateRTS, rdma.AttrSQPSN | rdma.AttrTimeout | rdma.AttrRetryCnt | rdma.AttrRNRRetry | rdma.AttrMaxRdAtomic, rdma.AttrCurState | rdma.AttrMinRNRTimer},
		{rdma.StateRTS, rdma.StateRTS, 0, rdma.AttrCurState | rdma.AttrMinRNRTimer},
		{rdma.StateRTS, rdma.StateSQD, 0, rdma.AttrSQDAsyncNotify},
		{rdma.StateSQD, rdma.StateRTS, 0, rdma.AttrCurState},
		{rdma.StateSQD, rdma.StateSQD, 0, rdma.AttrSQDAsyncNotify},
	},
	rdma.DCT: {
		{rdma.StateReset, rdma.StateInit, rdma.AttrPKeyIndex | rdma.AttrPort | rdma.AttrAccessFlags, 0},
		{rdma.StateInit, rdma.StateRTR, rdma.AttrPathMTU | rdma.AttrAV | rdma.AttrMinRNRTimer, rdma.AttrPKeyIndex},
	},
	rdma.UD:  datagrams,
	rdma.GSI: datagrams,
}

// datagrams is the table of the types of QPs that send datagrams.
var datagrams = []transition{
	{rdma.StateReset, rdma.StateInit, rdma.AttrPKeyIndex | rdma.AttrPort | rdma.AttrQKey, 0},
	{rdma.StateInit, rdma.StateInit, 0, rdma.AttrPKeyIndex | rdma.AttrPort | rdma.AttrQKey},
	{rdma.StateInit, rdma.StateRTR, 0, rdma.AttrPKeyIndex | rdma.AttrQKey},
	{rdma.StateRTR, rdma.StateRTS, rdma.AttrSQPSN, rdma.AttrCurState | rdma.AttrQKey},
	{rdma.StateRTS, rdma.StateRTS, 0, rdma.AttrCurState | rdma.AttrQKey},
	{rdma.StateRTS, rdma.StateSQD, 0, rdma.AttrSQDAsyncNotify},
	{rdma.StateSQD, rdma.StateRTS, 0, rdma.AttrCurState | rdma.AttrQKey},
	{rdma.StateSQD, rdma.StateSQD, 0, rdma.AttrSQDAsyncNotify | rdma.AttrPKeyIndex | rdma.AttrQKey},
	{rdma.StateSQE, rdma.StateRTS, 0, rdma.AttrCurState | rdma.AttrQKey},
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
func connected(rtr, rts, later rdma.AttrMask) []transition {
	return []transition{
		{rdma.StateReset, rdma.StateInit, rdma.AttrPKeyIndex | rdma.AttrPort | rdma.AttrAccessFlags, 0},
		{rdma.StateInit, rdma.StateInit, 0, rdma.AttrPKeyIndex | rdma.AttrPort | rdma.AttrAccessFlags},
		{rdma.StateInit, rdma.StateRTR, rdma.AttrAV | rdma.AttrPathMTU | rdma.AttrDestQPN | rdma.AttrRQPSN | rtr, rdma.AttrPKeyIndex | rdma.AttrAccessFlags},
		{rdma.StateRTR, rdma.StateRTS, rdma.AttrSQPSN | rts, rdma.AttrCurState | later},
		{rdma.StateRTS, rdma.StateRTS, 0, rdma.AttrCurState | later},
		{rdma.StateRTS, rdma.StateSQD, 0, rdma.AttrSQDAsyncNotify},
		{rdma.StateSQD, rdma.StateRTS, 0, rdma.AttrCurState | later},
		{rdma.StateSQD, rdma.StateSQD, 0, rdma.AttrSQDAsyncNotify | later},
	}
}

// Modify changes the QP's state and attributes (ibv_modify_qp(3)). It returns
// EINVAL, and changes nothing, if the transition does not exist, if an
// attribute is missing or not allowed for it, or if a value is out of range.
func (qp *QP) Modify(m rdma.QPModify, mask rdma.AttrMask) error {
	qp.modify.Lock()
	defer qp.modify.Unlock()
	qp.mu.Lock()
	from, to := qp.state, qp.state
	if mask&rdma.AttrCurState != 0 && m.CurState != from {
		qp.mu.Unlock()
		return failure.New(opModify, syscall.EINVAL, "the QP is in %v, not in %v", from, m.CurState)
	}
	if mask&rdma.AttrState != 0 {
		to = m.State
	}
	merged, err := qp.merge(m, mask, from, to)
	qp.mu.Unlock()
	if err != nil {
		return err
	}
	switch to {
	case rdma.StateReset:
		qp.setState(from, to, rdma.QPModify{})
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
				PSN: merged.SQPSN, Timeout: merged.Timeout, RetryCount: merged.RetryCnt, RNRRetry: merged.RNRRetry, MaxRdAtomic: merged.MaxRdAtomic,
			})
		}
	}
	if err == nil && mask&rdma.AttrQKey != 0 && from >= rdma.StateRTR {
		qp.transport.SetQKey(merged.QKey)
	}
	if err == nil && mask&rdma.AttrMinRNRTimer != 0 && from >= rdma.StateRTR {
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

func (qp *QP) recvConfig(m *rdma.QPModify) roce.RecvConfig {
	if qp.typ.Datagram() {
		return roce.RecvConfig{QKey: m.QKey, MTU: qp.pd.dev.ActiveMTU().Bytes()}
	}
	switch qp.typ {
	case rdma.DCI:
		return roce.RecvConfig{MTU: m.PathMTU.Bytes()}
	case rdma.DCT:
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
func (qp *QP) setState(began, to rdma.State, conn rdma.QPModify) {
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
			qp.cause = failure.New("flush", syscall.ECANCELED, "the peer of QP %#x disconnected, and the program put the QP in ERR", qp.Num())
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
func (qp *QP) merge(m rdma.QPModify, mask rdma.AttrMask, from, to rdma.State) (rdma.QPModify, error) {
	invalid := func(format string, args ...any) (rdma.QPModify, error) {
		return rdma.QPModify{}, failure.New(opModify, syscall.EINVAL, format, args...)
	}
	if qp.closed {
		return invalid("it was closed")
	}
	given := mask &^ (rdma.AttrState | rdma.AttrCurState)
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

// field is an attribute of rdma.QPModify with its rule.
type field struct {
	bit   rdma.AttrMask
	name  string
	value any
	ok    bool
	rule  string
	copy  func(to *rdma.QPModify)
}

const accessQP = rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic

func fields(m *rdma.QPModify) []field {
	return []field{
		{rdma.AttrSQDAsyncNotify, "en_sqd_async_notify", m.SQDAsyncNotify, true, "", func(to *rdma.QPModify) { to.SQDAsyncNotify = m.SQDAsyncNotify }},
		{rdma.AttrAccessFlags, "access flags", m.AccessFlags, m.AccessFlags&^accessQP == 0, "bits of 0xf", func(to *rdma.QPModify) { to.AccessFlags = m.AccessFlags }},
		{rdma.AttrPKeyIndex, "P_Key index", m.PKeyIndex, m.PKeyIndex == 0, "0", func(to *rdma.QPModify) { to.PKeyIndex = m.PKeyIndex }},
		{rdma.AttrPort, "port", m.Port, m.Port == 1, "1", func(to *rdma.QPModify) { to.Port = m.Port }},
		{rdma.AttrQKey, "Q_Key", m.QKey, true, "", func(to *rdma.QPModify) { to.QKey = m.QKey }},
		{rdma.AttrAV, "address", m.AV.DGID, m.AV.DGID != rdma.GID{}, "a GID", func(to *rdma.QPModify) { to.AV = m.AV }},
		{rdma.AttrPathMTU, "path MTU", m.PathMTU, m.PathMTU.Bytes() != 0, "1 (256 bytes) to 5 (4096 bytes)", func(to *rdma.QPModify) { to.PathMTU = m.PathMTU }},
		{rdma.AttrTimeout, "timeout", m.Timeout, m.Timeout <= 31, "0 to 31", func(to *rdma.QPModify) { to.Timeout = m.Timeout }},
		{rdma.AttrRetryCnt, "retry count", m.RetryCnt, m.RetryCnt <= 7, "0 to 7", func(to *rdma.QPModify) { to.RetryCnt = m.RetryCnt }},
		{rdma.AttrRNRRetry, "RNR retry count", m.RNRRetry, m.RNRRetry <= 7, "0 to 7", func(to *rdma.QPModify) { to.RNRRetry = m.RNRRetry }},
		{rdma.AttrMinRNRTimer, "minimal RNR timer", m.MinRNRTimer, m.MinRNRTimer <= 31, "0 to 31", func(to *rdma.QPModify) { to.MinRNRTimer = m.MinRNRTimer }},
		{rdma.AttrRQPSN, "receive PSN", m.RQPSN, m.RQPSN < 1<<24, "of 24 bits", func(to *rdma.QPModify) { to.RQPSN = m.RQPSN }},
		{rdma.AttrSQPSN, "send PSN", m.SQPSN, m.SQPSN < 1<<24, "of 24 bits", func(to *rdma.QPModify) { to.SQPSN = m.SQPSN }},
		{rdma.AttrMaxRdAtomic, "max_rd_atomic", m.MaxRdAtomic, m.MaxRdAtomic >= 0 && m.MaxRdAtomic <= MaxRdAtomic, "0 to 16", func(to *rdma.QPModify) { to.MaxRdAtomic = m.MaxRdAtomic }},
		{rdma.AttrMaxDestRdAtomic, "max_dest_rd_atomic", m.MaxDestRdAtomic, m.MaxDestRdAtomic >= 0 && m.MaxDestRdAtomic <= MaxRdAtomic, "0 to 16", func(to *rdma.QPModify) { to.MaxDestRdAtomic = m.MaxDestRdAtomic }},
		{rdma.AttrDestQPN, "destination QP number", m.DestQPN, m.DestQPN < 1<<24, "of 24 bits", func(to *rdma.QPModify) { to.DestQPN = m.DestQPN }},
	}
}

// addrPort returns the address that packets to the peer go to.
func addrPort(a rdma.AH) netip.AddrPort {
	port := a.UDPPort
	if port == 0 {
		port = roce.UDPPort
	}
	return netip.AddrPortFrom(a.DGID.Addr(), port)
}
