package verbs

import (
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/roce"
)

// QPAttr is what a QP is created with (struct ibv_qp_init_attr_ex and
// mlx5dv_qp_init_attr). Zero values mean the defaults given.
type QPAttr struct {
	SendCQ *CQ
	RecvCQ *CQ  // default: SendCQ
	SRQ    *SRQ // receive requests come from here instead of the QP's own queue

	MaxSendWR  int // default 128
	MaxRecvWR  int // default 128
	MaxSendSGE int // default 4
	MaxRecvSGE int // default 4

	// MaxInlineData is the bytes of inline data of a request, and with 4 more the
	// room for a memory key's configuration: 16 bytes for each entry of a layout
	// (and one for an interleaved one), 64 for signature attributes and 64 for
	// crypto attributes. 0 leaves room for a configuration of 4 list or 3
	// interleaved entries without attributes.
	MaxInlineData int

	SignalAll bool // every send request makes a completion

	// SignaturePipelining stops the send queue when a request of its own found a
	// bad signature (MLX5DV_QP_CREATE_SIG_PIPELINING).
	SignaturePipelining bool
}

// QP is a queue pair of a reliable connection. It is safe for concurrent use.
type QP struct {
	pd    *PD
	attr  QPAttr
	rc    *roce.QP
	psn   uint32 // the first to send, if Connect is used
	users users
	rq    recvQueue

	modify sync.Mutex // held by Modify from its checks to its end

	mu       sync.Mutex // guards the following fields; taken inside of rc's lock, never around it
	state    State
	conn     QPModify // the attributes set so far
	sq       sendQueue
	draining bool // in SQD with requests on their way: SQDrained is owed
	notify   bool // SQDrained is wanted
	closed   bool

	resp responder // used under rc's lock only
}

// NewQP creates a QP in RESET.
func (pd *PD) NewQP(attr QPAttr) (*QP, error) {
	const op = "create a QP"
	for _, d := range []struct {
		v          *int
		name       string
		otherwise  int
		limit, min int
	}{
		{&attr.MaxSendWR, "max_send_wr", 128, maxQPWR, 1},
		{&attr.MaxRecvWR, "max_recv_wr", 128, maxQPWR, 1},
		{&attr.MaxSendSGE, "max_send_sge", 4, maxSGE, 1},
		{&attr.MaxRecvSGE, "max_recv_sge", 4, maxSGE, 1},
		{&attr.MaxInlineData, "max_inline_data", 0, maxInline, 0},
	} {
		if *d.v == 0 {
			*d.v = d.otherwise
		}
		if *d.v < d.min || *d.v > d.limit {
			return nil, operr.New(op, syscall.EINVAL, "%s %d: must be %d to %d", d.name, *d.v, d.min, d.limit)
		}
	}
	if attr.SendCQ == nil {
		return nil, operr.New(op, syscall.EINVAL, "no send CQ")
	}
	if attr.RecvCQ == nil {
		attr.RecvCQ = attr.SendCQ
	}
	if attr.SendCQ.dev != pd.dev || attr.RecvCQ.dev != pd.dev {
		return nil, operr.New(op, syscall.EINVAL, "a CQ of another device")
	}
	if attr.SRQ != nil && attr.SRQ.pd.dev != pd.dev {
		return nil, operr.New(op, syscall.EINVAL, "an SRQ of another device")
	}
	qp := &QP{pd: pd, attr: attr, psn: random32() >> 8, rq: recvQueue{maxWR: attr.MaxRecvWR, maxSGE: attr.MaxRecvSGE}}
	qp.resp.qp = qp
	if err := qp.hold(op); err != nil {
		return nil, err
	}
	rc, err := pd.dev.port.NewQP(qp, roce.TypeRC)
	if err != nil {
		qp.release()
		return nil, err
	}
	qp.rc = rc
	pd.dev.mu.Lock()
	pd.dev.qps[qp] = struct{}{}
	pd.dev.mu.Unlock()
	return qp, nil
}

// parents returns what the QP uses: the same object as often as it uses it.
func (qp *QP) parents() []*users {
	p := []*users{&qp.pd.users, &qp.attr.SendCQ.users, &qp.attr.RecvCQ.users}
	if qp.attr.SRQ != nil {
		p = append(p, &qp.attr.SRQ.users)
	}
	return p
}

