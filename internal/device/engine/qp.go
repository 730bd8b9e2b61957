package engine

import (
	"cmp"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/rdma"
)

// QPAttr describes a QP.
type QPAttr struct {
	Type  rdma.QPType // default: rdma.RC
	Front Front

	// SignaturePipelining stops the send queue when a request of this side found a bad
	// signature (MLX5DV_QP_CREATE_SIG_PIPELINING): before the next request if that was a SEND
	// or WRITE, and before the next fence if it was a READ.
	SignaturePipelining bool

	// BlockOwnMulticast drops the multicasts that the QP sends itself.
	BlockOwnMulticast bool

	// Local makes a QP of local requests: it has no peer, needs no attributes on its way to
	// RTS, and configures the keys of all protection domains. Type is not used.
	Local bool

	// DCKey is the access key of a DCT.
	DCKey uint64

	// SharedRecv says that receive requests come from a shared receive queue: they are
	// not flushed when the QP goes to ERR, and EventQPLastWQEReached is raised instead.
	SharedRecv bool
}

// QP is a queue pair. It is safe for concurrent use.
type QP struct {
	pd        *PD
	front     Front
	trace     TraceFront // front, if it is one
	dct       *QP        // the DCT, if the QP is a connection of one of its initiators; else nil
	transport *roce.QP
	typ       rdma.QPType
	local     bool // QPAttr.Local
	shared    bool

	access       atomic.Uint32 // conn.AccessFlags, for the responder
	touched      atomic.Bool   // the QP is in touchedQPs.list, or was when it was closed
	touchedIndex int32         // index in touchedQPs.list, whose lock guards it
	failed       atomic.Bool   // the QP was in ERR since the last RESET

	modify sync.Mutex // held by Modify from its checks to its end

	mu         sync.Mutex   // guards the following fields; taken after the transport's lock, never before it
	badKey     uint32       // if badSignature: the key that had it
	conn       ibv.QPModify // the attributes set so far
	begun      sendQueue
	cause      error // reason why the QP is in ERR, for flushed requests
	peerLeft   bool  // the peer has ended the connection
	state      rdma.State
	pipelining bool
	closed     bool
	lastWQE    bool // EventQPLastWQEReached was raised

	// notify is set while SQDrained is owed: it is raised once nothing is in
	// flight. drained is set from then until the program has seen the event.
	// badSignature is set from the moment that a request found a bad signature
	// until the program has seen the event in SQD, and holds fences.
	notify       bool
	drained      bool
	badSignature bool

	// The following fields are used only under the transport's lock. An idle QP has
	// neither a responder nor a scatter, because there can be many thousands.
	resp    *responder   // nil: no receive request is in use
	kept    *RecvRequest // receive request of a dropped message, for the next message (UC)
	scatter *scatter     // nil: nothing waits for the end of a batch
	refused error        // reason why the last request of the peer was refused
}

// handler implements roce.Handler for a QP, without adding methods to QP.
type handler QP

// NewQP creates a QP in RESET.
func (pd *PD) NewQP(a QPAttr) (*QP, error) {
	const op = "create the QP"
	a.Type = cmp.Or(a.Type, rdma.RC)
	if a.Local {
		a.Type = rdma.UD
	}
	if transitions[a.Type] == nil {
		return nil, failure.New(op, syscall.EOPNOTSUPP, "type %v: the device has RC, UC, UD, XRC_SEND, XRC_RECV, DCI and DCT", a.Type)
	}
	qp := &QP{pd: pd, typ: a.Type, local: a.Local, front: a.Front, pipelining: a.SignaturePipelining, shared: a.SharedRecv}
	qp.trace, _ = a.Front.(TraceFront)
	h := roce.Handler((*handler)(qp))
	switch a.Type {
	case ibv.DCT:
		if _, ok := a.Front.(DCTFront); !ok {
			return nil, failure.New(op, syscall.EINVAL, "the front of a QP of type %v makes no fronts for initiators", a.Type)
		}
		h = dctHandler{(*handler)(qp)}
	case ibv.XRCRecv:
		if _, ok := a.Front.(XRCFront); !ok {
			return nil, failure.New(op, syscall.EINVAL, "the front of a QP of type %v gives no requests of shared receive queues by number", a.Type)
		}
	}
	if err := pd.users.Enter(op, UserQP); err != nil {
		return nil, err
	}
	rc, err := pd.dev.port.NewQP(h, a.Type)
	if err != nil {
		pd.users.Leave(UserQP)
		return nil, err
	}
	if a.BlockOwnMulticast {
		rc.BlockOwnMulticast()
	}
	rc.SetDCKey(a.DCKey)
	qp.transport = rc
	d := pd.dev
	d.mu.Lock()
	d.qps[qp.Num()] = qp
	d.mu.Unlock()
	return qp, nil
}

