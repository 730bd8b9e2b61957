package roce

import (
	"cmp"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/rdma"
)

// QP is a queue pair. Its requester sends the [Work] that the [Handler] supplies; its
// responder carries out the peer's requests. Its type selects the transport service.
//
// All methods are safe for concurrent use. All but Num, Type and Wake take the QP's lock,
// which is held during every Handler call: do not call them from a Handler method, nor
// while holding a lock that a Handler method takes.
type QP struct {
	port   *Port
	queued bool // in the port's ready queue, guarded by its lock
	owing  bool // in the ready queue for its responses, guarded by its lock
	h      Handler
	lane   atomic.Pointer[lane] // nil: the goroutines of the port handle the QP
	set    atomic.Pointer[CounterSet]

	mu     sync.Mutex // guards the following fields
	state  rdma.State
	closed bool
	deaf   bool // BlockOwnMulticast was called: the QP does not receive its own multicasts
	endpoint
	peer  *peer // windows of the host it is connected to; nil in RESET, UD and GSI
	req   requester
	resp  responder
	armed int64 // time at which the timer will call expire; 0: not armed

	waitsOut, waitsIn bool // among the waiters of peer.out and peer.in, guarded by their locks

	timerAt    int64 // key in the timers' heap, guarded by their lock
	timerIndex int32 // index in the timers' heap plus 1, guarded by their lock; 0: not in the heap
}

// endpoint has the numbers, addresses and attributes of a QP and its peer, from which packets are built and by which they
// are checked. It knows no requests, windows or timers. The lock of the QP guards it, except for num, typ, service and the pointer
// dynamicEnd, which do not change.
type endpoint struct {
	num     uint32
	typ     rdma.QPType
	service uint8 // service bits of the opcodes of its packets
	*dynamicEnd

	near     bool   // the peer is on this port, and packets to it pass in memory
	ring     bool   // the peer is another process on this machine, and packets to it pass through memory (netconn.Neighbor)
	via      medium // of the packets being received
	ids      identifications
	fromPort uint16 // UDP port that the last packet came from, which may differ from recv.Peer's; see source
	tos      byte   // DSCP bits of its packets
	send     SendConfig
	recv     reception
	link     *link     // source of its packets; UD and GSI: link of the last packet received
	flow     wire.Flow // addresses of sent packets, for the CRC
	fromIn   wire.Flow // addresses of received packets, for the CRC
}

// Num returns the QP number: 1 for type GSI, otherwise a random number of 24 bits that is
// unique on the port.
func (q *QP) Num() uint32 { return q.num }

// Type returns the type that was passed to [Port.NewQP].
func (q *QP) Type() rdma.QPType { return q.typ }

// acknowledged reports whether the QP's service has acknowledgements.
func (q *endpoint) acknowledged() bool {
	return q.service == wire.ServiceRC || q.service == wire.ServiceXRC
}

// State returns the QP's state: RESET, RTR, RTS or ERR. The state INIT of verbs corresponds
// to RESET here, and SQD and SQE to RTS with a [Handler] whose Next returns nil. A Work of a UC
// or UD QP that fails ends alone: the owner of the QP decides whether the next one follows.
func (q *QP) State() rdma.State {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state
}

// source returns the address that the last packet came from. A datagram QP and a DCT have no
// peer: recv.Peer is the source of their last packet.
func (q *endpoint) source() netip.AddrPort {
	return netip.AddrPortFrom(q.recv.Peer.Addr(), q.fromPort)
}

// path returns the path to the peer of a connected QP.
func (q *endpoint) path() path {
	w := path{from: q.link, to: q.recv.Peer, route: q.recv.Route, tos: q.tos}
	if q.near {
		w.near = q.link.port.linkAt(w.to)
	}
	return w
}

