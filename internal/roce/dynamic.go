package roce

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/internal/roce/internal/loss"
	"github.com/softmkey/softmkey/rdma"
)

// The initiator of the dynamically connected transport (DC): a requester that makes a
// connection to the target that its next Work names, and ends it before it makes another.
// The packets of a connection are those of RC.

// Times of an initiator, in nanoseconds.
const (
	connectRetry  = int64(5 * time.Millisecond)   // delay before a DynamicConnect is repeated, doubled each time
	connectLimit  = int64(500 * time.Millisecond) // upper limit of connectRetry's doubling
	busyWait      = int64(10 * time.Millisecond)  // delay before a busy target is asked again
	initiatorIdle = int64(time.Second)            // idle time after which a connection is ended
)

// initiator is the state of a QP of type ibv.DCI: its connection, or its
// attempt to make one.
type initiator struct {
	q       *QP
	session uint32     // session number of the last connection
	phase   phase      // there is no connection, one is being made, or there is one
	to      dctAddress // target of the last connection
	leave   bool       // end the connection when nothing is outstanding
	yields  bool       // after ending it, wait for a while so that other initiators can connect
	due     bool       // a DynamicConnect is to be sent
	tries   int        // number of unanswered DynamicConnects
	since   int64      // time of the first unanswered DynamicConnect
	at      int64      // time of the next DynamicConnect, or end of an idle connection; 0: none
	reads   int        // limit on outstanding READs and atomics of the connection
}

// dynamicEnd is the part of a QP that belongs to the dynamically connected
// transport. QPs of other types share noDynamicEnd, which keeps them small. The
// QP's lock guards it.
type dynamicEnd struct {
	dci   *initiator // set if the QP has type ibv.DCI
	dct   *target    // set if the QP has type ibv.DCT
	joins bool       // the QP is a connection of a DCT
	heard int64      // time of the last batch of packets
}

var noDynamicEnd = new(dynamicEnd)

func dynamicEndOf(t rdma.QPType) *dynamicEnd {
	switch t {
	case ibv.DCI:
		return &dynamicEnd{dci: new(initiator)}
	case ibv.DCT:
		return &dynamicEnd{dct: newTarget()}
	}
	return noDynamicEnd
}

// attach makes the end that of a QP.
func (e *dynamicEnd) attach(q *QP) {
	switch {
	case e.dci != nil:
		e.dci.q = q
	case e.dct != nil:
		e.dct.q = q
	}
}

// hear records that packets arrived.
func (e *dynamicEnd) hear(now int64) {
	if e.joins {
		e.heard = now
	}
}

type phase uint8

const (
	apart      phase = iota // there is no connection
	connecting              // a DynamicConnect was sent
	connected
)

// dctAddress identifies a target, as the fields of a Work do.
type dctAddress struct {
	path
	num uint32
	key uint64
}

func targetOf(w *Work) dctAddress {
	return dctAddress{w.AH.path, w.DestQPN, w.DCKey}
}

// dynamic reports whether the QP is an end of the dynamically connected transport.
func (e *dynamicEnd) dynamic() bool { return e.dci != nil || e.dct != nil }

// arrange makes the connection that the next Work needs. ready means that the
// connection exists, so that requests may be sent. more means that the QP needs
// another turn.
func (c *initiator) arrange(b *builder, now int64) (ready, more bool) {
	q, r := c.q, &c.q.req
	if c.phase == connected {
		w := r.cur
		switch {
		case r.una != r.high: // the connection has outstanding requests
			return true, false
		case w == nil && !c.leave:
			if w = q.begin(); w == nil {
				return true, false
			}
		}
		if !c.leave && targetOf(w) == c.to {
			return true, false
		}
		if !c.putDisconnect(b) {
			return false, true
		}
		c.part()
		if c.yields {
			c.at = now + busyWait
		}
		c.leave, c.yields = false, false
	}
	w := r.cur
	if w == nil {
		if w = q.begin(); w == nil {
			return false, false
		}
	}
	if c.phase == apart {
		c.session++
		c.phase, c.to, c.tries = connecting, targetOf(w), 0
		c.due = c.at <= now
		q.link, q.flow = w.AH.from, w.AH.flow
		q.recv.Peer, q.recv.Route, q.tos, q.recv.DestQPN = w.AH.to, w.AH.route, w.AH.tos, w.DestQPN
		q.fromPort, q.fromIn = w.AH.to.Port(), wire.NewFlow(w.AH.to, q.link.addr)
		q.ids = identifications{}
	}
	if c.due {
		return false, !c.putConnect(b, now)
	}
	return false, false
}

// putConnect adds a DynamicConnect to b.
func (c *initiator) putConnect(b *builder, now int64) bool {
	q := c.q
	if !c.putControl(b, &wire.Dynamic{
		Kind: wire.DynamicConnect, Code: mtuCode(int(q.recv.MTU)), Reads: uint16(q.send.MaxRdAtomic),
		Session: c.session, QPN: q.num, Key: c.to.key,
	}, q.req.una) {
		return false
	}
	if c.tries == 0 {
		c.since = now
	}
	c.due = false
	c.at = now + min(connectRetry<<min(c.tries, 16), connectLimit)
	c.tries++
	return true
}

// putDisconnect adds a DynamicDisconnect to b.
func (c *initiator) putDisconnect(b *builder) bool {
	return c.putControl(b, &wire.Dynamic{Kind: wire.DynamicDisconnect, Session: c.session, QPN: c.q.num}, 0)
}