// Isolate gives the QP a goroutine of its own: copies from and to its memory
// may then block without blocking other QPs of the device. See
// [roce.QP.Isolate].
func (qp *QP) Isolate() { qp.transport.Isolate() }

// CountIn is [roce.QP.CountIn].
func (qp *QP) CountIn(s *roce.CounterSet) { qp.transport.CountIn(s) }

// Num returns the QP number.
func (qp *QP) Num() uint32 { return qp.transport.Num() }

// PD returns the protection domain of the QP.
func (qp *QP) PD() *PD { return qp.pd }

// Front returns the front that the QP was made with.
func (qp *QP) Front() Front { return qp.front }

// Type returns the transport service of the QP.
func (qp *QP) Type() rdma.QPType { return qp.typ }

// Lock locks the QP: no Front method is called until Unlock. A front may guard its queues
// that way. With the lock held, only Num, StateLocked, Wake and Unlock may be called.
func (qp *QP) Lock() { qp.mu.Lock() }

// Unlock unlocks the QP.
func (qp *QP) Unlock() { qp.mu.Unlock() }

// StateLocked returns the state of the QP. The QP's lock must be held.
func (qp *QP) StateLocked() rdma.State { return qp.state }

// State returns the state of the QP.
func (qp *QP) State() rdma.State {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	return qp.state
}

// Query returns the attributes set so far and the state.
func (qp *QP) Query() ibv.QPModify {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	m := qp.conn
	m.State, m.CurState = qp.state, qp.state
	return m
}

// Post rings the doorbell of the send queue: in RTS requests are begun and sent, in ERR and SQE
// they are flushed, and in other states they wait.
func (qp *QP) Post() {
	qp.transport.Kick()
	if qp.failed.Load() {
		qp.mu.Lock()
		defer qp.mu.Unlock()
		if qp.state == rdma.StateErr || qp.state == rdma.StateSQE {
			qp.flushSend()
		}
	}
}

// PostRecv rings the doorbell of the receive queue: in ERR its requests are flushed, and in
// other states they wait for messages.
func (qp *QP) PostRecv() {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.state == rdma.StateErr {
		qp.flushRecv()
	}
}

// Wake is Post without waiting: the transport's goroutine does the work. It may be called
// from Front methods and with locks held.
func (qp *QP) Wake() { qp.transport.Wake() }

// SawDrained records that the program has seen EventSQDrained, or has asked for the requests
// that wait in SQD. Until then, a bad signature holds the next fence.
func (qp *QP) SawDrained() {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	qp.drained = false
	if qp.state == rdma.StateSQD && !qp.notify {
		qp.badSignature = false
	}
}

// SetPipelining changes QPAttr.SignaturePipelining. The QP must be in RESET or INIT.
func (qp *QP) SetPipelining(on bool) error {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.state > rdma.StateInit {
		return failure.New(opModify, syscall.EINVAL, "signature pipelining in %v: it is set in RESET or INIT", qp.state)
	}
	qp.pipelining = on
	return nil
}

// AttachMulticast lets a UD QP receive the datagrams that are sent to a multicast group; see
// [roce.QP.AttachMulticast].
func (qp *QP) AttachMulticast(group netip.Addr) error { return qp.transport.AttachMulticast(group) }

// DetachMulticast takes a UD QP out of a multicast group.
func (qp *QP) DetachMulticast(group netip.Addr) error { return qp.transport.DetachMulticast(group) }

// Close destroys the QP in any state. Requests that have not completed never
// will.
func (qp *QP) Close() error {
	qp.modify.Lock()
	defer qp.modify.Unlock()
	qp.mu.Lock()
	closed := qp.closed
	qp.closed = true
	qp.state = rdma.StateReset
	qp.mu.Unlock()
	if closed {
		return nil
	}
	qp.transport.Close()
	qp.forget()
	d := qp.pd.dev
	d.mu.Lock()
	delete(d.qps, qp.Num())
	d.mu.Unlock()
	qp.untouch()
	qp.pd.users.Leave(UserQP)
	return nil
}

// forget drops all requests without completions, when the QP is destroyed or
// moved to RESET. The transport has stopped.
func (qp *QP) forget() {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	qp.state = rdma.StateReset // the QP may have failed after Modify or Close had set the state
	qp.drop()
	qp.dropScatter()
	qp.begun = sendQueue{}
	qp.failed.Store(false)
	qp.notify, qp.drained, qp.badSignature, qp.lastWQE = false, false, false, false
	qp.cause, qp.peerLeft, qp.refused = nil, false, nil
	qp.front.Reset()
}