// RTR moves a QP from RESET to RTR: it sets the peer, unless the type is UD or GSI, and
// lets the QP receive. It returns EINVAL if a value is out of range or if the QP is in
// another state.
func (q *QP) RTR(c RecvConfig) error {
	const op = "roce QP to RTR"
	ip := c.Peer.Addr().Unmap()
	connected := q.service != wire.ServiceUD && !q.dynamic()
	if !connected {
		c.SGIDIndex, ip = 0, netip.Addr{}
	}
	l, err := q.port.link(op, c.SGIDIndex, ip)
	switch {
	case connected && (!ip.IsValid() || ip.IsUnspecified()):
		return failure.New(op, syscall.EINVAL, "peer address %v: must be one host's", ip)
	case err != nil:
		return err
	case c.DestQPN > psnMask:
		return failure.New(op, syscall.EINVAL, "peer QP number %#x: must fit 24 bits", c.DestQPN)
	case c.PSN > psnMask:
		return failure.New(op, syscall.EINVAL, "receive PSN %#x: must fit 24 bits", c.PSN)
	case c.MTU < 256 || c.MTU > largestMTU || c.MTU&(c.MTU-1) != 0:
		return failure.New(op, syscall.EINVAL, "path MTU %d: must be 256, 512, 1024, 2048 or 4096", c.MTU)
	case c.MaxDestRdAtomic < 0 || c.MaxDestRdAtomic > MaxRdAtomic:
		return failure.New(op, syscall.EINVAL, "max_dest_rd_atomic %d: must be 0 to %d", c.MaxDestRdAtomic, MaxRdAtomic)
	case c.MinRNRTimer > 31:
		return failure.New(op, syscall.EINVAL, "min_rnr_timer %d: must be 0 to 31", c.MinRNRTimer)
	}
	ip = l.peer(ip)
	c.Peer = netip.AddrPortFrom(ip, cmp.Or(c.Peer.Port(), UDPPort))
	// A DCT makes its connections while the port receives packets, which must not wait for another
	// process. The first packet that the connection sends brings the ring there.
	ring := false
	if n := l.near; n != nil && connected && !q.dynamicEnd.joins {
		ring = n.Approach(c.Peer, c.DestQPN)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != rdma.StateReset || q.closed {
		return failure.New(op, syscall.EINVAL, "state %v: must be RESET", q.state)
	}
	if q.dynamic() {
		c.Peer = netip.AddrPort{}
	}
	q.recv, q.link, q.tos = c.keep(), l, dscp(c.TrafficClass)
	q.resp.init(&c)
	q.ids = identifications{}
	q.state = rdma.StateRTR
	if !connected {
		return nil
	}
	w := q.path()
	q.flow = wire.NewFlow(w.source(), c.Peer)
	q.fromPort, q.fromIn = c.Peer.Port(), wire.NewFlow(c.Peer, l.addr)
	q.peer = q.port.acquirePeer(ip)
	q.near = q.port.inside(c.Peer, c.DestQPN) != nil
	q.ring = ring && !q.near && q.acknowledged()
	return nil
}

// RTS moves a QP from RTR to RTS, in which it also sends. It returns EINVAL if a value is
// out of range or if the QP is in another state.
func (q *QP) RTS(c SendConfig) error {
	const op = "roce QP to RTS"
	switch {
	case c.PSN > psnMask:
		return failure.New(op, syscall.EINVAL, "send PSN %#x: must fit 24 bits", c.PSN)
	case c.Timeout > 31:
		return failure.New(op, syscall.EINVAL, "timeout %d: must be 0 to 31", c.Timeout)
	case c.RetryCount > 7:
		return failure.New(op, syscall.EINVAL, "retry count %d: must be 0 to 7", c.RetryCount)
	case c.RNRRetry > 7:
		return failure.New(op, syscall.EINVAL, "RNR retry count %d: must be 0 to 7", c.RNRRetry)
	case c.MaxRdAtomic > MaxRdAtomic:
		return failure.New(op, syscall.EINVAL, "max_rd_atomic %d: must be 0 to %d", c.MaxRdAtomic, MaxRdAtomic)
	}
	q.mu.Lock()
	from := q.state
	if from == rdma.StateRTR {
		q.state, q.send = rdma.StateRTS, c
		q.req.init(c.PSN, q.attributes())
		q.dci.begin()
	}
	q.mu.Unlock()
	if from != rdma.StateRTR {
		return failure.New(op, syscall.EINVAL, "state %v: must be %v", from, rdma.StateRTR)
	}
	q.Kick()
	return nil
}

// SetMinRNRTimer changes RecvConfig.MinRNRTimer, in any state. It returns EINVAL for a
// code above 31.
func (q *QP) SetMinRNRTimer(code uint8) error {
	if code > 31 {
		return failure.New("roce QP", syscall.EINVAL, "min_rnr_timer %d: must be 0 to 31", code)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.recv.MinRNRTimer = code
	return nil
}

// SetQKey changes RecvConfig.QKey, in any state.
func (q *QP) SetQKey(key uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.recv.QKey = key
}

// Fail puts the QP in the error state, from any state. Before it returns, all outstanding
// Work has completed with StatusWRFlushErr and every open Source and Sink is closed.
// Handler.Failed is not called.
func (q *QP) Fail() {
	q.sendOwedAck()
	q.dci.hangUp()
	q.mu.Lock()
	q.leave(rdma.StateErr)
	q.mu.Unlock()
	q.port.wake()
}

// Reset returns the QP to RESET, from any state. Before it returns, all outstanding Work
// has completed with StatusWRFlushErr and every open Source and Sink is closed. A packet
// still in flight is dropped unless its PSN fits the QP's next connection, so choose a
// different PSN for that one.
func (q *QP) Reset() {
	q.sendOwedAck()
	q.dci.hangUp()
	q.mu.Lock()
	q.reset()
	q.mu.Unlock()
	q.port.wake()
}

func (q *QP) reset() {
	q.leave(rdma.StateReset)
	if q.peer != nil {
		q.port.releasePeer(q.peer)
		q.peer, q.near, q.ring = nil, false, false
	}
}

// Close resets the QP and releases its number. No Handler method is called after Close
// returns. Closing a closed QP does nothing.
func (q *QP) Close() {
	q.sendOwedAck()
	q.dci.hangUp()
	q.end()
	q.port.wake()
}

// remove removes the QP, which is closed, from its port.
func (q *QP) remove() {
	if q.typ == rdma.UD {
		q.port.leaveGroups(q)
	}
	q.port.qps.Remove(q.num)
	q.port.timers.stop(q)
	if n := q.lane.Load(); n != nil {
		close(n.ended)
	}
}

// sendOwedAck sends the acknowledgement that the responder still owes, with the responses
// before it. The program may see a completion before the port has sent the acknowledgement,
// because that takes a system call. If the program then closes the QP, the peer would retry
// until it fails. Network adapters acknowledge before they report the completion.
func (q *QP) sendOwedAck() {
	for range transmitRounds {
		q.mu.Lock()
		owes := q.owesAck()
		q.mu.Unlock()
		if !owes {
			return
		}
		q.sendNow(func(b *builder) {
			if q.owesAck() {
				q.buildResponses(b)
			}
		})
	}
}

// sendNow sends the packets that build adds, before it returns. build is called with the lock of
// the QP held.
func (q *QP) sendNow(build func(b *builder)) {
	p := q.port
	sending, b := &p.sending, p.builder
	if n := q.lane.Load(); n != nil {
		sending, b = &n.sending, n.builder
	}
	sending.Lock()
	defer p.wakeReady()
	defer sending.Unlock()
	b.reset()
	q.mu.Lock()
	build(b)
	q.mu.Unlock()
	p.sendBuilt(b)
}

func (q *QP) owesAck() bool {
	return q.resp.ack && (q.state == rdma.StateRTR || q.state == rdma.StateRTS)
}

// leave ends the QP's connection: it flushes all outstanding Work and closes every open
// Source and Sink.
func (q *QP) leave(to rdma.State) {
	r := &q.req
	q.state = to
	q.dct.clear()
	if q.peer != nil {
		q.port.ready.release(q.peer.release(&r.flight))
		q.port.ready.release(q.peer.leave(q))
	}
	r.disarm()
	r.flight.begin()
	r.asks = false
	r.leave()
	for w := r.popWhole(); w != nil; w = r.popWhole() {
		q.h.Completed(w, rdma.StatusWRFlushErr)
	}
	q.abort()
}

// failRest puts the QP in the error state after a failure that the transport found, and
// reports it to the Handler.
func (q *QP) failRest(f Failure) {
	if q.state < rdma.StateRTR || q.state > rdma.StateRTS {
		return
	}
	q.leave(rdma.StateErr)
	q.h.Failed(f)
}

// Kick asks Handler.Next for new requests and sends them. It sends on the caller's
// goroutine unless another goroutine is sending for the port, so it is the fast way after
// posting. In states other than RTS it does nothing.
func (q *QP) Kick() {
	q.port.ready.push(q)
	if q.port.pump(kickRounds) {
		q.port.wake()
	}
}

// Wake is like Kick, but leaves the sending to the port's transmit goroutine. It takes no
// lock that is held while a Handler runs, so Handler methods may call it.
func (q *QP) Wake() {
	q.port.ready.push(q)
	q.port.wake()
}

// build adds the packets that the QP has to send to b, and reports whether it needs
// another turn. It is called with the lock held.
func (q *QP) build(b *builder, now int64) (more bool) {
	b.aim(q.recv.DestQPN)
	if q.dct != nil {
		return q.dct.build(b)
	}
	// Responses are built first: a request may be the program's answer to a message that is not acknowledged yet. If
	// the acknowledgement waits for responses of READs, requests wait, too.
	if more = q.buildResponses(b); more && (b.full || q.resp.ack) {
		return q.state != rdma.StateErr
	}
	if q.acknowledged() {
		more = q.buildRequests(b, now) || more
		q.noteStall()
	} else {
		more = q.buildUnacknowledged(b, now) || more
	}
	if q.peer != nil {
		// The window may have released the QP from its waiters, and the QP may
		// not have used all the room: pass the rest to the next waiter.
		q.port.ready.release(released{q.peer.out.give(0), q.peer.in.give(0)})
	}
	q.settle(now)
	return more && q.state != rdma.StateErr
}