// putControl adds a DynamicControl packet for the target to b.
func (c *initiator) putControl(b *builder, h *wire.Dynamic, psn uint32) bool {
	return putDynamic(b, &c.to.path, c.to.num, psn, h)
}

// putDynamic adds a DynamicControl packet to b.
func putDynamic(b *builder, w *path, qpn, psn uint32, h *wire.Dynamic) bool {
	const size = wire.BTHLen + wire.DynamicLen + wire.ICRCLen
	p, id := b.add(w, size)
	if p == nil {
		return false
	}
	wire.PutBTH(p, &wire.BTH{Opcode: wire.DynamicControl, MigReq: true, PKey: wire.DefaultPKey, DestQP: qpn, PSN: psn})
	wire.PutDynamic(p[wire.BTHLen:], h)
	flow := wire.NewFlow(w.source(), w.to)
	flow.Front(size).WithID(id).PutICRC(p)
	return true
}

// mtuCode returns a path MTU as a value of enum ibv_mtu: 1 for 256 bytes up to
// 5 for 4096.
func mtuCode(mtu int) (code uint8) {
	for ; mtu >= 256; mtu >>= 1 {
		code++
	}
	return code
}

// part ends the connection at this end. The caller has made sure that no
// request is outstanding.
func (c *initiator) part() {
	q, r := c.q, &c.q.req
	if q.peer != nil {
		q.port.ready.release(q.peer.release(&r.flight))
		q.port.ready.release(q.peer.leave(q))
		q.port.releasePeer(q.peer)
		q.peer, q.near = nil, false
	}
	r.restart(q.attributes())
	q.recv.Peer = netip.AddrPort{}
	c.phase, c.at, c.due = apart, 0, false
}

// control handles a DynamicControl packet that a target sent.
func (c *initiator) control(h *wire.Dynamic) {
	q, r := c.q, &c.q.req
	if q.state != rdma.StateRTS || h.Session != c.session {
		return // the packet belongs to an earlier connection
	}
	switch {
	case h.Kind == wire.DynamicAccept && c.phase == connecting:
		c.phase, c.at, c.due = connected, 0, false
		q.recv.DestQPN = h.QPN
		// A target may announce that it keeps no outstanding READ (0). The initiator then sends one
		// READ at a time, which times out if the target does not execute it. With a limit of 0 it
		// would not send the READ, so that no timer ran, and the requests behind the READ waited for ever.
		c.reads = min(max(1, int(h.Reads)), int(q.send.MaxRdAtomic))
		q.near = q.port.inside(q.recv.Peer, h.QPN) != nil
		q.peer = q.port.acquirePeer(q.recv.Peer.Addr())
		r.loss.Renew(q.port.now())
		r.mayBuild()
	case h.Kind == wire.DynamicRefuse && c.phase == connecting && h.Code == wire.DynamicBusy:
		if c.due {
			return // a duplicate
		}
		if r.loss.NotReady(q.port.now()) == loss.Fail {
			q.failHead(rdma.StatusRNRRetryExcErr, fmt.Errorf("DCT %#x at %v has no room for another initiator, after %d retries", c.to.num, c.to.to, q.send.RNRRetry))
			return
		}
		c.tries, c.at = 0, q.port.now()+busyWait
	case h.Kind == wire.DynamicRefuse && c.phase == connecting:
		q.failHead(rdma.StatusRemAccessErr, fmt.Errorf("DCT %#x at %v refuses the connection: the access key %#x is wrong", c.to.num, c.to.to, c.to.key))
	case h.Kind == wire.DynamicRelease && c.phase == connected:
		c.leave, c.yields = true, true
		r.mayBuild()
	}
}

// allows reports whether w may be sent on the present connection.
func (c *initiator) allows(r *requester, w *Work) bool {
	starts := r.next == w.progress.first && r.next == r.high
	return !starts || !c.leave && targetOf(w) == c.to
}

// deadline returns the time of the initiator's next action, or 0. It
// does not include the deadline of a connected requester.
func (c *initiator) deadline(now int64) int64 {
	switch {
	case c == nil || c.q.state != rdma.StateRTS || c.phase == apart || c.due:
		return 0
	case c.phase == connected && c.q.req.head != nil:
		c.at = 0
	case c.phase == connected && c.at == 0:
		c.at = now + initiatorIdle
	}
	return c.at
}

// timeout handles the deadline of the initiator. It returns false if that deadline has not
// passed.
func (c *initiator) timeout(now int64) bool {
	if c == nil || c.phase == apart || c.at == 0 || now < c.at {
		return false
	}
	if c.phase == connected {
		c.at, c.leave = 0, true
		return true
	}
	q := c.q
	if q.peerStopped() {
		c.since = now
	}
	full := q.fullTimeout()
	if c.tries > 0 && full != 0 && now-c.since >= full*int64(q.send.RetryCount+1) {
		q.count(func(n *counters) { n.Timeouts.Add(1) })
		q.failHead(rdma.StatusRetryExcErr, fmt.Errorf("DCT %#x at %v does not answer %s", c.to.num, c.to.to, q.tried()))
		return true
	}
	c.at, c.due = 0, true
	return true
}

// begin resets the initiator when the QP enters RTS.
func (c *initiator) begin() {
	if c != nil {
		*c = initiator{q: c.q, session: c.session}
	}
}

// hangUp ends the connection of an initiator that leaves RTS or has failed.
func (c *initiator) hangUp() {
	if c == nil {
		return
	}
	c.q.sendNow(func(b *builder) {
		if c.phase != apart && c.q.state != rdma.StateReset {
			c.putDisconnect(b)
			c.phase = apart
		}
	})
}
