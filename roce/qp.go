package roce

import (
	"net/netip"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/wire"
	"github.com/softmkey/softmkey/operr"
)

// QP is a queue pair: a requester that turns the Handler's work into packets, and a
// responder that carries out the peer's. Its [Type] says how.
//
// All methods are safe for concurrent use. Except for Num and Wake they take
// the QP's lock, under which the Handler is called: do not call them from a
// Handler method, nor while holding a lock that a Handler method takes.
type QP struct {
	port    *Port
	num     uint32
	typ     Type
	service uint8 // of its packets' opcodes
	h       Handler

	mu      sync.Mutex // guards the following fields
	state   State
	closed  bool
	recv    RecvConfig
	send    SendConfig
	peer    *peer     // nil in RESET
	flow    wire.Flow // to the peer
	req     requester
	resp    responder
	failure error          // of the Source that made a Work fail
	from    netip.AddrPort // where the last packet came from; another port than the peer listens at, perhaps
	fromIn  wire.Flow      // from there to here
	ids     identifications
	heard   int64 // when a packet of the peer came last
	armed   int64 // when the timer will look at the deadline; 0: not at all

	queued     bool  // in the ready queue, guarded by its lock
	timerAt    int64 // guarded by the timers' lock
	timerIndex int   // likewise; 0: not in the heap
	waitsOut   bool  // for the peer's window out, guarded by its lock
	waitsIn    bool  // for the peer's window in, guarded by its lock
}

// Num returns the QP number: 24 bits, random, unique on the port; 1 for TypeGSI.
func (q *QP) Num() uint32 { return q.num }

// Type returns the type that the QP was made with.
func (q *QP) Type() Type { return q.typ }

// acknowledged reports whether the peer acknowledges the requests of the QP.
func (q *QP) acknowledged() bool {
	return q.service == wire.ServiceRC || q.service == wire.ServiceXRC
}

// State returns the QP's state.
func (q *QP) State() State {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state
}

