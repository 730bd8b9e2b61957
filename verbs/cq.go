package verbs

import (
	"context"
	"net"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/rdma"
)

// CQ is a completion queue. It is safe for concurrent use.
type CQ struct {
	dev   *Device
	users engine.Users
	size  int

	mu     sync.Mutex // guards the following fields
	ring   []rdma.WC  // a power of two long, grown on demand up to size
	head   int
	count  int
	failed bool // overran: the queue takes no more completions
	closed bool

	armed     bool // Notify was called and no notification was sent since
	solicited bool // notify only for a solicited or failed completion
	ready     chan struct{}
}

// NewCQ creates a completion queue for size completions.
func (d *Device) NewCQ(size int) (*CQ, error) {
	if d.e == nil {
		return nil, failure.Zero("create a CQ", "Open")
	}
	const op = "create the CQ"
	if size < 1 || size > engine.MaxCQE {
		return nil, failure.New(op, syscall.EINVAL, "size %d: must be 1 to %d", size, engine.MaxCQE)
	}
	if err := d.e.Users().Enter(op, "CQ"); err != nil {
		return nil, err
	}
	return &CQ{dev: d, size: size, ready: make(chan struct{}, 1)}, nil
}

// Poll moves completions to wcs, the oldest first, and returns their number.
func (c *CQ) Poll(wcs []rdma.WC) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(wcs), c.count)
	for i := range n {
		wcs[i] = c.ring[(c.head+i)&(len(c.ring)-1)]
	}
	if n > 0 {
		c.head = (c.head + n) & (len(c.ring) - 1)
		c.count -= n
	}
	return n
}

// Notify requests one notification on C for the next completion. With
// solicitedOnly, only a failed completion, or one that the peer marked as
// solicited, causes the notification (ibv_req_notify_cq(3)). Call Poll again
// after Notify, because earlier completions give no notification.
func (c *CQ) Notify(solicitedOnly bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Asking for any completion overrides asking for solicited ones only.
	c.solicited = solicitedOnly && (!c.armed || c.solicited)
	c.armed = true
}

// C returns the channel on which notifications arrive. It is closed with the CQ.
func (c *CQ) C() <-chan struct{} { return c.ready }

// Wait polls at least one completion and blocks until there is one. It returns the
// context's error if the context ends first, and net.ErrClosed if the CQ is closed. It
// uses the notifications of the CQ, so only one goroutine may wait at a time.
func (c *CQ) Wait(ctx context.Context, wcs []rdma.WC) (int, error) {
	if c.dev == nil {
		return 0, failure.Zero("wait for completions", "Device.NewCQ")
	}
	for {
		if n := c.Poll(wcs); n > 0 {
			return n, nil
		}
		c.Notify(false)
		if n := c.Poll(wcs); n > 0 {
			return n, nil
		}
		select {
		case _, open := <-c.ready:
			if !open {
				return 0, net.ErrClosed
			}
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// Close destroys the queue. While QPs use the queue, it returns EBUSY and names them.
func (c *CQ) Close() error {
	if c.dev == nil {
		return failure.Zero("close the CQ", "Device.NewCQ")
	}
	first, err := c.users.Close("close the CQ", c.dev.qpsOf)
	if !first {
		return err
	}
	c.mu.Lock()
	c.closed = true
	close(c.ready)
	c.mu.Unlock()
	c.dev.e.Users().Leave("CQ")
	return nil
}

// push adds a completion, and returns false if the completion is lost. A CQ
// without room fails permanently: it raises EventCQErr, and QPs whose
// completions it loses enter ERR.
func (c *CQ) push(wc *rdma.WC, solicited bool) (ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.failed || c.closed:
		return false
	case c.count == c.size:
		c.failed = true
		c.dev.events.raise(Event{Type: rdma.EventCQErr, CQ: c, Err: failure.New("complete a request", syscall.ENOSPC, "the CQ holds %d completions already and is broken now", c.size)})
		return false
	case c.count == len(c.ring):
		c.grow()
	}
	c.ring[(c.head+c.count)&(len(c.ring)-1)] = *wc
	c.count++
	if c.armed && (!c.solicited || solicited || wc.Status != rdma.StatusSuccess) {
		c.armed = false
		select {
		case c.ready <- struct{}{}:
		default:
		}
	}
	return true
}

func (c *CQ) grow() {
	ring := make([]rdma.WC, max(16, 2*len(c.ring)))
	for i := range c.count {
		ring[i] = c.ring[(c.head+i)&(len(c.ring)-1)]
	}
	c.ring, c.head = ring, 0
}
