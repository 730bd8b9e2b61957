package roce

import (
	"bytes"
	"sync"

	"github.com/softmkey/softmkey/internal/base/loan"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
)

// A lane is a goroutine that handles one QP alone: its packets, its timers and
// what it sends. The Handler of such a QP may wait, for example while the
// kernel fetches a page of another process. The goroutines of the port never
// wait for the lock of such a QP.
type lane struct {
	q       *QP
	sending sync.Mutex // held while packets are built and sent, so that they leave in order
	builder *builder   // guarded by sending
	wakeup  chan struct{}
	ended   chan struct{} // closed by Close of the QP

	mu    sync.Mutex // guards the following fields
	work  []func(now int64)
	bytes int  // bytes of packets that are queued or being handled
	due   bool // a timer has fired
	ready bool // there may be something to send
}

// laneBytes limits the bytes of packets that wait for a lane. Further packets
// are dropped.
const laneBytes = 4 << 20

// Isolate gives the QP a goroutine of its own, for a [Handler] whose calls may
// wait. Other QPs do not wait for it then. Sending and receiving take longer on
// an isolated QP. Isolate may be called in any state; calls after the first do
// nothing.
func (q *QP) Isolate() {
	q.port.mu.Lock()
	defer q.port.mu.Unlock()
	if q.port.closed || q.lane.Load() != nil {
		return
	}
	n := &lane{q: q, wakeup: make(chan struct{}, 1), ended: make(chan struct{}), builder: newBuilder(q.port.builder.ecn)}
	line := newLineRate(q.port.unreliable, q.port.gids()[0].conn.Caps().RecvBuffer)
	n.builder.line, n.builder.byMember = &line, q.port.builder.byMember
	q.lane.Store(n)
	q.port.wg.Go(n.run)
	n.signal(func() { n.ready, n.due = true, true })
}

// signal changes the fields that mu guards, and wakes the goroutine.
func (n *lane) signal(change func()) {
	n.mu.Lock()
	change()
	n.mu.Unlock()
	signal(n.wakeup)
}

// wake makes the lane look for something to send. It reports whether there is a lane.
func (n *lane) wake() bool {
	if n == nil {
		return false
	}
	n.signal(func() { n.ready = true })
	return true
}

// put queues work that handles a packet of size bytes.
func (n *lane) put(size int, work func(now int64)) {
	n.signal(func() {
		if n.bytes+size <= laneBytes {
			n.work, n.bytes = append(n.work, work), n.bytes+size
		}
	})
}

// packet queues packet b of train t, which arrived on link l.
func (n *lane) packet(l *link, t *packetconn.Train, inside bool, b []byte) {
	train := *t
	train.Buf = nil
	b = bytes.Clone(b) // the receive buffer is reused
	n.put(len(b), func(now int64) {
		if n.q.enter(l, &train, inside) {
			n.q.packet(b, &train, now)
			n.q.release(now)
			loan.End(b)
		}
	})
}

// multicast queues a datagram that was sent to a multicast group.
func (n *lane) multicast(k *packet, grh *wire.GRH, from *origin) {
	own, header, source := *k, *grh, *from
	own.ext, own.payload = bytes.Clone(k.ext), bytes.Clone(k.payload)
	n.put(len(own.payload), func(int64) { n.q.multicast(&own, &header, &source) })
}

// run is the goroutine of the lane.
func (n *lane) run() {
	p, q := n.q.port, n.q
	for {
		select {
		case <-p.done:
			return
		case <-n.ended:
			return
		case <-n.wakeup:
		}
		n.mu.Lock()
		work, due, ready := n.work, n.due, n.ready
		n.work, n.bytes, n.due, n.ready = nil, 0, false, false
		n.mu.Unlock()
		for _, w := range work {
			w(p.now())
		}
		if due {
			q.expire(p.now())
		}
		if due || ready || len(work) > 0 {
			n.send()
		}
	}
}

// send gives the QP a turn.
func (n *lane) send() {
	more := false
	n.q.sendNow(func(b *builder) { more = n.q.build(b, n.q.port.now()) })
	if more {
		n.wake()
	}
}

// enter locks the QP for packets of train t that arrived on a link, or inside the
// port from the link with the address of t. It returns false and counts the
// packet as dropped if the QP does not accept it.
func (q *QP) enter(l *link, t *packetconn.Train, inside bool) bool {
	addr := t.Addr
	n := &q.port.n
	connected := q.service != wire.ServiceUD && q.dct == nil
	q.mu.Lock()
	switch {
	case q.state < rdma.StateRTR || q.state > rdma.StateRTS:
		n.WrongState.Add(1)
	case connected && addr.Addr() != q.recv.Peer.Addr():
		n.UnknownSource.Add(1)
		q.noteStranger(addr.Addr())
	case connected && l != q.link:
		n.WrongGID.Add(1)
	default:
		// The source port may differ from the peer's: some senders vary it to
		// spread flows over paths.
		if addr != q.source() || l != q.link {
			if !connected {
				q.recv.Peer = addr
			}
			q.link = l
			q.fromPort, q.fromIn = addr.Port(), wire.NewFlow(addr, l.addr)
		}
		q.resp.batch, q.via = q.resp.psn, overNetwork
		switch {
		case inside:
			q.via = insidePort
		case t.Memory:
			q.via = overMemory
		}
		return true
	}
	q.mu.Unlock()
	return false
}

// sawMessage records that a message used a receive request, for the goroutine
// that holds turn of the QP's inbox. It records nothing for a lane, which does
// not hold turn, or for a packet inside the port. It is called with the lock of
// the QP held.
func (q *QP) sawMessage() {
	if q.lane.Load() == nil && q.via != insidePort {
		q.link.in.heard = true
	}
}
