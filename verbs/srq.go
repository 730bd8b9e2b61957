package verbs

import (
	"cmp"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/fifo"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/rdma"
)

// RecvWR is a receive request: the memory for the next message.
type RecvWR struct {
	ID   uint64
	SGEs []rdma.SGE
}

// recvQueue is a queue of receive requests. The engine's lock of the QP guards the queue of
// a QP, and a lock of its own the queue of an SRQ.
type recvQueue struct {
	maxWR, maxSGE int

	queue fifo.Queue[*engine.RecvRequest]
	free  []*engine.RecvRequest // requests to reuse
}

func (q *recvQueue) post(op string, wrs []RecvWR) (int, error) {
	for i, wr := range wrs {
		switch {
		case len(wr.SGEs) > q.maxSGE:
			return i, failure.New(op, syscall.EINVAL, "request %d has %d SGEs, the queue's limit is %d", wr.ID, len(wr.SGEs), q.maxSGE)
		case q.queue.Len() >= q.maxWR:
			return i, failure.New(op, syscall.ENOMEM, "the queue holds %d requests, which is its limit", q.maxWR)
		}
		var r *engine.RecvRequest
		if n := len(q.free); n > 0 {
			r, q.free = q.free[n-1], q.free[:n-1]
		} else {
			r = new(engine.RecvRequest)
		}
		r.ID, r.SGEs = wr.ID, append(r.SGEs[:0], wr.SGEs...)
		q.queue.Push(r)
	}
	return len(wrs), nil
}

// pop takes the oldest request, or nil, and returns how many are left.
func (q *recvQueue) pop() (r *engine.RecvRequest, left int) {
	if q.queue.Len() > 0 {
		r = q.queue.Pop()
	}
	return r, q.queue.Len()
}

// recycle keeps a completed request for reuse. The free list never exceeds the
// largest number of requests that waited at one time.
func (q *recvQueue) recycle(r *engine.RecvRequest) { q.free = append(q.free, r) }

func (q *recvQueue) clear() { q.queue = fifo.Queue[*engine.RecvRequest]{} }

// SRQ is a receive queue that several QPs share.
type SRQ struct {
	pd    *PD
	users engine.Users

	mu    sync.Mutex // guards the following fields; taken after the lock of a QP
	rq    recvQueue
	limit int // raise the event, once, when fewer requests than this remain
}

// SRQAttr describes a shared receive queue.
type SRQAttr struct {
	MaxWR  int
	MaxSGE int // default 1
}

// NewSRQ creates a shared receive queue.
func (pd *PD) NewSRQ(attr SRQAttr) (*SRQ, error) {
	const op = "create the SRQ"
	attr.MaxSGE = cmp.Or(attr.MaxSGE, 1)
	if attr.MaxWR < 1 || attr.MaxWR > engine.MaxQPWR || attr.MaxSGE < 0 || attr.MaxSGE > engine.MaxSGE {
		return nil, failure.New(op, syscall.EINVAL, "%d requests of %d SGEs: must be 1 to %d of 1 to %d", attr.MaxWR, attr.MaxSGE, engine.MaxQPWR, engine.MaxSGE)
	}
	if err := pd.e.Users().Enter(op, "SRQ"); err != nil {
		return nil, err
	}
	return &SRQ{pd: pd, rq: recvQueue{maxWR: attr.MaxWR, maxSGE: attr.MaxSGE}}, nil
}

// PostRecv queues receive requests and returns the number queued, with the error of the
// first one that was not. It returns EINVAL for too many SGEs and ENOMEM if the queue is
// full.
func (s *SRQ) PostRecv(wrs ...RecvWR) (int, error) {
	if s.pd == nil {
		return 0, failure.Zero("post to the SRQ", "PD.NewSRQ")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rq.post("post to the SRQ", wrs)
}

// Arm requests one EventSRQLimitReached when fewer than limit requests remain.
func (s *SRQ) Arm(limit int) error {
	if s.pd == nil {
		return failure.Zero("arm the SRQ", "PD.NewSRQ")
	}
	if limit < 0 || limit > s.rq.maxWR {
		return failure.New("arm the SRQ", syscall.EINVAL, "limit %d: must be 0 to %d", limit, s.rq.maxWR)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = limit
	return nil
}

// pop takes the oldest request and raises the event that was armed.
func (s *SRQ) pop() *engine.RecvRequest {
	s.mu.Lock()
	r, left := s.rq.pop()
	reached := r != nil && left < s.limit
	if reached {
		s.limit = 0
	}
	s.mu.Unlock()
	if reached {
		s.pd.dev.events.raise(Event{Type: rdma.EventSRQLimitReached, SRQ: s})
	}
	return r
}

// recycle keeps a completed request for reuse.
func (s *SRQ) recycle(r *engine.RecvRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rq.recycle(r)
}

// Close destroys the queue. While QPs use the queue, it returns EBUSY and names them.
func (s *SRQ) Close() error {
	if s.pd == nil {
		return failure.Zero("close the SRQ", "PD.NewSRQ")
	}
	first, err := s.users.Close("close the SRQ", s.pd.dev.qpsOf)
	if first {
		s.mu.Lock()
		s.rq.clear()
		s.mu.Unlock()
		s.pd.e.Users().Leave("SRQ")
	}
	return err
}
