package engine

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/rdma"
)

// responder is the receive request that a message of the peer uses at the moment. It is
// used under the transport's lock of the QP, and is the Sink of the message: the memory
// of the request is opened by the first byte. A QP has one only while it receives such a
// message.
type responder struct {
	recv   *RecvRequest
	opened bool
	memory transfer
	done   Completion
}

var responderPool = sync.Pool{New: func() any { return new(responder) }}

func (r *responder) open() error {
	if r.opened {
		return nil
	}
	if err := r.memory.open(r.recv.SGEs, writingAtMost); err != nil {
		return r.memory.fail(nil, err)
	}
	r.opened = true
	return nil
}

// Write implements roce.Sink.
func (r *responder) Write(p []byte) error {
	if err := r.open(); err != nil {
		return err
	}
	return r.memory.Write(p)
}

// Place implements roce.Placer.
func (r *responder) Place(n int) []byte {
	if !r.opened {
		return nil
	}
	return r.memory.Place(n)
}

// Placed implements roce.Placer.
func (r *responder) Placed(n int) error { return r.memory.Placed(n) }

// BeginRecv implements roce.Handler.
func (h *handler) BeginRecv(srq uint32) (roce.Sink, roce.NAK) {
	qp := (*QP)(h)
	qp.mu.Lock()
	var recv *RecvRequest
	if f, ok := qp.front.(XRCFront); ok && qp.typ == ibv.XRCRecv {
		recv = f.NextRecvFrom(srq)
	} else {
		recv = qp.nextRecv()
	}
	qp.mu.Unlock()
	return qp.receive(recv)
}

// nextRecv takes the next receive request. The caller holds qp.mu.
func (qp *QP) nextRecv() *RecvRequest {
	if recv := qp.kept; recv != nil {
		qp.kept = nil
		return recv
	}
	return qp.front.NextRecv()
}

// receive begins a message that uses recv.
func (qp *QP) receive(recv *RecvRequest) (roce.Sink, roce.NAK) {
	switch recv {
	case nil:
		return nil, roce.NAKRNR
	case Gone:
		return nil, roce.NAKGone
	case NoQueue:
		return nil, roce.NAKInvalidRequest
	}
	r := responderPool.Get().(*responder)
	r.recv, r.opened = recv, false
	r.memory.begin(qp, receiver)
	if recv.PD != nil {
		r.memory.pd = recv.PD
	}
	qp.resp = r
	return r, roce.NAKNone
}

// release gives back r, the QP's responder, whose message has ended.
func (r *responder) release() {
	t := &r.memory
	t.qp.resp = nil
	t.qp, t.pd, t.err, t.refused = nil, nil, nil, nil
	r.recv, r.done = nil, Completion{}
	responderPool.Put(r)
}

// ReturnRecv implements roce.Handler.
func (h *handler) ReturnRecv() {
	qp := (*QP)(h)
	qp.mu.Lock()
	defer qp.mu.Unlock()
	r := qp.resp
	r.memory.close()
	if f, ok := qp.front.(SharedFront); ok && qp.shared {
		f.GiveBack(r.recv)
	} else {
		qp.kept = r.recv
	}
	r.release()
}

// Received implements roce.Handler.
func (h *handler) Received(ev roce.RecvEvent) roce.NAK {
	qp := (*QP)(h)
	r := qp.resp
	if r.opened {
		if r.memory.finish() != nil {
			return nakOf(r.memory.err, roce.NAKRemoteOperational)
		}
	}
	qp.mu.Lock()
	defer qp.mu.Unlock()
	defer r.release()
	r.memory.close()
	c := &r.done
	*c = Completion{Op: rdma.OpRecv, ByteLen: ev.Length, SrcQP: qp.conn.DestQPN, Solicited: ev.Solicited, PSN: ev.PSN}
	if ev.Op == ibv.WRWriteImm {
		c.Op = rdma.OpRecvRDMAWithImm
	}
	if ev.HasImm {
		c.Flags, c.Imm = rdma.WithImm, ev.Imm
	}
	if ev.HasInv {
		c.Flags, c.InvKey = rdma.WithInv, ev.InvKey
	}
	if ev.GRH {
		c.Flags |= rdma.WithGRH
	}
	if qp.typ.Datagram() {
		c.SrcQP, c.Src, c.SGIDIndex, c.Priority = ev.SrcQPN, ev.Src.Addr(), ev.SGIDIndex, ev.Route.Priority
	}
	if s := qp.scatter; s.postponed() {
		s.end(r.recv, c)
		return roce.NAKNone
	}
	if !qp.front.RecvDone(r.recv, c) {
		return roce.NAKRemoteOperational
	}
	return roce.NAKNone
}

// Retransmitted implements roce.Handler.
func (h *handler) Retransmitted(psn, count uint32) {
	if qp := (*QP)(h); qp.trace != nil {
		qp.mu.Lock()
		defer qp.mu.Unlock()
		qp.trace.Retransmitted(psn, count)
	}
}

