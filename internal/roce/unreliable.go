package roce

import (
	"net/netip"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/internal/roce/internal/congestion"
	"github.com/softmkey/softmkey/rdma"
)

// buildUnacknowledged adds requests of a UC or UD QP to b until the turn ends, and
// reports whether the QP needs another turn. A request completes when its last packet is
// added, because the peer does not acknowledge it.
func (q *QP) buildUnacknowledged(b *builder, now int64) (more bool) {
	r := &q.req
	if q.state != rdma.StateRTS {
		return false
	}
	r.flight.begin()
	line := b.line
	var to destination // has room
	for budget := int64(turnBytes); ; {
		w := r.cur
		if w == nil {
			if w = q.begin(); w == nil {
				return false
			}
		}
		if budget <= 0 {
			return true
		}
		var near *link // the destination's link, if it is on this port
		if q.service == wire.ServiceUD && q.typ != ibv.GSI {
			near = q.port.inside(w.AH.to, w.DestQPN)
		}
		paced := q.typ != ibv.GSI && !q.near && near == nil
		if wait := line.wait(now); wait > 0 && paced {
			r.flight.paceAt = now + wait
			return false
		}
		if l, at := q.target(w); paced && at != to {
			if l.near != nil && !l.near.Room(at.addr, at.qpn) {
				r.flight.paceAt = now + paceWait
				return false
			}
			to = at
		}
		i := w.index(r.next)
		var ok bool
		if q.service == wire.ServiceUD {
			ok = q.putDatagram(b, w, near)
		} else {
			ok = q.putData(b, w, i, r.next, 0)
		}
		if !ok {
			return q.notPut(w)
		}
		n := congestion.PacketCost + q.bytes(w, i, i+1)
		budget -= n
		if paced {
			line.credit -= n
		}
		last := i+1 == w.progress.count
		r.sent(w, 1, last)
		r.pass(1)
		if last {
			q.complete(w, rdma.StatusSuccess)
			q.completeHead()
		}
	}
}

// destination is a QP at an address.
type destination struct {
	addr netip.AddrPort
	qpn  uint32
}

// target returns the destination of a request of a UC or UD QP, and the link that leads there.
func (q *endpoint) target(w *Work) (*link, destination) {
	if q.service == wire.ServiceUD {
		return w.AH.from, destination{w.AH.to, w.DestQPN}
	}
	return q.link, destination{q.recv.Peer, q.recv.DestQPN}
}

// farBehind is the distance from which on an older PSN means that the peer has restarted,
// rather than that the packet is a duplicate.
const farBehind = 1 << 16

// unreliable handles a packet of an unreliable connection (section 9.8.2.2). If a packet
// is missing, its message is dropped, and the next message begins with a first or only
// packet.
func (q *QP) unreliable(k *packet, now int64) {
	s := &q.resp
	d := psnDiff(k.PSN, s.psn)
	if d < 0 && d > -farBehind {
		q.count(func(n *counters) { n.DuplicateRequests.Add(1) })
		return
	}
	begins := k.layout&(wire.IsFirst|wire.IsOnly) != 0
	if d != 0 {
		q.count(func(n *counters) { n.OutOfSequence.Add(1) })
	}
	if s.kind != idle && (d != 0 || begins) {
		q.dropMessage()
	}
	s.psn = k.PSN
	switch {
	case !begins && s.kind == idle: // a later packet of a dropped message
	case k.layout&wire.IsSend != 0:
		q.recvSend(k, now)
	default:
		q.recvWrite(k, now)
	}
	s.psn = psnAdd(k.PSN, 1)
	s.ack = false
}

// dropMessage drops the open message of an unreliable connection, or the one that was
// just rejected.
func (q *QP) dropMessage() {
	s := &q.resp
	q.port.n.DroppedMessages.Add(1)
	kind, sink, taken := s.kind, s.sink, s.taken
	s.kind, s.sink, s.taken = idle, nil, false
	if kind == writing && sink != nil {
		q.h.EndWrite(sink, false)
	}
	if taken {
		q.h.ReturnRecv()
	}
}
