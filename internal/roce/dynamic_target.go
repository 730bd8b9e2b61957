package roce

import (
	"net/netip"
	"time"

	"github.com/softmkey/softmkey/internal/net/fair"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/rdma"
)

// The target of the dynamically connected transport (DC). It executes no requests itself:
// for each initiator it makes a QP with a number of its own, which is the responder of an
// RC connection.

// DCTHandler is the [Handler] of a QP of type ibv.DCT.
type DCTHandler interface {
	Handler

	// Joined is called when an initiator connects. It returns the Handler for
	// the QP that executes its requests, or nil to refuse the initiator. The
	// Handler sends no requests. The QP is closed when the connection ends.
	Joined(q *QP) Handler

	// Left is called when a connection has ended. No method of its Handler is
	// called afterwards. An incomplete message may have taken a receive
	// request.
	Left(h Handler)
}

// MaxInitiators is the largest number of connections that a DCT keeps. When it
// is reached, a new initiator displaces a connection of the host that has most.
const MaxInitiators = 1024

// A full target ends a connection without the consent of its initiator after
// these times, in nanoseconds.
const (
	neverUsed   = int64(100 * time.Millisecond) // no request arrived since the connection was made
	unheard     = int64(3 * time.Second)        // no packet arrived
	unreleased  = int64(time.Second)            // the initiator was asked to end the connection and has not
	mostAnswers = 64                            // limit on answers that wait to be sent
)

// target is the state of a QP of ibv.DCT.
type target struct {
	q       *QP
	key     uint64 // access key
	table   *fair.Table[*connection]
	byQP    map[initiatorID]*fair.Entry[*connection]
	pending []answerTo
}

// initiatorID identifies an initiator by the source of its packets.
type initiatorID struct {
	host netip.Addr
	num  uint32
}

// connection is a target's record of one initiator's connection.
type connection struct {
	id       initiatorID
	session  uint32
	q        *QP
	path     path  // to the initiator
	made     int64 // time at which the connection was made
	released int64 // time at which the initiator was asked to end the connection; 0: not asked
	reads    int
}

// answerTo is a DynamicControl packet that waits to be sent.
type answerTo struct {
	path path
	qpn  uint32
	h    wire.Dynamic
}

func newTarget() *target {
	return &target{table: fair.New[*connection](MaxInitiators, MaxInitiators).Level(), byQP: make(map[initiatorID]*fair.Entry[*connection])}
}

// SetDCKey sets the access key of a DCT, in any state. Initiators with another
// key are refused. SetDCKey does nothing to a QP of another type.
func (q *QP) SetDCKey(key uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dct != nil {
		q.dct.key = key
	}
}

// control handles a DynamicControl packet, and reports whether b is one.
func (q *QP) control(b []byte, now int64) bool {
	if wire.Opcode(b[0]) != wire.DynamicControl || len(b) != wire.BTHLen+wire.DynamicLen+wire.ICRCLen || b[1]&15 != 0 {
		return false
	}
	bth, h := wire.ParseBTH(b), wire.ParseDynamic(b[wire.BTHLen:])
	switch {
	case bth.PKey&0x7fff != wire.DefaultPKey&0x7fff:
		q.port.n.BadPKey.Add(1)
	case q.dci != nil:
		q.dci.control(&h)
	case h.Kind == wire.DynamicConnect:
		q.dct.connect(&h, bth.PSN, now)
	case h.Kind == wire.DynamicDisconnect:
		t := q.dct
		if e := t.byQP[initiatorID{q.recv.Peer.Addr(), h.QPN}]; e != nil && e.Value.session == h.Session {
			t.end(e)
		}
	}
	return true
}

// connect handles a DynamicConnect.
func (t *target) connect(h *wire.Dynamic, psn uint32, now int64) {
	q := t.q
	id := initiatorID{q.recv.Peer.Addr(), h.QPN}
	refuse := func(why uint8) {
		t.answer(h, wire.Dynamic{Kind: wire.DynamicRefuse, Code: why})
	}
	if h.Key != t.key {
		// The key is checked first, so that a stranger cannot make the target
		// allocate anything.
		q.port.n.BadQKey.Add(1)
		refuse(wire.DynamicBadKey)
		return
	}
	if h.Code < 1 || h.Code > 5 {
		q.port.n.Malformed.Add(1)
		return
	}
	if e := t.byQP[id]; e != nil {
		c := e.Value
		switch older := int32(h.Session-c.session) < 0; {
		case c.session == h.Session: // a duplicate, or the answer was lost
			t.accept(h, c)
			return
		case older && now-c.heard() < unheard:
			return // a late duplicate
		}
		t.end(e) // its DynamicDisconnect was lost
	}
	if e := t.table.Displaced(id.host); e != nil && !t.displace(e, now) {
		refuse(wire.DynamicBusy)
		return
	}
	c := &connection{
		id: id, session: h.Session, path: q.answerPath(), made: now,
		reads: max(1, min(int(h.Reads), int(q.recv.MaxDestRdAtomic))),
	}
	if !t.join(c, h, psn) {
		refuse(wire.DynamicBusy)
		return
	}
	q.port.n.DCTConnects.Add(1)
	t.byQP[id] = t.table.Add(id.host, c)
	t.accept(h, c)
}

