package rdmacm

import (
	"slices"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/cmcore"
	"github.com/softmkey/softmkey/internal/net/mad"
)

// event is an event of a file.
type event struct {
	id      *id    // id of the event; for a request, the listener's
	group   *group // group of a multicast event
	kind    uint32
	status  int32
	why     error          // of a failure; nil: the status says it
	param   func(b []byte) // writes the union; may be nil
	ece     cmcore.ECE
	request *id // the new id of a connect request
}

// names returns the program's name of the object that the event is about, and its number. A connect request has the name
// of the listener, and the number of the new id.
func (e *event) names() (uid uint64, num uint32) {
	switch {
	case e.group != nil:
		return e.group.uid, e.group.num
	case e.request != nil:
		return e.id.uid, e.request.num
	}
	return e.id.uid, e.id.num
}

// encode writes rdma_ucm_event_resp.
func (e *event) encode() []byte {
	b := make([]byte, eventLen)
	uid, num := e.names()
	ne.PutUint64(b, uid)
	ne.PutUint32(b[8:], num)
	ne.PutUint32(b[12:], e.kind)
	ne.PutUint32(b[16:], uint32(e.status))
	if e.param != nil {
		e.param(b[eventParam:])
	}
	ne.PutUint32(b[eventECE:], e.ece.Vendor)
	ne.PutUint32(b[eventECE+4:], e.ece.Options)
	return b
}

// getEvent executes GET_EVENT.
func (f *File) getEvent(p Process, in []byte, out, n int, nonblock bool, done func(int, syscall.Errno)) (cancel func() bool) {
	switch {
	case len(in) < 8:
		return refuse(done, syscall.EINVAL)
	case out < oldEventLen:
		return refuse(done, syscall.ENOSPC)
	}
	w := &waiter{p: p, response: ne.Uint64(in), out: min(out, eventLen), n: n, done: done}
	f.m.mu.Lock()
	if f.closed {
		f.m.mu.Unlock()
		return refuse(done, syscall.EBADF)
	}
	if len(f.events) == 0 {
		if nonblock {
			f.m.mu.Unlock()
			return refuse(done, syscall.EAGAIN)
		}
		f.waiters = append(f.waiters, w)
		f.m.mu.Unlock()
		return func() bool { return f.cancel(w) }
	}
	after := f.hand(w)
	f.m.mu.Unlock()
	after()
	return never
}

// cancel ends a wait.
func (f *File) cancel(w *waiter) bool {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	i := slices.Index(f.waiters, w)
	if i < 0 {
		return false
	}
	f.waiters = slices.Delete(f.waiters, i, i+1)
	return true
}

// hand passes the first event to w. The lock is held; the caller calls the returned
// function without it.
func (f *File) hand(w *waiter) func() {
	e := f.events[0]
	f.events = f.events[1:]
	f.pending(-1)
	e.id.reported++
	if e.group != nil {
		e.group.reported++
	}
	if e.request != nil {
		e.request.fetch()
	}
	b := e.encode()[:w.out]
	return func() {
		if w.p.Write(w.response, b) != nil {
			// As in the kernel, the event remains for a call with a valid
			// address.
			f.m.mu.Lock()
			e.id.reported--
			if e.group != nil {
				e.group.reported--
			}
			var next func()
			if !e.id.destroyed && !f.closed {
				f.events = append([]*event{e}, f.events...)
				f.pending(1)
				if len(f.waiters) > 0 {
					w := f.waiters[0]
					f.waiters = f.waiters[1:]
					next = f.hand(w)
				}
			}
			f.m.mu.Unlock()
			w.done(0, syscall.EFAULT)
			if next != nil {
				next()
			}
			return
		}
		w.done(w.n, 0)
	}
}

// post queues an event on the file of its id. The lock is held; the caller calls
// the function that post returns, if any, without it.
func (f *File) post(e *event) (after func()) {
	if f.closed {
		return nil
	}
	_, num := e.names()
	f.m.record(Record{ID: num, Action: eventNames[e.kind], Event: true, Status: e.status, Reason: e.reason(), Local: e.id.src, Remote: e.id.dst})
	f.events = append(f.events, e)
	f.pending(1)
	if len(f.waiters) == 0 {
		return nil
	}
	w := f.waiters[0]
	f.waiters = f.waiters[1:]
	// The copy to the memory of the program may wait for the program: the Manager's goroutine,
	// which serves all programs, leaves it to another one.
	hand := f.hand(w)
	return func() { f.m.ended.Go(hand) }
}

