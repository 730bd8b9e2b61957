package engine

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/fifo"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/rdma"
)

// execution is the engine's part of a send request.
type execution struct {
	work    roce.Work
	memory  transfer
	awaited bool // a fence after the request waits for it
	refused rdma.Status
	err     error // why the request failed before it reached the transport
	orig    [8]byte
	done    Completion // the argument of SendDone, which must not escape
}

// Refuse makes the request fail in the order of the queue, with a status and the reason in
// words, because the front could not decode it.
func (r *SendRequest) Refuse(st rdma.Status, err error) { r.exec.refused, r.exec.err = st, err }

// Reset clears the request for another use, and keeps the capacity of its
// lists.
func (r *SendRequest) Reset() {
	pieces, list := r.exec.memory.pieces[:0], r.exec.memory.list[:0]
	*r = SendRequest{SGEs: r.SGEs[:0], Inline: r.Inline[:0]}
	r.exec.memory.pieces, r.exec.memory.list = pieces, list
}

// Bytes returns the length of the request's data.
func (r *SendRequest) Bytes() (n uint64) {
	if r.HasInline {
		n = uint64(len(r.Inline))
	}
	for i := range r.SGEs {
		n += uint64(r.SGEs[i].Length)
	}
	return n
}

// sendQueue holds the requests that were begun and have not ended, in order.
type sendQueue struct {
	reqs    fifo.Queue[*SendRequest]
	awaited int // number of them for which a fence waits
}

func (q *sendQueue) len() int { return q.reqs.Len() }

func (q *sendQueue) push(r *SendRequest) {
	q.reqs.Push(r)
	if r.exec.awaited {
		q.awaited++
	}
}

// pop removes and returns the oldest request.
func (q *sendQueue) pop() *SendRequest {
	r := q.reqs.Pop()
	if r.exec.awaited {
		q.awaited--
	}
	return r
}

// Next implements roce.Handler: it begins the next request. Configurations take
// effect, fences wait and memory is looked up in this order.
func (h *handler) Next() *roce.Work {
	qp := (*QP)(h)
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.state != rdma.StateRTS {
		return nil
	}
	r := qp.front.PeekSend()
	if r == nil {
		return nil
	}
	if r.Flags&ibv.SendFence != 0 {
		if qp.begun.awaited > 0 {
			return nil
		}
		if qp.badSignature {
			qp.stop()
			return nil
		}
	}
	if qp.pipelining && !qp.badSignature && qp.foundBad() {
		qp.stop()
		return nil
	}
	qp.front.TakeSend()
	x := &r.exec
	x.work = roce.Work{}
	x.awaited = false
	x.memory.begin(qp, requester)
	if st, err := qp.start(r); st != rdma.StatusSuccess {
		x.work.Op, x.work.Status, x.err = roce.WRLocal, st, err
	}
	qp.begun.push(r)
	return &x.work
}

// foundBad reports whether the data of the request that was begun last has a bad signature. A
// SEND and a WRITE have read their data when the next request begins.
func (qp *QP) foundBad() bool {
	n := qp.begun.len()
	if n == 0 {
		return false
	}
	m := &qp.begun.reqs.All()[n-1].exec.memory
	return m.streams > 0 && m.bad() > 0
}

