package verbs

import (
	"encoding/binary"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/keydoor"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/roce"
)

// requestKind is what a send request does with its memory.
type requestKind uint8

const (
	kindSource     requestKind = iota // SEND and WRITE read it
	kindSink                          // READ fills it
	kindAtomic                        // an atomic puts its result there
	kindConfigure                     // configures a memory key
	kindInvalidate                    // frees a memory key
)

// request is a send request from its builder to its completion.
type request struct {
	work   roce.Work
	id     uint64
	kind   requestKind
	opcode Opcode
	flags  SendFlags

	hasData  bool
	isInline bool
	sges     []SGE
	inline   []byte

	key        *MKey // kindConfigure
	update     keydoor.Prepared
	invalidate uint32 // kindInvalidate

	cancelled bool
	awaited   bool // a fence behind it waits for it
	memory    sgList
}

var requestPool = sync.Pool{New: func() any { return new(request) }}

func newRequest() *request { return requestPool.Get().(*request) }

// free gives the request back, keeping the room of its lists.
func (r *request) free() {
	*r = request{sges: r.sges[:0], inline: r.inline[:0], memory: sgList{entries: r.memory.entries[:0]}}
	requestPool.Put(r)
}

func (r *request) remote(rkey uint32, addr uint64) {
	r.work.RKey, r.work.RemoteAddr = rkey, addr
}

// sendQueue holds requests from posting to completion, in order. The first begun
// of them are with the transport.
type sendQueue struct {
	reqs  []*request // from head on
	head  int
	begun int

	awaited int // of those begun: how many a fence waits for
}

func (q *sendQueue) len() int { return len(q.reqs) - q.head }

func (q *sendQueue) pending() []*request { return q.reqs[q.head+q.begun:] }

func (q *sendQueue) push(reqs []*request) {
	if q.head > 0 && len(q.reqs)+len(reqs) > cap(q.reqs) {
		n := copy(q.reqs, q.reqs[q.head:])
		clear(q.reqs[n:])
		q.reqs, q.head = q.reqs[:n], 0
	}
	q.reqs = append(q.reqs, reqs...)
}

// pop takes the oldest request.
func (q *sendQueue) pop() *request {
	r := q.reqs[q.head]
	q.reqs[q.head] = nil
	if q.head++; q.head == len(q.reqs) {
		q.reqs, q.head = q.reqs[:0], 0
	}
	return r
}

// clear drops everything, which the transport must have given back.
func (q *sendQueue) clear() {
	for q.len() > 0 {
		q.pop().free()
	}
	*q = sendQueue{}
}

// post appends requests to the send queue.
func (qp *QP) post(reqs []*request) error {
	const op = "post send"
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.state < StateRTS || qp.closed {
		return operr.New(op, syscall.EINVAL, "the QP is in %v: it takes send requests from RTS on", qp.state)
	}
	if n := qp.sq.len() + len(reqs); n > qp.attr.MaxSendWR {
		return operr.New(op, syscall.ENOMEM, "%d requests with the %d of the chain, the QP's max_send_wr is %d", n, len(reqs), qp.attr.MaxSendWR)
	}
	qp.sq.push(reqs)
	if qp.state == StateErr {
		qp.flushSend()
	}
	return nil
}

// Next implements roce.Handler: it starts the next request, in whose order
// configurations take effect, fences wait and memory is looked up.
func (qp *QP) Next() *roce.Work {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	pending := qp.sq.pending()
	if qp.state != StateRTS || len(pending) == 0 {
		return nil
	}
	r := pending[0]
	if r.flags&SendFence != 0 && qp.sq.awaited > 0 {
		return nil
	}
	if err := qp.begin(r); err != nil {
		r.work.Op, r.work.Status = roce.OpLocal, statusOf(err)
	}
	qp.sq.begun++
	if r.awaited {
		qp.sq.awaited++
	}
	return &r.work
}

// begin carries out a local request, or opens the memory of one for the wire.
func (qp *QP) begin(r *request) error {
	if r.cancelled {
		r.work.Op = roce.OpLocal
		return nil
	}
	switch r.kind {
	case kindConfigure:
		if r.key.closed.Load() {
			return roce.StatusMWBindErr.Err()
		}
		if r.key.door.Apply(r.update) != nil {
			return roce.StatusMWBindErr.Err()
		}
		return nil
	case kindInvalidate:
		e, err := qp.pd.dev.keys.lookup(qp.pd, r.invalidate)
		if err != nil || e.mkey == nil || !e.mkey.door.Invalidate() {
			return roce.StatusMWBindErr.Err()
		}
		return nil
	case kindSource:
		if r.isInline {
			r.memory.openInline(r.inline)
		} else if err := r.memory.openRead(qp.pd, r.sges); err != nil {
			return err
		}
		r.awaited = r.memory.signed
		r.work.Src = &r.memory
	case kindSink, kindAtomic:
		if err := r.memory.openWrite(qp.pd, r.sges, true); err != nil {
			return err
		}
		r.awaited = true
		r.work.Dst = &r.memory
	}
	return nil
}