// reason returns why a connection, or the resolution of an address, failed.
func (e *event) reason() error {
	switch {
	case e.why != nil:
		return e.why
	case e.kind == eventRejected:
		return failure.New("connect", syscall.ECONNREFUSED, "the peer: %v", mad.Reason(e.status))
	case e.kind == eventUnreachable && e.status < 0:
		return failure.New("connect", syscall.Errno(-e.status), "the peer does not answer")
	}
	return nil
}

// drop removes the matching events from the queue, and refuses the requests among them.
func (f *File) drop(match func(*event) bool) (dropped []*event) {
	kept := f.events[:0:0]
	for _, e := range f.events {
		if match(e) {
			dropped = append(dropped, e)
			f.pending(-1)
		} else {
			kept = append(kept, e)
		}
	}
	f.events = kept
	return dropped
}

// soon queues an event of the id after the answer of the command that causes it.
func (i *id) soon(kind uint32, param func([]byte)) {
	i.soonPost(&event{id: i, kind: kind, param: param})
}

func (i *id) soonPost(e *event) {
	i.m.happened(func() func() {
		if i.destroyed {
			return nil
		}
		return i.file.post(e)
	})
}

// writeEvent executes WRITE_CM_EVENT: an event that the program sends to itself, with 8 bytes of
// its own. The next GET_EVENT finds it.
func (i *id) writeEvent(in []byte) ([]byte, syscall.Errno) {
	kind, arg := ne.Uint32(in[8:]), [8]byte(in[16:])
	switch {
	case kind != eventUser && kind != eventInternal:
		return nil, syscall.EINVAL
	case len(i.file.events) >= maxRequests:
		return nil, syscall.ENOMEM
	}
	e := &event{id: i, kind: kind, status: int32(ne.Uint32(in[12:])), param: func(b []byte) { copy(b, arg[:]) }}
	if after := i.file.post(e); after != nil {
		i.m.happened(func() func() { return after })
	}
	return nil, 0
}

// end reports to the program that a connection was established and that its peer then left. It
// is called for a request that newer ones displaced. Strangers can displace requests, and
// programs such as rping exit when a connection fails before it is established.
func (i *id) end() {
	var private connParam
	i.soon(eventEstablished, private.put)
	i.soon(eventDisconnected, private.put)
}

// take queues the program's event for an event of its connection.
func (i *id) take(e cmcore.Event) (after func()) {
	if i.destroyed {
		return nil
	}
	if i.uid == 0 && i.passive {
		i.displaced = e.Kind == cmcore.Displaced
		return nil // a request that the program has not accepted has no uid yet
	}
	out := &event{id: i}
	conn := connParam{private: e.Private}
	out.param = func(b []byte) { conn.put(b) }
	switch e.Kind {
	case cmcore.Replied:
		out.kind, out.ece = eventConnectResponse, e.ECE
		r := e.Reply
		// The event shows this side's view: the peer's depth is the number of
		// requests that this side answers.
		conn.qpn, conn.srq, conn.flowControl, conn.rnrRetry = r.QPN, r.SRQ, r.FlowControl, r.RNRRetry
		conn.responderResources, conn.initiatorDepth = r.InitiatorDepth, r.ResponderResources
	case cmcore.Established:
		out.kind = eventEstablished
	case cmcore.Rejected:
		out.kind, out.status = eventRejected, int32(e.Reason)
	case cmcore.TimedOut:
		out.kind, out.status = eventUnreachable, -int32(syscall.ETIMEDOUT)
	case cmcore.Disconnected:
		out.kind = eventDisconnected
		if e.Err != nil {
			out.status = -int32(syscall.ETIMEDOUT)
		} else if i.dev.Left != nil {
			i.dev.Left(i.qpn)
		}
	case cmcore.Displaced:
		i.end()
		return nil
	case cmcore.Ended:
		out.kind, out.param = eventTimewaitExit, nil
	default:
		return nil
	}
	return i.file.post(out)
}