// RTR connects a QP in RESET to its peer, if its type has one, and lets it take requests.
// It returns EINVAL for a value out of range or a QP in another state.
func (q *QP) RTR(c RecvConfig) error {
	const op = "roce QP to RTR"
	local := q.port.LocalAddr().Addr()
	ip := c.Peer.Addr().Unmap()
	connected := q.service != wire.ServiceUD
	switch {
	case connected && (!ip.IsValid() || ip.IsUnspecified() || ip.Is4() != local.Is4()):
		return operr.New(op, syscall.EINVAL, "peer address %v: must be one host's, of the family of %v", ip, local)
	case c.DestQPN > psnMask:
		return operr.New(op, syscall.EINVAL, "peer QP number %#x: must fit 24 bits", c.DestQPN)
	case c.PSN > psnMask:
		return operr.New(op, syscall.EINVAL, "receive PSN %#x: must fit 24 bits", c.PSN)
	case c.MTU < 256 || c.MTU > 4096 || c.MTU&(c.MTU-1) != 0:
		return operr.New(op, syscall.EINVAL, "path MTU %d: must be 256, 512, 1024, 2048 or 4096", c.MTU)
	case c.MaxDestRdAtomic < 0 || c.MaxDestRdAtomic > MaxRdAtomic:
		return operr.New(op, syscall.EINVAL, "max_dest_rd_atomic %d: must be 0 to %d", c.MaxDestRdAtomic, MaxRdAtomic)
	case c.MinRNRTimer > 31:
		return operr.New(op, syscall.EINVAL, "min_rnr_timer %d: must be 0 to 31", c.MinRNRTimer)
	}
	if c.Peer.Port() == 0 {
		c.Peer = netip.AddrPortFrom(ip, UDPPort)
	} else {
		c.Peer = netip.AddrPortFrom(ip, c.Peer.Port())
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != StateReset || q.closed {
		return operr.New(op, syscall.EINVAL, "state %v: must be RESET", q.state)
	}
	q.recv = c
	q.resp.init(&c)
	q.ids = identifications{}
	q.state = StateRTR
	if !connected {
		return nil
	}
	q.resp.early.total, q.req.early.total = &q.port.earlyBytes, &q.port.earlyBytes
	q.flow = wire.NewFlow(q.port.LocalAddr(), c.Peer)
	q.from, q.fromIn = c.Peer, wire.NewFlow(c.Peer, q.port.LocalAddr())
	q.peer = q.port.acquirePeer(ip)
	return nil
}

// RTS lets a QP in RTR send. It returns EINVAL for a value out of range or a QP
// in another state.
func (q *QP) RTS(c SendConfig) error {
	const op = "roce QP to RTS"
	switch {
	case c.PSN > psnMask:
		return operr.New(op, syscall.EINVAL, "send PSN %#x: must fit 24 bits", c.PSN)
	case c.Timeout > 31:
		return operr.New(op, syscall.EINVAL, "timeout %d: must be 0 to 31", c.Timeout)
	case c.RetryCount > 7:
		return operr.New(op, syscall.EINVAL, "retry count %d: must be 0 to 7", c.RetryCount)
	case c.RNRRetry > 7:
		return operr.New(op, syscall.EINVAL, "RNR retry count %d: must be 0 to 7", c.RNRRetry)
	case c.MaxRdAtomic < 0 || c.MaxRdAtomic > MaxRdAtomic:
		return operr.New(op, syscall.EINVAL, "max_rd_atomic %d: must be 0 to %d", c.MaxRdAtomic, MaxRdAtomic)
	}
	q.mu.Lock()
	from := q.state
	if from == StateRTR {
		q.state, q.send = StateRTS, c
		q.req.init(&c)
	}
	q.mu.Unlock()
	if from != StateRTR {
		return operr.New(op, syscall.EINVAL, "state %v: must be %v", from, StateRTR)
	}
	q.Kick()
	return nil
}

// SetMinRNRTimer changes RecvConfig.MinRNRTimer, in any state.
func (q *QP) SetMinRNRTimer(code uint8) error {
	if code > 31 {
		return operr.New("roce QP", syscall.EINVAL, "min_rnr_timer %d: must be 0 to 31", code)
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

// Fail puts the QP in the error state, from any state: everything begun
// completes with WRFlushErr and what was opened is closed before Fail returns.
// Handler.Failed is not called.
func (q *QP) Fail() {
	q.sendOwedAck()
	q.mu.Lock()
	q.leave(StateErr)
	q.mu.Unlock()
	q.port.wake()
}

// Reset takes the QP to RESET, from any state. As with Fail, everything begun
// completes with WRFlushErr and is closed before Reset returns; a Handler that
// is to forget its queues need not tell anybody. Packets that are still on
// their way are dropped unless they fit the QP's next connection: choose
// another PSN for that.
func (q *QP) Reset() {
	q.sendOwedAck()
	q.mu.Lock()
	q.reset()
	q.mu.Unlock()
	q.port.wake()
}

func (q *QP) reset() {
	q.leave(StateReset)
	if q.peer != nil {
		q.port.releasePeer(q.peer)
		q.peer = nil
	}
}

// Close resets the QP and gives its number back. No Handler method is called
// after it has returned. Closing twice does nothing.
func (q *QP) Close() {
	q.sendOwedAck()
	q.mu.Lock()
	closed := q.closed
	q.closed = true
	q.reset()
	q.mu.Unlock()
	if !closed {
		q.port.qps.remove(q)
		q.port.timers.stop(q)
	}
	q.port.wake()
}

// sendOwedAck sends the acknowledgement that the responder owes. A program that has
// received everything may close the QP before the port's goroutine has sent it, and the
// peer would then retry until it fails. An adapter acknowledges before the program knows.
func (q *QP) sendOwedAck() {
	p := q.port
	for range transmitRounds {
		q.mu.Lock()
		owes := q.resp.ack && (q.state == StateRTR || q.state == StateRTS)
		q.mu.Unlock()
		if !owes {
			return
		}
		p.ready.push(q)
		p.sending.Lock()
		p.round()
		p.sending.Unlock()
	}
}

// leave takes the QP out of its connection: nothing is sent or taken any more,
// everything begun is flushed, everything open is closed.
func (q *QP) leave(to State) {
	r := &q.req
	q.state = to
	if q.peer != nil {
		q.releaseWindows()
		q.port.ready.push(q.peer.out.drop(q, &q.waitsOut))
		q.port.ready.push(q.peer.in.drop(q, &q.waitsIn))
	}
	r.deadline, r.waiting, r.blocked, r.stopped = 0, false, false, true
	r.paceAt, r.probing, r.board.on, r.ask = 0, false, false, nil
	r.repeated, r.withdraw = false, false
	r.early.clear()
	r.cur, r.tail = nil, nil
	r.tx, r.reads = r.una, 0
	for w := r.head; w != nil; w = r.head {
		r.head = w.progress.next
		w.progress.next = nil
		q.h.Completed(w, StatusWRFlushErr)
	}
	q.abort()
	q.failure = nil
}

// failRest puts the QP in the error state for a reason of its own.
func (q *QP) failRest(f Failure) {
	if q.state < StateRTR || q.state > StateRTS {
		return
	}
	q.leave(StateErr)
	q.h.Failed(f)
}

// Kick lets the QP ask Handler.Next and sends what comes of it, from this
// goroutine if no other is sending for the port at the moment: the fast way
// after posting. It does nothing in states other than RTS.
func (q *QP) Kick() {
	q.port.ready.push(q)
	if q.port.pump(kickRounds) {
		q.port.wake()
	}
}

// Wake is Kick for those who must not wait: it leaves the work to the port's
// transmit goroutine, takes no lock that is held while a Handler runs, and may
// be called from Handler methods.
func (q *QP) Wake() {
	q.port.ready.push(q)
	q.port.wake()
}

// build adds what the QP has to send to b, and reports whether there is more to
// send as soon as it has its next turn. It is called with the lock held.
func (q *QP) build(b *builder, now int64) (more bool) {
	// An acknowledgement is the shortest of packets: behind requests it joins
	// their train. But a lone packet of a program that polls is likely an answer that
	// the other end waits for: it leaves at once, and what the responder has to say
	// follows in a train of its own while the other end is at it.
	before := b.total
	if q.acknowledged() {
		more = q.buildRequests(b, now)
	} else {
		more = q.buildUnacknowledged(b)
	}
	if b.total == before+1 && q.port.in.pollers.Load() > 0 && q.resp.answers() {
		b.full, more = true, true
	} else {
		more = q.buildResponses(b) || more
	}
	if q.peer != nil {
		// If this QP was let in and did not need all the room, another may.
		q.port.ready.push(q.peer.out.give(0))
		q.port.ready.push(q.peer.in.give(0))
	}
	q.settle(now)
	return more && q.state != StateErr
}

// settle sets the deadline for what is on its way, after all that a batch of
// packets or a turn changed. It is called with the lock held.
func (q *QP) settle(now int64) {
	r := &q.req
	switch {
	case r.waiting:
	case r.una != r.tx:
		full := int64(AckTimeout(q.send.Timeout))
		r.deadline = r.probeAfter(full, !q.recv.Selective)
		if full != 0 {
			r.deadline = min(r.deadline, max(r.since, q.heard)+full)
		}
	case !r.blocked || q.send.Timeout == 0:
		r.deadline = 0
	case r.deadline == 0:
		r.deadline = now + blockedTimeouts*int64(AckTimeout(q.send.Timeout))
	}
	if r.paceAt != 0 && !r.waiting && (r.deadline == 0 || r.paceAt < r.deadline) {
		r.deadline = r.paceAt
	}
	if r.deadline != 0 && (q.armed == 0 || r.deadline < q.armed) {
		q.armed = r.deadline
		q.port.timers.start(q, r.deadline)
	}
}

// blockedTimeouts is how many timeouts a QP waits for room in a window before
// it looks whether there is anybody who makes room.
const blockedTimeouts = 4

// expire is called when the timer fired.
func (q *QP) expire(now int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armed = 0
	if q.req.deadline != 0 && q.req.deadline <= now {
		q.timeout(now)
	}
	q.settle(now)
}
