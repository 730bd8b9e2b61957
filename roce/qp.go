package roce

import (
	"net/netip"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/operr"
)

// QP is one end of a reliable connection: a requester that turns the Handler's
// work into packets, and a responder that carries out the peer's.
//
// All methods are safe for concurrent use. Except for Num and Wake they take the
// QP's lock, under which the Handler is called: do not call them from a Handler
// method, nor while holding a lock that a Handler method takes.
type QP struct {
	port *Port
	num  uint32
	h    Handler

	mu    sync.Mutex // guards the following fields
	state State
	recv  RecvConfig
	send  SendConfig
}

// Num returns the QP number: 24 bits, random, unique on the port.
func (q *QP) Num() uint32 { return q.num }

// State returns the QP's state.
func (q *QP) State() State {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state
}

// RTR connects a QP in RESET to its peer and lets it answer requests. It
// returns EINVAL for a value out of range or a QP in another state.
func (q *QP) RTR(c RecvConfig) error {
	const op = "roce QP to RTR"
	switch {
	case !c.Peer.Addr().IsValid() || c.Peer.Addr().IsUnspecified():
		return operr.New(op, syscall.EINVAL, "peer address %v: must be one host's", c.Peer.Addr())
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
	peer := c.Peer.Addr().Unmap()
	port := c.Peer.Port()
	if port == 0 {
		port = UDPPort
	}
	c.Peer = netip.AddrPortFrom(peer, port)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != Reset {
		return operr.New(op, syscall.EINVAL, "state %v: must be RESET", q.state)
	}
	q.recv = c
	q.state = RTR
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
	defer q.mu.Unlock()
	if q.state != RTR {
		return operr.New(op, syscall.EINVAL, "state %v: must be RTR", q.state)
	}
	q.send = c
	q.state = RTS
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

// SQD takes a QP from RTS to SQD: no Work is begun any more, what was begun is
// carried to its end, then Handler.Drained is called (perhaps before SQD
// returns). The responder is not concerned. EINVAL in another state.
func (q *QP) SQD() error { return nil }

// Resume takes a QP from SQD back to RTS, drained or not. EINVAL in another state.
func (q *QP) Resume() error { return nil }

// Fail puts the QP in the error state, from any state: everything begun
// completes with WRFlushErr and what was opened is closed before Fail
// returns. Handler.Failed is not called.
func (q *QP) Fail() {}

// Reset takes the QP to RESET, from any state. As with Fail, everything begun
// completes with WRFlushErr and is closed before Reset returns; a Handler that is
// to forget its queues need not tell anybody. Packets that are still on
// their way are dropped unless they fit the QP's next connection: choose another PSN for that.
func (q *QP) Reset() {}

// Close resets the QP and gives its number back. No Handler method is called
// after it has returned. Closing twice does nothing.
func (q *QP) Close() {}

// Kick lets the QP ask Handler.Next and sends what comes of it, from this goroutine if
// no other is sending for the port at the moment: the fast way after posting.
// It does nothing in states other than RTS.
func (q *QP) Kick() {}

// Wake is Kick for those who must not wait: it leaves the work to the port's
// transmit goroutine, takes no lock that is held while a Handler runs, and may be called from
// Handler methods.
func (q *QP) Wake() {}