// Stalled implements roce.Handler.
func (h *handler) Stalled(why roce.Stall) {
	if qp := (*QP)(h); qp.trace != nil {
		qp.mu.Lock()
		defer qp.mu.Unlock()
		qp.trace.Stalled(why)
	}
}

// abandon ends the receive request in use, if there is one, with a status. qp.mu is
// held.
func (r *responder) abandon(st rdma.Status, why error) {
	if r == nil {
		return
	}
	if err := r.memory.err; err != nil {
		st, why = localStatus(err), err
	}
	r.memory.close()
	r.done = failedRecv(st, why)
	r.memory.qp.front.RecvDone(r.recv, &r.done)
	r.release()
}

// drop drops the receive request in use, or the one that was kept, without a completion, and
// returns the one in use.
func (qp *QP) drop() (unfinished *RecvRequest) {
	qp.kept = nil
	r := qp.resp
	if r == nil {
		return nil
	}
	unfinished = r.recv
	r.memory.close()
	r.release()
	return unfinished
}

var transferPool = sync.Pool{New: func() any { return new(transfer) }}

// openRemote opens the memory that the peer names, if the QP and every object
// on the way grant the access. Bad blocks up to reported are not reported
// again.
func (qp *QP) openRemote(rkey uint32, va uint64, length uint32, need rdma.Access, reported uint64) (*transfer, roce.NAK) {
	if !qp.grants(need) { // a repeated READ: the right may have gone since
		return nil, roce.NAKInvalidRequest
	}
	t := transferPool.Get().(*transfer)
	t.begin(qp, remote)
	if err := t.openRemote(rkey, va, length, need, reported); err != nil {
		qp.refused = err
		qp.closeRemote(t)
		if errors.Is(err, syscall.EMSGSIZE) {
			return nil, roce.NAKRemoteOperational // a job size that AES-XTS cannot do
		}
		return nil, nakOf(err, roce.NAKRemoteAccess)
	}
	return t, roce.NAKNone
}

// nakOf returns the NAK for an error of memory: otherwise, or NAKGone if the memory's process has
// ended. Its memory goes before its QPs are destroyed, and the peer must not see the difference.
func nakOf(err error, otherwise roce.NAK) roce.NAK {
	if errors.Is(err, syscall.ESRCH) {
		return roce.NAKGone
	}
	return otherwise
}

// closeRemote closes a transfer that openRemote opened.
func (qp *QP) closeRemote(t *transfer) {
	if t.err != nil {
		qp.refused = t.err
	}
	if t.streams > 0 && t.bad() > 0 {
		qp.mu.Lock()
		t.close()
		qp.mu.Unlock()
	} else {
		t.close()
	}
	t.qp, t.pd, t.err = nil, nil, nil
	transferPool.Put(t)
}

// grants reports whether the QP grants the peer the right need.
func (qp *QP) grants(need rdma.Access) bool {
	have := rdma.Access(qp.access.Load())
	if have&need == need {
		return true
	}
	qp.refused = failure.New("grant an access", syscall.EACCES, "QP %#x grants its peer %v, and %v is needed", qp.Num(), have&windowRights, need)
	return false
}

// Permits implements roce.Handler.
func (h *handler) Permits(op ibv.WROp) bool {
	need := rdma.RemoteAtomic
	switch op {
	case ibv.WRWrite:
		need = rdma.RemoteWrite
	case ibv.WRRead:
		need = rdma.RemoteRead
	}
	return (*QP)(h).grants(need)
}

// OpenWrite implements roce.Handler.
func (h *handler) OpenWrite(rkey uint32, va uint64, length uint32) (roce.Sink, roce.NAK) {
	t, nak := (*QP)(h).openRemote(rkey, va, length, rdma.RemoteWrite, 0)
	if nak != roce.NAKNone {
		return nil, nak
	}
	return t, roce.NAKNone
}

// EndWrite implements roce.Handler.
func (h *handler) EndWrite(s roce.Sink, done bool) roce.NAK {
	t := s.(*transfer)
	defer (*QP)(h).closeRemote(t)
	if done && t.finish() != nil {
		if errors.Is(t.err, syscall.EMSGSIZE) {
			return roce.NAKRemoteOperational
		}
		return nakOf(t.err, roce.NAKRemoteAccess)
	}
	return roce.NAKNone
}

// OpenRead implements roce.Handler.
func (h *handler) OpenRead(rkey uint32, va uint64, length uint32, reported uint64) (roce.Source, roce.NAK) {
	t, nak := (*QP)(h).openRemote(rkey, va, length, rdma.RemoteRead, reported)
	if nak != roce.NAKNone {
		return nil, nak
	}
	return t, roce.NAKNone
}

// EndRead implements roce.Handler.
func (h *handler) EndRead(s roce.Source) (reported uint64) {
	t := s.(*transfer)
	reported = t.checked()
	(*QP)(h).closeRemote(t)
	return reported
}

