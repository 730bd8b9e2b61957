package cmcore

import (
	"bytes"
	"net"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/net/mad"
)

// Answer is the answer to a query for a datagram QP.
type Answer struct {
	Status  mad.SIDRStatus
	QPN     uint32
	QKey    uint32
	Private []byte
}

// Query is a service ID resolution: one that the service has sent, or one that it
// has received for a listener and that the application answers with [Query.Reply].
type Query struct {
	// exchange repeats a query that was sent. For a received query it holds the answer,
	// and its timer ends the time for which the answer is kept.
	exchange

	id  uint32
	tid uint64
	l   *Listener // of a received query, until it is answered

	// ServiceID, IP and Data are the contents of a received query.
	ServiceID uint64
	IP        mad.IPHeader
	Data      []byte

	done func(Answer, error) // of a query that was sent
	gone func()              // of a received query: called when it is dropped without an answer
}

// Query asks a peer which QP serves datagrams for a service ID. done is called
// once, like a handler, unless the query is closed first.
func (s *Service) Query(p Path, serviceID uint64, private []byte, done func(Answer, error)) (*Query, error) {
	const op = "cm query"
	if len(private) > mad.SIDRREQPrivate {
		return nil, failure.New(op, syscall.EINVAL, "%d bytes of private data: a SIDR_REQ has room for %d", len(private), mad.SIDRREQPrivate)
	}
	p = Path{Local: p.Local.Unmap(), Remote: p.Remote.Unmap(), TrafficClass: p.TrafficClass}
	s.mu.Lock()
	defer s.unlock()
	if err := s.admit(op); err != nil {
		return nil, err
	}
	q := &Query{exchange: exchange{s: s, path: p}, id: s.newID(), tid: s.newTID(), ServiceID: serviceID, done: done}
	s.queries[q.id] = q
	m := &mad.SIDRREQ{RequestID: q.id, PKey: defaultPKey, ServiceID: serviceID, Private: private}
	q.transmit(mad.Header{TID: q.tid}, m, interval(DefaultResponseTimeout, minTimeout, maxTimeout), DefaultRetries, func() {
		q.end(Answer{}, failure.New("cm query", syscall.ETIMEDOUT, "%s did not answer, after %d tries", p.Remote, DefaultRetries+1))
	})
	return q, nil
}

// end forgets a query that was sent and reports its answer.
func (q *Query) end(a Answer, err error) {
	q.timer.stop()
	delete(q.s.queries, q.id)
	q.report(func() func() { return func() { q.done(a, err) } })
}

// Close gives up a query that was sent, or drops a received one. A second Close
// does nothing.
func (q *Query) Close() {
	q.s.mu.Lock()
	defer q.s.unlock()
	q.closed = true
	if q.done != nil {
		q.timer.stop()
		delete(q.s.queries, q.id)
		return
	}
	if q.l != nil {
		q.reply(Answer{Status: mad.SIDRRejected})
	}
}

func (s *Service) takeSIDRREP(p Path, m *mad.SIDRREP) {
	q := s.queries[m.RequestID]
	if q == nil || q.path.Remote != p.Remote {
		return
	}
	q.end(Answer{Status: m.Status, QPN: m.QPN, QKey: m.QKey, Private: bytes.Clone(m.Private)}, nil)
}

// takeSIDRREQ hands a query to the listener, or repeats its answer.
func (s *Service) takeSIDRREQ(p Path, h mad.Header, m *mad.SIDRREQ) {
	key := remoteKey{p.Remote, m.RequestID}
	if q := s.asked[key]; q != nil {
		if q.out != nil {
			s.resend(p, q.out)
		}
		q.keep()
		return
	}
	refuse := func(status mad.SIDRStatus) {
		s.send(p, mad.Header{TID: h.TID}, &mad.SIDRREP{RequestID: m.RequestID, Status: status, ServiceID: m.ServiceID})
	}
	l := s.listener(m.ServiceID, p.Local)
	if l == nil || l.query == nil {
		refuse(mad.SIDRUnsupported)
		return
	}
	r := Request{REQ: mad.REQ{ServiceID: m.ServiceID, Private: bytes.Clone(m.Private)}}
	r.Data = r.Private
	if r.parseIP(p) != 0 {
		refuse(mad.SIDRRejected)
		return
	}
	q := &Query{exchange: exchange{s: s, path: p}, id: m.RequestID, tid: h.TID, l: l, ServiceID: m.ServiceID, IP: r.IP, Data: r.Data}
	q.stay(q, l.backlog)
	q.keep()
	s.asked[key] = q
	s.outbox = append(s.outbox, func() {
		gone := l.query(q)
		s.mu.Lock()
		q.gone = gone
		s.mu.Unlock()
	})
}

// Reply answers a received query.
func (q *Query) Reply(a Answer) error {
	const op = "cm reply"
	if len(a.Private) > mad.SIDRREPPrivate {
		return failure.New(op, syscall.EINVAL, "%d bytes of private data: a SIDR_REP has room for %d", len(a.Private), mad.SIDRREPPrivate)
	}
	q.s.mu.Lock()
	defer q.s.unlock()
	if q.l == nil {
		return failure.New(op, syscall.EINVAL, "the query does not wait for an answer")
	}
	if q.s.closed {
		return net.ErrClosed
	}
	q.reply(a)
	return nil
}

// reply sends the answer.
func (q *Query) reply(a Answer) {
	q.l = nil
	q.stay(q, q.s.answers)
	q.out = q.s.send(q.path, mad.Header{TID: q.tid}, &mad.SIDRREP{
		RequestID: q.id, Status: a.Status, QPN: a.QPN, ServiceID: q.ServiceID, QKey: a.QKey, Private: a.Private,
	})
	q.keep()
}

// keep keeps a received query and its answer for as long as the peer may repeat it.
func (q *Query) keep() { q.timer.start(q.s, answerTime, q.displace) }

// answerTime is how long a received query is kept after its last repetition. Linux repeats a
// query every 4.3 s, so the answer is still there after six lost repetitions in a row.
const answerTime = 30 * time.Second