// join makes the QP of a connection.
func (t *target) join(c *connection, h *wire.Dynamic, psn uint32) bool {
	q := t.q
	child, err := q.port.newQP("roce connection of a DCT", nil, rdma.RC, &dynamicEnd{joins: true})
	if err != nil {
		return false
	}
	inner := q.h.(DCTHandler).Joined(child)
	if inner == nil {
		child.end()
		return false
	}
	child.mu.Lock()
	child.h = inner
	child.mu.Unlock()
	c.q = child
	if q.lane.Load() != nil {
		child.Isolate()
	}
	err = child.RTR(RecvConfig{
		Peer: c.path.to, SGIDIndex: q.link.index, DestQPN: c.id.num, MTU: 128 << h.Code, PSN: psn,
		MaxDestRdAtomic: c.reads, MinRNRTimer: q.recv.MinRNRTimer, TrafficClass: q.tos, Route: q.recv.Route,
	})
	if err != nil {
		child.end()
		q.h.(DCTHandler).Left(inner)
		return false
	}
	return true
}

// heard returns the time of the last packet of the connection.
func (c *connection) heard() int64 {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	return max(c.made, c.q.heard)
}

// displace ends a connection because another initiator wants one. If the
// initiator may still use the connection, displace asks the initiator to end it
// and returns false.
func (t *target) displace(e *fair.Entry[*connection], now int64) bool {
	c := e.Value
	heard := c.heard()
	idle := unheard
	if heard == c.made {
		idle = neverUsed
	}
	failed := c.q.State() == rdma.StateErr
	if failed || now-heard >= idle || c.released != 0 && now-c.released >= unreleased {
		t.end(e)
		return true
	}
	if c.released == 0 {
		c.released = now
	}
	t.put(answerTo{c.path, c.id.num, wire.Dynamic{Kind: wire.DynamicRelease, Session: c.session}})
	return false
}

// accept answers a DynamicConnect of a connection that exists.
func (t *target) accept(h *wire.Dynamic, c *connection) {
	t.answer(h, wire.Dynamic{Kind: wire.DynamicAccept, QPN: c.q.num, Reads: uint16(c.reads)})
}

// answer answers a DynamicConnect that has just arrived.
func (t *target) answer(to *wire.Dynamic, h wire.Dynamic) {
	h.Session = to.Session
	t.put(answerTo{t.q.answerPath(), to.QPN, h})
}

// answerPath returns the path to the source of the last packet.
func (q *endpoint) answerPath() path {
	return path{from: q.link, to: q.source(), route: q.recv.Route, tos: q.tos}
}

// put queues an answer. It drops the answer if too many wait; the initiator
// then asks again.
func (t *target) put(a answerTo) {
	if len(t.pending) < mostAnswers {
		t.pending = append(t.pending, a)
	}
}

// answers reports whether packets wait to be sent.
func (t *target) answers() bool { return t != nil && len(t.pending) > 0 }

// build adds waiting answers to b, and reports whether some remain.
func (t *target) build(b *builder) (more bool) {
	for i := range t.pending {
		a := &t.pending[i]
		if !putDynamic(b, &a.path, a.qpn, 0, &a.h) {
			t.pending = append(t.pending[:0], t.pending[i:]...)
			return true
		}
	}
	t.pending = t.pending[:0]
	return false
}

// end ends a connection.
func (t *target) end(e *fair.Entry[*connection]) {
	c := e.Value
	t.table.Remove(e)
	delete(t.byQP, c.id)
	h := c.q.h
	c.q.end()
	t.q.h.(DCTHandler).Left(h)
}

// clear ends all connections, because the DCT leaves its state.
func (t *target) clear() {
	if t == nil {
		return
	}
	for e := t.table.Oldest(); e != nil; e = t.table.Oldest() {
		t.end(e)
	}
	t.pending = nil
}

// end closes the QP of a connection. Unlike Close, end sends nothing and may be
// called with the lock of the DCT held.
func (q *QP) end() {
	q.mu.Lock()
	closed := q.closed
	q.closed = true
	q.reset()
	q.mu.Unlock()
	if !closed {
		q.remove()
	}
}
