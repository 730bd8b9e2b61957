package cmcore

import (
	"syscall"
	"time"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/net/fair"
	"github.com/softmkey/softmkey/internal/net/mad"
)

// Limits on the state that peers can make a service keep: the first number is for all peers
// together, the second for one peer. A service with few connections (Options.MaxConns) has
// lower limits.
const (
	maxHalfOpen, peerHalfOpen = 512, 256   // requests that the application has not answered, and REPs without an RTU: each costs the application a QP
	maxAnswers, peerAnswers   = 2048, 256  // queries that the application has not answered, and answers kept for repeated queries
	maxWaits, peerWaits       = 4096, 1024 // connections in time wait
)

// requestTime is how long a request is kept after its last repetition, in addition to the
// response time that its sender asked for. A sender that still waits repeats its request.
const requestTime = 30 * time.Second

// guest is a connection or query that a peer made the service keep.
type guest interface {
	// displace ends the guest to make room for a newer one.
	displace()
}

type table = fair.Table[guest]

// place is the place of a guest in one of the tables, or in none.
type place struct {
	in *table
	at *fair.Entry[guest]
}

// stay moves a guest to table t. If t is full, an older guest is displaced first. The lock is
// held.
func (x *exchange) stay(g guest, t *table) {
	if x.place.in == t {
		return
	}
	x.leave()
	if old := t.Displaced(x.path.Remote); old != nil {
		old.Value.displace()
	}
	x.place = place{t, t.Add(x.path.Remote, g)}
}

// leave removes the guest from its table.
func (x *exchange) leave() {
	if x.place.in != nil {
		x.place.in.Remove(x.place.at)
		x.place = place{}
	}
}

// errDisplaced is the error of a request that a newer one displaced.
func (x *exchange) errDisplaced() error {
	return failure.New("cm", syscall.ENOBUFS, "the request of %s was dropped: too many requests are not answered or not confirmed", x.path.Remote)
}

// halfOpen reports whether the connection is a peer's request that is not confirmed yet:
// nothing shows that the peer exists.
func (c *Conn) halfOpen() bool {
	return c.req != nil && (c.state == StateReqRcvd || c.state == StateRepSent)
}

// displace implements guest. A request without an answer is forgotten without one, because
// its sender repeats it. A REP without an RTU is followed by a REJ, so that the peer does not
// wait for a connection.
func (c *Conn) displace() {
	switch c.state {
	case StateReqRcvd:
		c.forget()
	case StateRepSent:
		c.refuse(mad.AboutREP, mad.ReasonNoResources, nil, nil)
	case StateTimeWait:
		c.forget()
		c.emit(Event{Kind: Ended})
		return
	default:
		c.leave()
		return
	}
	c.emit(Event{Kind: Displaced, Err: c.errDisplaced()})
}

// Taken records that the application has got the request. It no longer counts for the
// backlog of its listener, but for the requests of the service that are not confirmed.
func (c *Conn) Taken() {
	c.s.mu.Lock()
	defer c.s.unlock()
	if c.state == StateReqRcvd {
		c.stay(c, c.s.half)
	}
}

// Drop forgets a request without an answer and without events: the peer repeats it.
func (c *Conn) Drop() {
	c.s.mu.Lock()
	defer c.s.unlock()
	c.closed = true
	if c.state == StateReqRcvd {
		c.forget()
	}
}

// displace implements guest.
func (q *Query) displace() {
	unanswered := q.l != nil
	q.forget()
	if unanswered {
		q.report(func() func() { return q.gone })
	}
}

// forget removes a received query from the service's tables.
func (q *Query) forget() {
	q.timer.stop()
	q.leave()
	q.l = nil
	delete(q.s.asked, remoteKey{q.path.Remote, q.id})
}

// Taken records that the application has got the query. See [Conn.Taken].
func (q *Query) Taken() {
	q.s.mu.Lock()
	defer q.s.unlock()
	if q.l != nil {
		q.stay(q, q.s.answers)
	}
}

// Drop forgets a query without an answer: the peer repeats it.
func (q *Query) Drop() {
	q.s.mu.Lock()
	defer q.s.unlock()
	q.closed = true
	if q.l != nil {
		q.forget()
	}
}

// crowded reports whether a peer must not make a new connection. A peer has at most half of
// the connections of a service. Connections in time wait make room.
func (s *Service) crowded(p Path) bool {
	if s.open.Of(p.Remote) >= max(s.o.MaxConns/2, 1) {
		return true
	}
	for s.full() {
		old := s.waits.Oldest()
		if old == nil {
			return true
		}
		old.Value.displace()
	}
	return false
}