// Completed implements roce.Handler.
func (qp *QP) Completed(w *roce.Work, st roce.Status) roce.Status {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	r := qp.sq.pop()
	qp.sq.begun--
	if r.awaited {
		qp.sq.awaited--
	}
	if st == StatusSuccess && !r.cancelled {
		st = r.finish()
	}
	bad := r.memory.close()
	if st != StatusSuccess {
		qp.state = StateErr // as the transport's is about to be: whoever polls the completion sees it
	}
	if bad > 0 && st == StatusSuccess && qp.attr.SignaturePipelining && qp.state == StateRTS {
		qp.state = StateSQD
		qp.notify = true
		qp.drain()
	} else if qp.draining && qp.sq.begun == 0 {
		qp.drain()
	}
	if !qp.complete(r, st) && st == StatusSuccess {
		qp.state = StateErr
		st = roce.StatusFatalErr
	}
	return st
}

// finish ends a request that the transport carried out.
func (r *request) finish() Status {
	var err error
	switch r.kind {
	case kindAtomic:
		b := binary.NativeEndian.AppendUint64(r.inline[:0], r.work.Orig)
		r.inline = b // the request's own memory, which it has no other use for
		if err = r.memory.Write(b); err == nil {
			err = r.memory.finish()
		}
	case kindSink:
		err = r.memory.finish()
	}
	if err != nil {
		return statusOf(err)
	}
	return StatusSuccess
}

// complete tells the send CQ of the end of a request and frees it. It reports whether
// the CQ took it.
func (qp *QP) complete(r *request, st Status) (ok bool) {
	ok = true
	if st != StatusSuccess || r.flags&SendSignaled != 0 || qp.attr.SignalAll {
		ok = qp.attr.SendCQ.push(WC{
			ID: r.id, Status: st, Opcode: r.opcode, ByteLen: r.work.Length,
			QPNum: qp.Num(), SrcQP: qp.conn.DestQPN,
		}, false)
	}
	r.free()
	return ok
}

// drain raises SQDrained when nothing is on its way any more; until then it is
// owed. qp.mu is held.
func (qp *QP) drain() {
	qp.draining = qp.sq.begun > 0
	if !qp.draining && qp.notify {
		qp.notify = false
		qp.pd.dev.events.raise(Event{Type: EventSQDrained, QP: qp})
	}
}

// flushSend completes what was posted and never started. qp.mu is held, and the
// QP is in ERR.
func (qp *QP) flushSend() {
	for len(qp.sq.pending()) > 0 && qp.sq.begun == 0 {
		qp.complete(qp.sq.pop(), StatusWRFlushErr)
	}
}

// flushRecv completes the receive requests of the QP's own queue. qp.mu is held,
// and the QP is in ERR.
func (qp *QP) flushRecv() {
	for {
		wr, _, ok := qp.rq.pop()
		if !ok {
			return
		}
		qp.attr.RecvCQ.push(WC{ID: wr.ID, Status: StatusWRFlushErr, Opcode: OpRecv, QPNum: qp.Num()}, false)
		qp.rq.recycle(wr.SGEs)
	}
}

// flush ends everything in the queues after the transport has stopped.
func (qp *QP) flush() {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	qp.resp.abandon(StatusWRFlushErr)
	qp.flushSend()
	if qp.attr.SRQ != nil {
		qp.pd.dev.events.raise(Event{Type: EventQPLastWQEReached, QP: qp})
		return
	}
	qp.flushRecv()
}

// Failed implements roce.Handler: the transport has put the QP in ERR.
func (qp *QP) Failed(f roce.Failure) {
	qp.mu.Lock()
	qp.state = StateErr
	qp.resp.abandon(f.Status)
	qp.mu.Unlock()
	qp.flush()
	e := Event{QP: qp, Err: f.Err}
	switch f.NAK {
	case roce.NAKNone:
		return // a completion tells of it
	case roce.NAKRemoteAccess:
		e.Type = EventQPAccessErr
	case roce.NAKInvalidRequest:
		e.Type = EventQPReqErr
	default:
		e.Type = EventQPFatal
	}
	qp.pd.dev.events.raise(e)
}

// Cancel makes every send request with that id that was not started a no-op, which
// completes as it was asked to, and returns how many there were. The QP must be
// in SQD (mlx5dv_qp_cancel_posted_send_wrs(3)).
func (qp *QP) Cancel(id uint64) (int, error) {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if err := qp.mustDrain("cancel"); err != nil {
		return 0, err
	}
	n := 0
	for _, r := range qp.sq.pending() {
		if r.id == id && !r.cancelled {
			r.cancelled = true
			n++
		}
	}
	return n, nil
}

// CurrentID returns the id of the send request that would start next. The QP must
// be in SQD; ENOENT says that there is no such request.
func (qp *QP) CurrentID() (uint64, error) {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	r, err := qp.current("current id")
	if err != nil {
		return 0, err
	}
	return r.id, nil
}

// CancelCurrent makes the send request that would start next a no-op. The QP must
// be in SQD; ENOENT says that there is no such request.
func (qp *QP) CancelCurrent() error {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	r, err := qp.current("cancel current")
	if err == nil {
		r.cancelled = true
	}
	return err
}

func (qp *QP) current(op string) (*request, error) {
	if err := qp.mustDrain(op); err != nil {
		return nil, err
	}
	for _, r := range qp.sq.pending() {
		if !r.cancelled {
			return r, nil
		}
	}
	return nil, operr.New(op, syscall.ENOENT, "no send request waits")
}

func (qp *QP) mustDrain(op string) error {
	if qp.state != StateSQD {
		return operr.New(op, syscall.EINVAL, "the QP is in %v: it must be in SQD", qp.state)
	}
	return nil
}
