package roce

import (
	"fmt"

	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/internal/roce/internal/loss"
	"github.com/softmkey/softmkey/rdma"
)

// The requester's timer: one deadline for everything that the requester waits
// for.

// settle sets the deadline for the packets in flight and arms the timer. It is called
// once after each batch of packets or turn, with the lock held.
func (q *QP) settle(now int64) {
	r := &q.req
	full := q.fullTimeout()
	switch {
	case r.waiting:
	case r.una != r.next:
		if r.deadline = r.loss.Deadline(); r.deadline == loss.Never {
			r.deadline = 0
		}
	case !r.flight.blocked || full == 0:
		r.deadline = 0
	case r.deadline == 0:
		r.deadline = now + blockedTimeouts*full
	}
	if r.flight.paceAt != 0 && !r.waiting && (r.deadline == 0 || r.flight.paceAt < r.deadline) {
		r.deadline = r.flight.paceAt
	}
	if at := q.dci.deadline(now); at != 0 && (r.deadline == 0 || at < r.deadline) {
		r.deadline = at
	}
	if r.deadline != 0 && (q.armed == 0 || r.deadline < q.armed) {
		q.armed = r.deadline
		q.port.timers.start(q, r.deadline)
	}
}

// blockedTimeouts is the number of timeouts that a QP waits for room in a window before
// it checks whether the peer is still alive.
const blockedTimeouts = 4

// fullTimeout returns the local ACK timeout in nanoseconds, or 0 if there is none.
func (q *endpoint) fullTimeout() int64 { return int64(AckTimeout(q.send.Timeout)) }

// disarm ends all waiting, because una advanced. settle sets the deadline again.
func (r *requester) disarm() { r.waiting, r.deadline = false, 0 }

// rest stops sending until a time, because of an RNR NAK.
func (r *requester) rest(until int64) { r.waiting, r.deadline = true, until }

// expire is called when the QP's timer fires.
func (q *QP) expire(now int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.armed = 0
	if q.req.deadline != 0 && q.req.deadline <= now {
		q.timeout(now)
	}
	q.settle(now)
}

// timeout handles an expired deadline.
func (q *QP) timeout(now int64) {
	r := &q.req
	late := now - r.deadline
	r.deadline = 0
	r.flight.expire(now) // the caller queues the QP for sending
	if q.dci.timeout(now) {
		return
	}
	if r.waiting {
		r.waiting = false
		return
	}
	full := q.fullTimeout()
	// The QP waits for room in a window. If other QPs fill the window with packets to
	// a peer that is gone, room never appears, so this QP sends one packet without
	// room to find out.
	if r.una == r.next {
		if r.flight.blocked {
			r.flight.forced = now-q.peer.heard.Load() >= full
		}
		return
	}
	if q.peerStopped() {
		r.loss.Postpone(now)
	}
	switch r.loss.Tick(now, late) {
	case loss.Fail:
		q.count(func(n *counters) { n.Timeouts.Add(1) })
		q.failHead(rdma.StatusRetryExcErr, q.noProgress())
	case loss.Resend:
		q.count(func(n *counters) { n.Timeouts.Add(1) })
		r.flight.forced = true
		trip, _ := r.loss.Trip()
		q.peer.lostAll(&r.flight, trip, now)
		q.goBack(now)
	case loss.Ask:
		q.count(func(n *counters) { n.Probes.Add(1) })
		r.asks = true
	}
}

// peerStopped reports whether the peer is in another process on this machine that takes none of the packets that it has
// in memory.
func (q *endpoint) peerStopped() bool {
	n := q.link.near
	return n != nil && n.Behind(q.recv.Peer, q.recv.DestQPN)
}

// noProgress returns the reason for StatusRetryExcErr: the peer's last answer
// during the last full timeout, and the PSN that this side is sending.
func (q *QP) noProgress() error {
	r := &q.req
	faults := q.faults()
	to := fmt.Sprintf("%v QP %#x, %s%s", q.recv.Peer, q.recv.DestQPN, q.tried(), faults)
	a, ok := r.loss.LastAnswer()
	switch {
	case !ok && faults != "":
		return fmt.Errorf("no answer to PSN %#x from %s", r.una, to)
	case !ok:
		return fmt.Errorf("no answer to PSN %#x from %s%s", r.una, to, q.silence())
	case a.Data:
		return fmt.Errorf("the peer sends the READ response of PSN %#x; this side waits for that of %#x (%s)", a.PSN, r.una, to)
	}
	return fmt.Errorf("the peer expects PSN %#x and acknowledges %#x; this side sends %#x (%s)", a.PSN, psnAdd(a.PSN, -1), r.una, to)
}

// tried returns in words for how long the QP has waited, by its attributes: for the first packet, and for each retry.
func (q *endpoint) tried() string {
	return fmt.Sprintf("in %d timeouts of %v (retry_cnt %d)", q.send.RetryCount+1, AckTimeout(q.send.Timeout), q.send.RetryCount)
}

// faults says that packets were lost on request.
func (q *endpoint) faults() string {
	if c, ok := netconn.As[interface{ Lost() uint64 }](q.link.conn); ok && c.Lost() > 0 {
		return fmt.Sprintf("; the faults that were asked for have lost %d packets of this device", c.Lost())
	}
	return ""
}

// noteStall reports to the Handler why nothing is sent, if the reason changed.
func (q *QP) noteStall() {
	r := &q.req
	why := StallNone
	switch {
	case r.waiting:
		why = StallRNR
	case r.flight.blocked:
		why = StallWindow
	}
	if why != r.stall {
		r.stall = why
		q.h.Stalled(why)
	}
}
