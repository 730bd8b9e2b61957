package rdmacm

import (
	"slices"
	"time"
)

// answerTime is how long a request that the program has fetched and not answered delays the next
// one. A program may lose a request: rping does if several arrive at once.
const answerTime = 250 * time.Millisecond

// offer queues a request for the listener's program. Peers take turns, so that one that floods
// does not make others wait. The lock is held; the caller calls the function that offer
// returns, if any, without it.
func (i *id) offer(e *event) (after func()) {
	i.requests.Push(e.request.dst.Addr(), e)
	return i.deliver()
}

// deliver posts the next requests, as many as the listener's backlog allows.
func (i *id) deliver() (after func()) {
	if i.destroyed {
		return nil
	}
	var all []func()
	for i.requests.Len() > 0 && i.unanswered < i.backlog {
		e := i.requests.Pop()
		e.request.listener = i
		i.unanswered++
		time.AfterFunc(answerTime, e.request.answer)
		if f := i.file.post(e); f != nil {
			all = append(all, f)
		}
	}
	return func() {
		for _, f := range all {
			f()
		}
	}
}

// answer records that the program has answered a request, or that its time is over.
func (i *id) answer() {
	i.m.happened(func() func() {
		l := i.listener
		if l == nil {
			return nil
		}
		i.listener = nil
		l.unanswered--
		return l.deliver()
	})
}

// fetch records that the program has got the request. The lock is held.
func (i *id) fetch() {
	i.fetched = true
	if i.conn != nil {
		i.conn.Taken()
	}
	if i.query != nil {
		i.query.Taken()
	}
}

// missed destroys the id of a request that has ended before the program has fetched it. l is
// the listener. The lock is held.
func (i *id) missed(l *id) {
	if i.destroyed || i.fetched {
		return
	}
	is := func(e *event) bool { return e.request == i }
	f := i.file
	if n := slices.IndexFunc(f.events, is); n >= 0 {
		f.events = slices.Delete(f.events, n, n+1)
		f.pending(-1)
	}
	l.requests.RemoveFunc(is)
	i.destroy()
}