// start executes a local request, or opens the memory of one for the wire.
func (qp *QP) start(r *SendRequest) (rdma.Status, error) {
	x := &r.exec
	if x.refused != rdma.StatusSuccess {
		return x.refused, x.err
	}
	w := &x.work
	w.Op = roce.WRLocal
	if r.Cancelled {
		return rdma.StatusSuccess, nil
	}
	switch r.Op {
	case ibv.WRNop, ibv.WRSetPSV:
		return rdma.StatusSuccess, nil
	case ibv.WRMemcpy:
		return qp.memcpy(r)
	case ibv.WRConfigure:
		return local(qp.configure(r))
	case ibv.WRBindMW:
		return local(qp.bind(r))
	case ibv.WRLocalInv:
		return local(qp.localInvalidate(r))
	}
	n := r.Bytes()
	switch {
	case qp.local:
		return rdma.StatusLocQPOpErr, failure.New("execute a request", syscall.EINVAL, "request %d: operation %v on a QP without a peer", r.ID, r.Op)
	case r.Op > ibv.WRSendInv && !r.Op.Masked():
		return rdma.StatusLocQPOpErr, failure.New("execute a request", syscall.EINVAL, "request %d: operation %v is not known", r.ID, r.Op)
	case n > roce.MaxMessage:
		return rdma.StatusLocLenErr, failure.New("execute a request", syscall.EMSGSIZE, "request %d: %d bytes, a message has at most %d", r.ID, n, uint32(roce.MaxMessage))
	}
	w.Op = r.Op
	w.Length = uint32(n)
	w.Solicited = r.Flags&ibv.SendSolicited != 0
	w.Imm, w.InvKey = r.Imm, r.InvKey
	w.RKey, w.RemoteAddr = r.RKey, r.RemoteAddr
	w.CompareAdd, w.Swap, w.CompareMask, w.SwapMask = r.CompareAdd, r.Swap, r.CompareMask, r.SwapMask
	w.AH, w.DestQPN, w.QKey, w.DCKey, w.SRQ = r.AH, r.RemoteQPN, r.QKey, r.DCKey, r.RemoteSRQN
	var err error
	switch {
	case (r.Op == ibv.WRRead || r.Op.Atomic()) && r.HasInline:
		return rdma.StatusLocQPOpErr, failure.New("execute a request", syscall.EINVAL, "request %d: %v with inline data, and the answer needs memory", r.ID, r.Op)
	case r.Op == ibv.WRRead || r.Op.Atomic():
		if r.Op.Atomic() && n != 8 && !(r.Op.Masked() && n == 4) {
			return rdma.StatusLocLenErr, failure.New("execute a request", syscall.EINVAL, "request %d: the old value of an atomic takes 8 bytes, or 4 if it is masked; the list has %d", r.ID, n)
		}
		x.awaited = true
		w.Dst = &x.memory
		err = x.memory.openAnswer(r.SGEs)
	default:
		w.Src = &x.memory
		if r.HasInline {
			x.memory.openInline(r.Inline)
		}
		if r.Gathered != nil && x.memory.openGathered(r) {
			break
		}
		if len(r.SGEs) > 0 || !r.HasInline {
			err = x.memory.open(r.SGEs, reading)
		}
		x.awaited = x.memory.signed
	}
	if err != nil {
		return localStatus(err), err
	}
	return rdma.StatusSuccess, nil
}

// local returns the status of a request that the device executed by itself.
func local(err error) (rdma.Status, error) {
	if err != nil {
		return rdma.StatusMWBindErr, err
	}
	return rdma.StatusSuccess, nil
}

// configure executes the configuration of a memory key.
func (qp *QP) configure(r *SendRequest) error {
	c := r.Configure
	switch {
	case c == nil || c.Key == nil:
		return failure.New("mkey configure", syscall.EINVAL, "request %d names no memory key", r.ID)
	case c.Key.pd() != qp.pd && !qp.local:
		return failure.New("mkey configure", syscall.EINVAL, "request %d: key %#x is of another protection domain", r.ID, c.Key.Number())
	}
	if err := c.Key.owner.check(qp, c.Key.Number()); err != nil && !qp.local {
		return err
	}
	return c.Key.configure(c)
}

// bind executes the binding of a memory window.
func (qp *QP) bind(r *SendRequest) error {
	const op = "bind a memory window"
	b := r.Bind
	switch {
	case b == nil || b.Window == nil:
		return failure.New(op, syscall.EINVAL, "request %d names no window", r.ID)
	case b.Window.pd() != qp.pd:
		return failure.New(op, syscall.EINVAL, "request %d: window %#x is of another protection domain", r.ID, b.Window.Number())
	}
	return b.Window.bind(qp, b)
}

// localInvalidate executes LOCAL_INV.
func (qp *QP) localInvalidate(r *SendRequest) error {
	e, err := qp.pd.lookup(r.InvKey)
	if err == nil {
		err = e.checkOwner(qp)
	}
	switch {
	case err != nil:
		return err
	case e.mkey != nil:
		return e.mkey.invalidate(invalidation{by: freedByLocal, id: r.ID, qpn: qp.Num()})
	case e.window != nil && e.window.typ == WindowType2:
		if !e.window.invalidate() {
			return failure.New("invalidate a key", syscall.EINVAL, "window %#x is not bound", r.InvKey)
		}
		return nil
	}
	return failure.New("invalidate a key", syscall.EINVAL, "key %#x is neither a memory key nor a window of type 2", r.InvKey)
}

// Completed implements roce.Handler.
func (h *handler) Completed(w *roce.Work, st rdma.Status) rdma.Status {
	qp := (*QP)(h)
	qp.mu.Lock()
	defer qp.mu.Unlock()
	r := qp.begun.pop()
	x := &r.exec
	if qp.state == rdma.StateReset {
		x.memory.close() // dropped: Front.Reset follows
		return st
	}
	if st == rdma.StatusSuccess {
		st = r.finish()
	}
	badKey := x.memory.badKey()
	bad := x.memory.close()
	if st != rdma.StatusSuccess {
		qp.fail(st, r)
	} else if bad > 0 && qp.pipelining {
		qp.badSignature, qp.badKey = true, badKey
		if qp.state == rdma.StateRTS {
			qp.state = rdma.StateSQD
		}
		if qp.state == rdma.StateSQD {
			qp.notify = true
		}
	}
	if !qp.done(r, st) && st == rdma.StatusSuccess {
		st = rdma.StatusFatalErr
		qp.fail(st, r)
		// No completion reports it.
		qp.front.Event(rdma.EventQPFatal, failure.New("complete a request", syscall.EIO, "its CQ takes no more completions"))
	}
	switch qp.state {
	case rdma.StateSQD:
		qp.drain()
	case rdma.StateSQE:
		qp.flushSend()
	}
	return st
}

