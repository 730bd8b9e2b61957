package verbs

import (
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/operr"
)

// RecvWR is a receive request: where the next message goes.
type RecvWR struct {
	ID   uint64
	SGEs []SGE
}

// recvQueue is a queue of receive requests. Its own lock guards it, since a
// shared one is used by many QPs.
type recvQueue struct {
	maxWR, maxSGE int

	mu    sync.Mutex
	queue []RecvWR // from head on
	head  int
	free  [][]SGE // lists to use again
}

func (q *recvQueue) post(op string, wrs []RecvWR) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, wr := range wrs {
		switch {
		case len(wr.SGEs) > q.maxSGE:
			return i, operr.New(op, syscall.EINVAL, "request %d has %d SGEs, the queue's limit is %d", wr.ID, len(wr.SGEs), q.maxSGE)
		case len(q.queue)-q.head >= q.maxWR:
			return i, operr.New(op, syscall.ENOMEM, "the queue holds %d requests, which is its limit", q.maxWR)
		}
		var sges []SGE
		if n := len(q.free); n > 0 {
			sges, q.free = q.free[n-1], q.free[:n-1]
		}
		if q.head > 0 && len(q.queue) == cap(q.queue) {
			n := copy(q.queue, q.queue[q.head:])
			q.queue, q.head = q.queue[:n], 0
		}
		q.queue = append(q.queue, RecvWR{ID: wr.ID, SGEs: append(sges[:0], wr.SGEs...)})
	}
	return len(wrs), nil
}

// pop takes the oldest request and returns how many are left.
func (q *recvQueue) pop() (wr RecvWR, left int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.head == len(q.queue) {
		return RecvWR{}, 0, false
	}
	wr = q.queue[q.head]
	q.queue[q.head] = RecvWR{}
	q.head++
	if q.head == len(q.queue) {
		q.queue, q.head = q.queue[:0], 0
	}
	return wr, len(q.queue) - q.head, true
}

// recycle takes the list of a request that is done.
func (q *recvQueue) recycle(sges []SGE) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// As many lists as requests ever waited at a time.
	if cap(sges) > 0 {
		q.free = append(q.free, sges)
	}
}

func (q *recvQueue) clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue, q.head = nil, 0
}

// SRQ is a receive queue that QPs share.
type SRQ struct {
	pd    *PD
	users users
	rq    recvQueue

	mu    sync.Mutex
	limit int // guarded by mu: fewer requests than this raise the event, once
}

// SRQAttr is what a shared receive queue is created with.
type SRQAttr struct {
	MaxWR  int
	MaxSGE int // default 1
}

// NewSRQ makes a shared receive queue.
func (pd *PD) NewSRQ(attr SRQAttr) (*SRQ, error) {
	if attr.MaxSGE == 0 {
		attr.MaxSGE = 1
	}
	if attr.MaxWR < 1 || attr.MaxWR > maxQPWR || attr.MaxSGE < 0 || attr.MaxSGE > maxSGE {
		return nil, operr.New("create an SRQ", syscall.EINVAL, "%d requests of %d SGEs: at most %d of %d", attr.MaxWR, attr.MaxSGE, maxQPWR, maxSGE)
	}
	if err := pd.enter("SRQ"); err != nil {
		return nil, err
	}
	return &SRQ{pd: pd, rq: recvQueue{maxWR: attr.MaxWR, maxSGE: attr.MaxSGE}}, nil
}

// PostRecv queues receive requests and returns how many, with the error that
// stopped it: EINVAL for too many SGEs, ENOMEM when the queue is full.
func (s *SRQ) PostRecv(wrs ...RecvWR) (int, error) {
	return s.rq.post("post to the SRQ", wrs)
}

// Arm asks for one EventSRQLimitReached when fewer than limit requests are left.
func (s *SRQ) Arm(limit int) error {
	if limit < 0 || limit > s.rq.maxWR {
		return operr.New("arm the SRQ", syscall.EINVAL, "limit %d: must be 0 to %d", limit, s.rq.maxWR)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = limit
	return nil
}

// pop takes the oldest request and raises the event that was armed.
func (s *SRQ) pop() (RecvWR, bool) {
	wr, left, ok := s.rq.pop()
	s.mu.Lock()
	reached := ok && left < s.limit
	if reached {
		s.limit = 0
	}
	s.mu.Unlock()
	if reached {
		s.pd.dev.events.raise(Event{Type: EventSRQLimitReached, SRQ: s})
	}
	return wr, ok
}

// Close destroys the queue. While a QP uses it that is EBUSY.
func (s *SRQ) Close() error {
	first, err := s.users.close("close the SRQ")
	if first {
		s.rq.clear()
		s.pd.leave("SRQ")
	}
	return err
}