func (qp *QP) hold(op string) error {
	parents := qp.parents()
	for i, u := range parents {
		if err := u.enter(op, "QP"); err != nil {
			for _, held := range parents[:i] {
				held.leave("QP")
			}
			return err
		}
	}
	return nil
}

func (qp *QP) release() {
	for _, u := range qp.parents() {
		u.leave("QP")
	}
}

// Num returns the QP number.
func (qp *QP) Num() uint32 { return qp.rc.Num() }

// PD returns the protection domain of the QP.
func (qp *QP) PD() *PD { return qp.pd }

// State returns the QP's state.
func (qp *QP) State() State {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	return qp.state
}

// Close destroys the QP in whatever state it is. Requests that have not completed
// never will. With an event of it that was fetched and not acknowledged it is
// EBUSY.
func (qp *QP) Close() error {
	first, err := qp.users.close("close the QP")
	if !first {
		return err
	}
	qp.mu.Lock()
	qp.closed = true
	qp.state = StateReset
	qp.mu.Unlock()
	qp.rc.Close()
	qp.forget()
	qp.pd.dev.mu.Lock()
	delete(qp.pd.dev.qps, qp)
	qp.pd.dev.mu.Unlock()
	qp.release()
	return nil
}

// forget empties the queues without completions, as destroying a QP and taking
// it to RESET do.
func (qp *QP) forget() {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	qp.sq.clear()
	qp.rq.clear()
	qp.draining = false
}

// AH is the address of the peer (struct ibv_ah_attr, as far as RoCEv2 uses it).
type AH struct {
	DGID      GID
	SGIDIndex int    // of this device: 0
	UDPPort   uint16 // of the peer's device; 0 means RoCEv2's 4791
}

// AttrMask says which fields of QPModify are set; the values are those of enum
// ibv_qp_attr_mask.
type AttrMask uint32

// The fields of QPModify.
const (
	AttrState           AttrMask = 1 << 0
	AttrCurState        AttrMask = 1 << 1
	AttrSQDAsyncNotify  AttrMask = 1 << 2
	AttrAccessFlags     AttrMask = 1 << 3
	AttrPKeyIndex       AttrMask = 1 << 4
	AttrPort            AttrMask = 1 << 5
	AttrAV              AttrMask = 1 << 7
	AttrPathMTU         AttrMask = 1 << 8
	AttrTimeout         AttrMask = 1 << 9
	AttrRetryCnt        AttrMask = 1 << 10
	AttrRNRRetry        AttrMask = 1 << 11
	AttrRQPSN           AttrMask = 1 << 12
	AttrMaxRdAtomic     AttrMask = 1 << 13
	AttrMinRNRTimer     AttrMask = 1 << 15
	AttrSQPSN           AttrMask = 1 << 16
	AttrMaxDestRdAtomic AttrMask = 1 << 17
	AttrDestQPN         AttrMask = 1 << 20
)

// QPModify is what Modify sets (struct ibv_qp_attr).
type QPModify struct {
	State           State
	CurState        State
	SQDAsyncNotify  bool
	AccessFlags     Access // what the peer may do through the QP
	PKeyIndex       int    // 0
	Port            int    // 1
	AV              AH
	PathMTU         MTU
	Timeout         uint8 // 4.096 µs · 2^Timeout; 0 waits for ever
	RetryCnt        uint8 // 0 to 7
	RNRRetry        uint8 // 0 to 7, 7 for ever
	MinRNRTimer     uint8 // 0 to 31
	RQPSN           uint32
	SQPSN           uint32
	MaxRdAtomic     int // as requester
	MaxDestRdAtomic int // as responder
	DestQPN         uint32
}

// transition is a row of the table in ibv_modify_qp(3) for RC.
type transition struct {
	from, to           State
	required, optional AttrMask
}