// finish ends a request that the transport carried out.
func (r *SendRequest) finish() rdma.Status {
	x := &r.exec
	if r.Cancelled {
		return rdma.StatusSuccess
	}
	var err error
	switch {
	case r.Op.Atomic():
		if err = x.memory.Write(x.oldValue()); err == nil {
			err = x.memory.finish()
		}
	case r.Op == ibv.WRRead:
		err = x.memory.finish()
	}
	if err != nil {
		return localStatus(x.memory.err)
	}
	return rdma.StatusSuccess
}

// oldValue returns the old value of an atomic as it is stored. Adapters store 8 bytes in the
// order of the machine (atomic_req_8B_endianness_mode of QUERY_HCA_CAP), but 4 bytes always
// big-endian.
func (x *execution) oldValue() []byte {
	if x.work.Length == 4 {
		return binary.BigEndian.AppendUint32(x.orig[:0], uint32(x.work.Orig))
	}
	return binary.NativeEndian.AppendUint64(x.orig[:0], x.work.Orig)
}

// done gives a request back to the front, and returns false if the completion
// is lost.
func (qp *QP) done(r *SendRequest, st rdma.Status) (ok bool) {
	c := &r.exec.done
	if st == rdma.StatusSuccess {
		*c = Completion{SrcQP: qp.conn.DestQPN, ByteLen: r.exec.work.Length}
	} else {
		*c = failed(st, qp.reason(r, st))
	}
	c.PSN, c.Packets, c.Again = r.exec.work.PSNs()
	return qp.front.SendDone(r, c)
}

// reason returns why a request failed, or nil if its status says everything.
func (qp *QP) reason(r *SendRequest, st rdma.Status) error {
	x := &r.exec
	switch {
	case x.err != nil:
		return x.err
	case x.memory.err != nil:
		return x.memory.err
	case st == rdma.StatusWRFlushErr:
		return qp.cause
	}
	return x.work.Err
}

// fail puts the QP in ERR because request r ended with st, or in SQE if its type has no acknowledgements: then it still
// receives. The transport's QP follows later, but a program that polls the completion must find the QP in that state
// already. Requests that are flushed name r as the cause.
func (qp *QP) fail(st rdma.Status, r *SendRequest) {
	if qp.state == rdma.StateErr || qp.state == rdma.StateSQE && st != rdma.StatusFatalErr {
		return
	}
	qp.state = rdma.StateErr
	if (qp.typ == rdma.UC || qp.typ.Datagram()) && st != rdma.StatusFatalErr {
		qp.state = rdma.StateSQE
	}
	qp.failed.Store(true)
	if qp.cause != nil || st == rdma.StatusWRFlushErr {
		return
	}
	qp.cause = &operr.Error{Op: "flush", Errno: syscall.ECANCELED, Reason: fmt.Sprintf("request %d on QP %#x failed: %v", r.ID, qp.Num(), st), Err: qp.reason(r, st)}
}

// stop moves the QP to SQD because of a bad signature.
func (qp *QP) stop() {
	qp.state = rdma.StateSQD
	qp.notify = true
	qp.drain()
}

// drain raises SQDrained when nothing is in flight any more; until then, notify
// stays set. An event that the program has not seen yet is not raised again.
func (qp *QP) drain() {
	if qp.begun.len() > 0 || !qp.notify {
		return
	}
	qp.notify = false
	if qp.drained {
		return
	}
	qp.drained = true
	qp.front.Event(rdma.EventSQDrained, qp.whyStopped())
}

// whyStopped returns the reason in words for which the queue has stopped, or nil if the program
// stopped it.
func (qp *QP) whyStopped() error {
	if !qp.badSignature {
		return nil
	}
	before := ""
	if r := qp.front.PeekSend(); r != nil {
		before = fmt.Sprintf(" before request %d", r.ID)
	}
	return failure.New("signature pipelining", syscall.ECANCELED, "QP %#x stopped%s: bad signature of key %#x; cancel what depends on it, then RTS", qp.Num(), before, qp.badKey)
}

// flushSend completes the requests that were posted and never begun. The caller
// holds qp.mu, and the QP is in ERR or SQE.
func (qp *QP) flushSend() {
	if qp.begun.len() > 0 {
		return // the transport gives them back first
	}
	for r := qp.front.PeekSend(); r != nil; r = qp.front.PeekSend() {
		qp.front.TakeSend()
		r.exec.err, r.exec.memory.err = nil, nil
		qp.done(r, rdma.StatusWRFlushErr)
	}
}
