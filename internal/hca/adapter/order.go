package adapter

import "github.com/softmkey/softmkey/internal/hca/prm"

// The order of doorbells.
//
// An adapter sees doorbells in the order in which a thread rings them. A program may configure a
// key on one QP and name the key in a request on another one without waiting between the two.
// The records in memory do not tell which was written first, so the context serves requests that
// configure or free keys, or bind windows, before other requests. First it serves such requests at
// the front of each send queue, then the whole of each send queue that has such a request behind
// another one, and then the rest. A configuration that was rung after a request that uses the key
// would also be served too early, but a program must not configure or free a key in use.

// rungQPs are the QPs whose records have changed and that were not served yet, in the order in
// which records are read.
type rungQPs struct {
	all []rungQP

	// In a second reading, known is the number of QPs that the first one found, and next the
	// first of them that the second one has not met yet.
	known, next int
}

// rungQP is such a QP, with its record.
type rungQP struct {
	qp         *QP
	recv, send uint32
	behind     bool // set by scanInOrder: requests that configure keys stand behind others
}

// take notes a record that has changed, without telling the QP: its transport may be at work on another goroutine, and
// would begin the new requests before the requests of QPs earlier in the order.
func (r *rungQPs) take(q *QP, recv, send uint32) bool {
	if !q.changed(recv, send) {
		return false
	}
	if r.next < r.known && r.all[r.next].qp == q {
		r.all[r.next].recv, r.all[r.next].send = recv, send
		r.next++
		return true
	}
	r.all = append(r.all, rungQP{qp: q, recv: recv, send: send})
	return true
}

// scanInOrder reads all records, and then serves the QPs that were rung. c.polling is held.
//
// A record may be rung after it was read and before the read of another one that was rung later. So
// the records are read a second time if some had changed: those that were rung before are found
// then.
func (c *Context) scanInOrder() (worked bool) {
	r := &c.order
	r.known, r.next = 0, 0
	if worked = c.readAll(r); !worked {
		return false
	}
	if c.plan.records > 1 {
		r.known = len(r.all)
		c.readAll(r)
	}
	if len(r.all) > 1 {
		for i := range r.all {
			q := &r.all[i]
			var front uint16
			front, q.behind = q.qp.configurations(uint16(q.send))
			q.qp.rang(q.recv, uint32(front))
		}
		for i := range r.all {
			if q := &r.all[i]; q.behind {
				q.qp.rang(q.recv, q.send)
				q.qp = nil
			}
		}
	}
	for i := range r.all {
		if q := &r.all[i]; q.qp != nil {
			q.qp.rang(q.recv, q.send)
		}
	}
	clear(r.all)
	r.all = r.all[:0]
	return true
}

// configurations looks for requests that configure or free a key, or bind a window, among those of the send
// queue that were not begun and stand before index to. front is the index of the first request that does not,
// or the index up to which requests were rung before, if that is later. behind reports whether a request that
// does stands behind one that does not.
func (q *QP) configurations(to uint16) (front uint16, behind bool) {
	q.eng.Lock()
	defer q.eng.Unlock()
	front = q.sq.rung
	atFront := true
	for end, ctrl := range q.sq.each(to) {
		atFront = atFront && (ctrl.Opcode == prm.OpUMR || ctrl.Opcode == prm.OpSetPSV)
		switch {
		case !atFront && ctrl.Opcode == prm.OpUMR:
			return front, true
		case atFront && int16(end-q.sq.rung) > 0:
			front = end
		}
	}
	return front, false
}