// Atomic implements roce.Handler. The word must lie in one piece of memory. A key that
// was made for signatures or crypto has no memory that could be changed on its own.
func (h *handler) Atomic(a roce.Atomic) (uint64, roce.NAK) {
	qp := (*QP)(h)
	orig, err := qp.atomic(a)
	if err != nil {
		qp.refused = err
		return 0, nakOf(err, roce.NAKRemoteAccess)
	}
	return orig, roce.NAKNone
}

func (qp *QP) atomic(a roce.Atomic) (uint64, error) {
	qp.touch()
	if err := qp.scatter.write(); err != nil { // of earlier messages
		return 0, err
	}
	e, err := qp.pd.lookup(a.RKey)
	if err != nil {
		return 0, err
	}
	if err := e.checkOwner(qp); err != nil {
		return 0, err
	}
	d := qp.pd.dev
	d.atomics.Lock()
	defer d.atomics.Unlock()
	switch {
	case e.region != nil:
		return e.region.atomic(a)
	case e.mkey != nil:
		orig, err := e.mkey.door.Atomic(a.VA, a.Size, a.Next)
		if err != nil {
			return 0, e.mkey.explain(err)
		}
		return orig, nil
	}
	return e.window.door.Atomic(a.VA, a.Size, a.Next)
}

// Invalidate implements roce.Handler.
func (h *handler) Invalidate(rkey uint32) error {
	qp := (*QP)(h)
	e, err := qp.pd.lookup(rkey)
	switch {
	case err != nil:
		return err
	case e.mkey != nil:
		if err := e.mkey.owner.check(qp, rkey); err != nil {
			return err
		}
		return e.mkey.invalidateRemote(invalidation{by: freedByPeer, id: qp.resp.recv.ID, qpn: qp.Num()})
	case e.window != nil:
		return e.window.invalidateRemote(qp)
	default:
		return failure.New("invalidate a key", syscall.EACCES, "key %#x is a region: it cannot be invalidated", rkey)
	}
}

// Established implements roce.Handler.
func (h *handler) Established() {
	qp := (*QP)(h)
	qp.mu.Lock()
	defer qp.mu.Unlock()
	qp.front.Event(rdma.EventCommEst, nil)
}

// Failed implements roce.Handler: the transport has put the QP in ERR.
func (h *handler) Failed(f roce.Failure) {
	qp := (*QP)(h)
	why := f.Err
	h.EndBatch() // the QP may fail in the middle of a batch
	if f.NAK != roce.NAKNone && qp.refused != nil {
		why = qp.refused
	}
	qp.refused = nil
	qp.mu.Lock()
	defer qp.mu.Unlock()
	qp.state = rdma.StateErr
	qp.failed.Store(true)
	if qp.cause == nil {
		qp.cause = &operr.Error{Op: "flush", Errno: syscall.ECANCELED, Reason: failureText(qp.Num(), f, why), Err: why}
	}
	if qp.scatter.abandon(qp) {
		// The message in progress is not the one that failed.
		if r := qp.resp; r != nil {
			r.memory.err = nil
			r.abandon(rdma.StatusWRFlushErr, qp.cause)
		}
	}
	if r := qp.resp; r != nil {
		why = cmp.Or(r.memory.err, why)
		st := f.Status
		if f.NAK == roce.NAKRemoteAccess {
			st = rdma.StatusLocAccessErr // the key is one of this side
		}
		r.abandon(st, why)
	}
	qp.flush()
	switch f.NAK {
	case roce.NAKNone, roce.NAKGone: // no event: a completion reports the failure, or the program has ended (NAKGone)
	case roce.NAKRemoteAccess:
		qp.front.Event(rdma.EventQPAccessErr, why)
	case roce.NAKInvalidRequest:
		qp.front.Event(rdma.EventQPReqErr, why)
	default:
		qp.front.Event(rdma.EventQPFatal, why)
	}
}

func failureText(qpn uint32, f roce.Failure, why error) string {
	text := f.Status.String()
	if f.NAK != roce.NAKNone {
		text = "a request of the peer was refused (" + f.NAK.String() + ")"
	}
	if why != nil {
		text += ": " + why.Error()
	}
	return fmt.Sprintf("QP %#x failed: %s", qpn, text)
}

// flush ends everything in the queues after the transport has stopped. qp.mu is held.
func (qp *QP) flush() {
	qp.scatter.abandon(qp)
	qp.resp.abandon(rdma.StatusWRFlushErr, qp.cause)
	if qp.dct != nil {
		return // a connection of a DCT has no requests of its own; other connections continue
	}
	qp.flushSend()
	if !qp.shared {
		qp.flushRecv()
	} else if !qp.lastWQE {
		qp.lastWQE = true
		qp.front.Event(rdma.EventQPLastWQEReached, nil)
	}
}

// flushRecv completes the receive requests of the QP's own queue. qp.mu is held, and the
// QP is in ERR.
func (qp *QP) flushRecv() {
	if qp.shared || qp.resp != nil {
		return
	}
	for r := qp.nextRecv(); r != nil && r != Gone; r = qp.nextRecv() {
		c := failedRecv(rdma.StatusWRFlushErr, qp.cause)
		qp.front.RecvDone(r, &c)
	}
}
