package verbs

import (
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/fifo"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

var requestPool = sync.Pool{New: func() any { return new(engine.SendRequest) }}

// free gives a request back to the pool.
func free(r *engine.SendRequest) {
	r.Reset()
	requestPool.Put(r)
}

// sendQueue holds posted requests that have not begun, in order.
type sendQueue struct {
	reqs   fifo.Queue[*engine.SendRequest]
	posted int // requests that have not completed, including those in progress
}

func (q *sendQueue) waiting() []*engine.SendRequest { return q.reqs.All() }

func (q *sendQueue) push(reqs []*engine.SendRequest) {
	q.reqs.Push(reqs...)
	q.posted += len(reqs)
}

// post appends requests to the send queue.
func (qp *QP) post(reqs []*engine.SendRequest) error {
	if qp.e == nil {
		return failure.Zero("post send", "PD.NewQP")
	}
	const op = "post send"
	qp.e.Lock()
	defer qp.e.Unlock()
	if st := qp.e.StateLocked(); st < rdma.StateRTS {
		return failure.New(op, syscall.EINVAL, "the QP is in %v: it takes send requests from RTS on", st)
	}
	if n := qp.sq.posted + len(reqs); n > qp.attr.MaxSendWR {
		return failure.New(op, syscall.ENOMEM, "%d requests with the %d of the chain, the QP's max_send_wr is %d", n, len(reqs), qp.attr.MaxSendWR)
	}
	qp.sq.push(reqs)
	return nil
}

// PostRecv queues receive requests and returns the number queued, with the error of the
// first one that was not. It returns EINVAL for a QP in RESET, for a QP with an SRQ and
// for too many SGEs, and ENOMEM if the queue is full.
func (qp *QP) PostRecv(wrs ...RecvWR) (int, error) {
	if qp.e == nil {
		return 0, failure.Zero("post receive", "PD.NewQP")
	}
	const op = "post receive"
	if qp.attr.SRQ != nil {
		return 0, failure.New(op, syscall.EINVAL, "the QP takes its receive requests from an SRQ")
	}
	n, st, err := qp.postRecv(op, wrs)
	if st == rdma.StateErr {
		qp.e.PostRecv()
	}
	return n, err
}

func (qp *QP) postRecv(op string, wrs []RecvWR) (int, rdma.State, error) {
	qp.e.Lock()
	defer qp.e.Unlock()
	st := qp.e.StateLocked()
	if st == rdma.StateReset {
		return 0, st, failure.New(op, syscall.EINVAL, "the QP is in %v: it takes receive requests from INIT on", st)
	}
	n, err := qp.rq.post(op, wrs)
	return n, st, err
}

// Cancel turns every send request with the given id that has not started into a no-op,
// which completes as usual. It returns the number of requests that this call made no-ops. The QP must be in SQD
// (mlx5dv_qp_cancel_posted_send_wrs(3)).
func (qp *QP) Cancel(id uint64) (n int, err error) {
	err = qp.drained("cancel requests", func() error {
		for _, r := range qp.sq.waiting() {
			if r.ID == id && !r.Cancelled {
				r.Cancelled = true
				n++
			}
		}
		return nil
	})
	return n, err
}

// drained calls f with the QP's lock held if the QP is in SQD. The call also
// counts as the program having noticed why the QP stopped.
func (qp *QP) drained(op string, f func() error) error {
	if qp.e == nil {
		return failure.Zero(op, "PD.NewQP")
	}
	qp.e.Lock()
	defer qp.e.SawDrained()
	defer qp.e.Unlock()
	if st := qp.e.StateLocked(); st != rdma.StateSQD {
		return failure.New(op, syscall.EINVAL, "the QP is in %v: it must be in SQD", st)
	}
	return f()
}

// front implements the engine's interface to a QP, without adding methods to
// QP.
type front QP

// PeekSend implements engine.Front.
func (f *front) PeekSend() *engine.SendRequest {
	if w := f.sq.waiting(); len(w) > 0 {
		return w[0]
	}
	return nil
}

// TakeSend implements engine.Front.
func (f *front) TakeSend() { f.sq.reqs.Pop() }

// SendDone implements engine.Front.
func (f *front) SendDone(r *engine.SendRequest, c *engine.Completion) (ok bool) {
	ok = true
	if c.Status != rdma.StatusSuccess || r.Flags&ibv.SendSignaled != 0 || f.attr.SignalAll {
		ok = f.attr.SendCQ.push(&rdma.WC{
			ID: r.ID, Status: c.Status, Opcode: r.Op.Opcode(), ByteLen: c.ByteLen,
			QPNum: f.e.Num(), SrcQP: c.SrcQP, Err: reason(c),
		}, false)
	}
	f.sq.posted--
	free(r)
	return ok
}

// statusError is the reason of a failed request. A program can ask it for the status, and for
// Timeout.
type statusError struct {
	rdma.StatusError
	error
}

func (e *statusError) Error() string   { return e.error.Error() }
func (e *statusError) Unwrap() []error { return []error{e.StatusError, e.error} }

// reason returns the reason of a failed request, nil for one that succeeded.
func reason(c *engine.Completion) error {
	if c.Status == rdma.StatusSuccess {
		return nil
	}
	return &statusError{rdma.StatusError(c.Status), c.Err}
}

// NextRecv implements engine.Front.
func (f *front) NextRecv() *engine.RecvRequest {
	if f.attr.SRQ != nil {
		return f.attr.SRQ.pop()
	}
	r, _ := f.rq.pop()
	return r
}

// RecvDone implements engine.Front.
func (f *front) RecvDone(r *engine.RecvRequest, c *engine.Completion) (ok bool) {
	wc := rdma.WC{
		ID: r.ID, Status: c.Status, Opcode: c.Op, Flags: c.Flags, ByteLen: c.ByteLen, Imm: c.Imm, InvalidatedKey: c.InvKey,
		QPNum: f.e.Num(), SrcQP: c.SrcQP, Err: reason(c),
	}
	if f.attr.SRQ != nil {
		f.attr.SRQ.recycle(r)
	} else {
		f.rq.recycle(r)
	}
	return f.attr.RecvCQ.push(&wc, c.Solicited)
}

// BadSignature implements engine.Front: programs ask the key.
func (f *front) BadSignature(*engine.BadSignature) {}

// Event implements engine.Front.
func (f *front) Event(t rdma.EventType, err error) {
	f.pd.dev.events.raise(Event{Type: t, QP: (*QP)(f), Err: err})
}

// Reset implements engine.Front.
func (f *front) Reset() {
	for _, r := range f.sq.waiting() {
		free(r)
	}
	f.sq = sendQueue{}
	f.rq.clear()
	(*QP)(f).choosePSN()
}
