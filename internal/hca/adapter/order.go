package adapter

import "github.com/softmkey/softmkey/internal/hca/prm"

// The order of doorbells.
//
// An adapter sees doorbells in the order in which a thread rings them. A program may configure a
// key on one QP and name the key in a request on another one without waiting between the two.
// The records in memory do not tell which was written first, so the context serves the
// QPs that configure keys or bind windows before the others. The other order needs no care: a
// program must not configure a key again while requests use it.

// rungQPs are the QPs whose records have changed and that were not served yet.
type rungQPs struct{ all []rungQP }

// rungQP is such a QP, with what QP.took found.
type rungQP struct {
	qp          *QP
	send, flush bool
}

// take takes a record of a QP.
func (r *rungQPs) take(q *QP, recv, send uint32) bool {
	newSend, flush := q.took(recv, send)
	if !newSend && !flush {
		return false
	}
	r.all = append(r.all, rungQP{q, newSend, flush})
	return true
}

// scanInOrder reads all records, and then serves the QPs that were rung. c.polling is held.
//
// A record may be rung after it was read and before the read of another one that was rung later. So
// the records are read a second time if some had changed: those that were rung before are found
// then.
func (c *Context) scanInOrder() (worked bool) {
	r := &c.order
	if worked = c.readAll(r); !worked {
		return false
	}
	if c.plan.records > 1 {
		c.readAll(r)
	}
	if len(r.all) > 1 {
		for i, q := range r.all {
			if q.send && q.qp.configures() {
				q.qp.serve(q.send, q.flush)
				r.all[i].send, r.all[i].flush = false, false
			}
		}
	}
	for _, q := range r.all {
		q.qp.serve(q.send, q.flush)
	}
	clear(r.all)
	r.all = r.all[:0]
	return true
}

// configures reports whether a request that was posted and not begun configures a key or binds
// a window.
func (q *QP) configures() bool {
	q.eng.Lock()
	defer q.eng.Unlock()
	s := &q.sq
	waiting := int(s.rung - s.next)
	if waiting > s.count {
		return false // the queue is about to fail
	}
	for at := s.next; waiting > 0; {
		b, err := s.bytes(at, 1)
		if err != nil {
			return false
		}
		ctrl, err := prm.ParseControl(b)
		n := ctrl.Blocks()
		if err != nil || n == 0 || n > waiting {
			return false
		}
		if ctrl.Opcode == prm.OpUMR && n > 1 {
			if b, err = s.bytes(at, 2); err == nil && !prm.Frees(b) {
				return true
			}
		}
		at, waiting = at+uint16(n), waiting-n
	}
	return false
}