var transitions = []transition{
	{StateReset, StateInit, AttrPKeyIndex | AttrPort | AttrAccessFlags, 0},
	{StateInit, StateInit, 0, AttrPKeyIndex | AttrPort | AttrAccessFlags},
	{StateInit, StateRTR, AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN | AttrMaxDestRdAtomic | AttrMinRNRTimer, AttrPKeyIndex | AttrAccessFlags},
	{StateRTR, StateRTS, AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrSQPSN | AttrMaxRdAtomic, AttrCurState | AttrAccessFlags | AttrMinRNRTimer},
	{StateRTS, StateRTS, 0, AttrCurState | AttrAccessFlags | AttrMinRNRTimer},
	{StateRTS, StateSQD, 0, AttrSQDAsyncNotify},
	{StateSQD, StateRTS, 0, AttrCurState | AttrAccessFlags | AttrMinRNRTimer},
	{StateSQD, StateSQD, 0, AttrSQDAsyncNotify | AttrAccessFlags | AttrMinRNRTimer},
}

// Modify changes the QP's state and attributes (ibv_modify_qp(3)). EINVAL for a
// transition that does not exist, an attribute that it requires or does not
// know, and a value out of range; nothing is changed then.
func (qp *QP) Modify(m QPModify, mask AttrMask) error {
	const op = "modify the QP"
	qp.modify.Lock()
	defer qp.modify.Unlock()
	qp.mu.Lock()
	from, to := qp.state, qp.state
	if mask&AttrCurState != 0 && m.CurState != from {
		qp.mu.Unlock()
		return operr.New(op, syscall.EINVAL, "the QP is in %v, not in %v", from, m.CurState)
	}
	if mask&AttrState != 0 {
		to = m.State
	}
	merged, err := qp.merge(m, mask, from, to)
	qp.mu.Unlock()
	if err != nil {
		return err
	}
	switch to {
	case StateReset:
		qp.setState(StateReset, QPModify{})
		qp.rc.Reset()
		qp.forget()
		qp.resp.release()
		return nil
	case StateErr:
		qp.setState(StateErr, merged)
		qp.rc.Fail()
		qp.flush()
		return nil
	case StateRTR:
		if from == StateInit {
			err = qp.rc.RTR(roce.RecvConfig{
				Peer: merged.AV.addrPort(), DestQPN: merged.DestQPN, MTU: merged.PathMTU.Bytes(), PSN: merged.RQPSN,
				MaxDestRdAtomic: merged.MaxDestRdAtomic, MinRNRTimer: merged.MinRNRTimer,
			})
		}
	case StateRTS:
		if from == StateRTR {
			err = qp.rc.RTS(roce.SendConfig{
				PSN: merged.SQPSN, Timeout: merged.Timeout, RetryCount: merged.RetryCnt, RNRRetry: merged.RNRRetry, MaxRdAtomic: merged.MaxRdAtomic,
			})
		}
	}
	if err == nil && mask&AttrMinRNRTimer != 0 && from >= StateRTR {
		err = qp.rc.SetMinRNRTimer(merged.MinRNRTimer)
	}
	if err != nil {
		return err
	}
	qp.setState(to, merged)
	if to == StateRTS {
		qp.rc.Kick()
	}
	return nil
}

func (qp *QP) setState(to State, conn QPModify) {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	from := qp.state
	qp.state, qp.conn = to, conn
	if to == StateSQD && from != StateSQD {
		qp.notify = conn.SQDAsyncNotify
		qp.drain()
	}
	if to == StateRTS {
		qp.draining = false
	}
}

