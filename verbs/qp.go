package verbs

import (
	"cmp"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/random"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// QPAttr describes a QP (struct ibv_qp_init_attr_ex and mlx5dv_qp_init_attr). Zero values
// mean the defaults given.
type QPAttr struct {
	Type rdma.QPType // RC, UC or UD; default RC

	SendCQ *CQ
	RecvCQ *CQ  // default: SendCQ
	SRQ    *SRQ // receive requests come from here instead of the QP's own queue

	MaxSendWR  int // default 128
	MaxRecvWR  int // default 128
	MaxSendSGE int // default 4
	MaxRecvSGE int // default 4

	// MaxInlineData is the largest number of inline bytes of a request. A
	// memory key's configuration may use 4 bytes more. It needs 16 bytes for
	// each entry of a layout (plus 16 for an interleaved layout), 64 for
	// signature attributes and 64 for crypto attributes. The default is 256, which is enough for
	// 8 list entries with both attributes.
	MaxInlineData int

	SignalAll bool // every send request gives a completion

	// SignaturePipelining stops the send queue when one of its requests found a bad
	// signature (MLX5DV_QP_CREATE_SIG_PIPELINING).
	SignaturePipelining bool
}

// QP is a queue pair. It is safe for concurrent use.
type QP struct {
	pd    *PD
	attr  QPAttr
	e     *engine.QP
	psn   atomic.Uint32 // first PSN to send, if Connect is used: another one after each RESET
	users engine.Users
	rq    recvQueue // guarded by the engine's lock of the QP
	sq    sendQueue // guarded by the engine's lock of the QP
}

// choosePSN chooses the first PSN of the next connection at random. A packet of the connection before that arrives late
// then has a PSN that the new one does not expect.
func (qp *QP) choosePSN() { qp.psn.Store(random.Uint32() >> 8) }

// NewQP creates a QP in RESET.
func (pd *PD) NewQP(attr QPAttr) (*QP, error) {
	const op = "create the QP"
	for _, d := range []struct {
		v          *int
		name       string
		otherwise  int
		limit, min int
	}{
		{&attr.MaxSendWR, "max_send_wr", 128, engine.MaxQPWR, 1},
		{&attr.MaxRecvWR, "max_recv_wr", 128, engine.MaxQPWR, 1},
		{&attr.MaxSendSGE, "max_send_sge", 4, engine.MaxSGE, 1},
		{&attr.MaxRecvSGE, "max_recv_sge", 4, engine.MaxSGE, 1},
		{&attr.MaxInlineData, "max_inline_data", 256, engine.MaxInline, 0},
	} {
		if *d.v = cmp.Or(*d.v, d.otherwise); *d.v < d.min || *d.v > d.limit {
			return nil, failure.New(op, syscall.EINVAL, "%s %d: must be %d to %d", d.name, *d.v, d.min, d.limit)
		}
	}
	if attr.SendCQ == nil {
		return nil, failure.New(op, syscall.EINVAL, "no send CQ")
	}
	attr.RecvCQ = cmp.Or(attr.RecvCQ, attr.SendCQ)
	if attr.SendCQ.dev != pd.dev || attr.RecvCQ.dev != pd.dev {
		return nil, failure.New(op, syscall.EINVAL, "a CQ of another device")
	}
	if attr.SRQ != nil && attr.SRQ.pd.dev != pd.dev {
		return nil, failure.New(op, syscall.EINVAL, "an SRQ of another device")
	}
	switch attr.Type {
	case 0:
		attr.Type = rdma.RC
	case rdma.RC, rdma.UC, rdma.UD:
	default:
		return nil, failure.New(op, syscall.EOPNOTSUPP, "type %v: must be RC, UC or UD", attr.Type)
	}
	qp := &QP{pd: pd, attr: attr, rq: recvQueue{maxWR: attr.MaxRecvWR, maxSGE: attr.MaxRecvSGE}}
	qp.choosePSN()
	if err := qp.hold(op); err != nil {
		return nil, err
	}
	var err error
	qp.e, err = pd.e.NewQP(engine.QPAttr{Type: attr.Type, Front: (*front)(qp), SignaturePipelining: attr.SignaturePipelining, SharedRecv: attr.SRQ != nil})
	if err != nil {
		qp.release()
		return nil, err
	}
	return qp, nil
}

// parents returns the queues that the QP uses. A CQ that serves both directions
// appears twice.
func (qp *QP) parents() []*engine.Users {
	p := []*engine.Users{&qp.attr.SendCQ.users, &qp.attr.RecvCQ.users}
	if qp.attr.SRQ != nil {
		p = append(p, &qp.attr.SRQ.users)
	}
	return p
}

func (qp *QP) hold(op string) error {
	parents := qp.parents()
	for i, u := range parents {
		if err := u.Enter(op, engine.UserQP); err != nil {
			for _, held := range parents[:i] {
				held.Leave(engine.UserQP)
			}
			return err
		}
	}
	return nil
}

// qpsOf returns the numbers of the QPs that use a queue.
func (d *Device) qpsOf(queue *engine.Users) []uint32 {
	return d.e.QPs(func(e *engine.QP) bool {
		f, ok := e.Front().(*front)
		return ok && slices.Contains((*QP)(f).parents(), queue)
	})
}

func (qp *QP) release() {
	for _, u := range qp.parents() {
		u.Leave(engine.UserQP)
	}
}

// Num returns the QP number.
func (qp *QP) Num() uint32 { return ask(qp.e, (*engine.QP).Num) }

// PD returns the protection domain of the QP.
func (qp *QP) PD() *PD { return qp.pd }

// Type returns the transport service of the QP.
func (qp *QP) Type() rdma.QPType { return ask(qp.e, (*engine.QP).Type) }

// State returns the QP's state.
func (qp *QP) State() rdma.State { return ask(qp.e, (*engine.QP).State) }

// SetState moves the QP to a state that it enters without attributes (ibv_modify_qp(3)): RESET and ERR from any
// state, SQD from RTS, and RTS from SQD and SQE. It returns EINVAL, and changes nothing, if the transition does not exist.
// [QP.Connect], [QP.Bind] and package cm make the others.
func (qp *QP) SetState(to rdma.State) error {
	return qp.modify(ibv.QPModify{State: to}, 0)
}

// modify changes the state of the QP and the attributes in mask.
func (qp *QP) modify(m ibv.QPModify, mask ibv.AttrMask) error {
	return do(qp.e, "modify a QP", "PD.NewQP", func(e *engine.QP) error { return e.Modify(m, mask|ibv.AttrState) })
}

// AttachMulticast lets a UD QP receive the datagrams that are sent to a multicast group
// (ibv_attach_mcast(3)), with the QP's Q_Key. RoCEv2 carries them by IP multicast, so the
// GID of a group is that of an IP address, such as [rdma.GIDOf] of 239.1.2.3, of the device's
// address family. Datagrams reach the group through an [AddressHandle] with this GID and
// with [rdma.MulticastQPN]; their time to live is 1, so they stay on the network of the device.
// Members on the same host, including the sending QP, receive them too. AttachMulticast
// returns EINVAL for another type of QP and for a GID that is not a group's, and EOPNOTSUPP
// if the device's network has no multicast.
func (qp *QP) AttachMulticast(gid rdma.GID) error {
	return do(qp.e, "attach to a multicast group", "PD.NewQP", func(e *engine.QP) error { return e.AttachMulticast(gid.Addr()) })
}

// DetachMulticast takes the QP out of a group (ibv_detach_mcast(3)). It returns EINVAL if
// the QP is not in the group.
func (qp *QP) DetachMulticast(gid rdma.GID) error {
	return do(qp.e, "detach from a multicast group", "PD.NewQP", func(e *engine.QP) error { return e.DetachMulticast(gid.Addr()) })
}

// Close destroys the QP, in any state. Outstanding requests never complete. Close returns
// EBUSY if an event of the QP was fetched but not acknowledged.
func (qp *QP) Close() error {
	if qp.e == nil {
		return failure.Zero("close a QP", "PD.NewQP")
	}
	first, err := qp.users.Close("close the QP", nil)
	if !first {
		return err
	}
	if err := qp.e.Close(); err != nil {
		return err
	}
	qp.release()
	return nil
}