// merge checks a transition and returns the attributes after it. qp.mu is held.
func (qp *QP) merge(m QPModify, mask AttrMask, from, to State) (QPModify, error) {
	const op = "modify the QP"
	invalid := func(format string, args ...any) (QPModify, error) {
		return QPModify{}, operr.New(op, syscall.EINVAL, format, args...)
	}
	if qp.closed {
		return invalid("it was closed")
	}
	given := mask &^ (AttrState | AttrCurState)
	if to == StateReset || to == StateErr {
		if given != 0 {
			return invalid("attributes %#x on the way to %v, which takes none", uint32(given), to)
		}
		return qp.conn, nil
	}
	var row *transition
	for i := range transitions {
		if transitions[i].from == from && transitions[i].to == to {
			row = &transitions[i]
		}
	}
	switch {
	case row == nil:
		return invalid("there is no way from %v to %v", from, to)
	case row.required&^given != 0:
		return invalid("%v to %v: attributes %#x are missing", from, to, uint32(row.required&^given))
	case given&^(row.required|row.optional) != 0:
		return invalid("%v to %v: attributes %#x cannot be set here", from, to, uint32(given&^(row.required|row.optional)))
	}
	c := qp.conn
	c.SQDAsyncNotify = false
	for _, f := range m.fields() {
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

// field is an attribute of QPModify with its rule.
type field struct {
	bit   AttrMask
	name  string
	value any
	ok    bool
	rule  string
	copy  func(to *QPModify)
}

func (m *QPModify) fields() []field {
	return []field{
		{AttrSQDAsyncNotify, "en_sqd_async_notify", m.SQDAsyncNotify, true, "", func(to *QPModify) { to.SQDAsyncNotify = m.SQDAsyncNotify }},
		{AttrAccessFlags, "access flags", m.AccessFlags, m.AccessFlags&^(LocalWrite|RemoteWrite|RemoteRead|RemoteAtomic) == 0, "bits of 0xf", func(to *QPModify) { to.AccessFlags = m.AccessFlags }},
		{AttrPKeyIndex, "P_Key index", m.PKeyIndex, m.PKeyIndex == 0, "0", func(to *QPModify) { to.PKeyIndex = m.PKeyIndex }},
		{AttrPort, "port", m.Port, m.Port == 1, "1", func(to *QPModify) { to.Port = m.Port }},
		{AttrAV, "address", m.AV.DGID, m.AV.SGIDIndex == 0 && m.AV.DGID != GID{}, "a GID, from the entry 0 of the GID table", func(to *QPModify) { to.AV = m.AV }},
		{AttrPathMTU, "path MTU", m.PathMTU, m.PathMTU.Bytes() != 0, "1 (256 bytes) to 5 (4096 bytes)", func(to *QPModify) { to.PathMTU = m.PathMTU }},
		{AttrTimeout, "timeout", m.Timeout, m.Timeout <= 31, "0 to 31", func(to *QPModify) { to.Timeout = m.Timeout }},
		{AttrRetryCnt, "retry count", m.RetryCnt, m.RetryCnt <= 7, "0 to 7", func(to *QPModify) { to.RetryCnt = m.RetryCnt }},
		{AttrRNRRetry, "RNR retry count", m.RNRRetry, m.RNRRetry <= 7, "0 to 7", func(to *QPModify) { to.RNRRetry = m.RNRRetry }},
		{AttrMinRNRTimer, "minimal RNR timer", m.MinRNRTimer, m.MinRNRTimer <= 31, "0 to 31", func(to *QPModify) { to.MinRNRTimer = m.MinRNRTimer }},
		{AttrRQPSN, "receive PSN", m.RQPSN, m.RQPSN < 1<<24, "of 24 bits", func(to *QPModify) { to.RQPSN = m.RQPSN }},
		{AttrSQPSN, "send PSN", m.SQPSN, m.SQPSN < 1<<24, "of 24 bits", func(to *QPModify) { to.SQPSN = m.SQPSN }},
		{AttrMaxRdAtomic, "max_rd_atomic", m.MaxRdAtomic, m.MaxRdAtomic >= 0 && m.MaxRdAtomic <= maxRdAtomic, "0 to 16", func(to *QPModify) { to.MaxRdAtomic = m.MaxRdAtomic }},
		{AttrMaxDestRdAtomic, "max_dest_rd_atomic", m.MaxDestRdAtomic, m.MaxDestRdAtomic >= 0 && m.MaxDestRdAtomic <= maxRdAtomic, "0 to 16", func(to *QPModify) { to.MaxDestRdAtomic = m.MaxDestRdAtomic }},
		{AttrDestQPN, "destination QP number", m.DestQPN, m.DestQPN < 1<<24, "of 24 bits", func(to *QPModify) { to.DestQPN = m.DestQPN }},
	}
}

// Query returns the attributes set so far and the state.
func (qp *QP) Query() QPModify {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	m := qp.conn
	m.State, m.CurState = qp.state, qp.state
	return m
}
