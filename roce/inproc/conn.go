package inproc

import (
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/softmkey/softmkey/roce/packetconn"
)

// The sizes of the buffers that trains wait in. What fits in a small one, which
// an acknowledgement or a single packet does, is copied out of it; for larger
// trains the receiver gets the buffer itself and leaves its own in exchange, and so
// does a sender who agrees to it: their bytes are not copied.
const (
	smallBuffer = 8 << 10
	largeBuffer = packetconn.RecvSize
)

// datagramsPerTrain is what newer kernels take in a GSO call.
const datagramsPerTrain = 128

// trainsPerCall is for reports only: there are no calls to save here.
const trainsPerCall = 64

// Conn is a place on a Network. It has the methods of a UDP socket's connection
// and follows the same contract: Send and Recv may run at the same time, several
// of each take turns, and after Close all return net.ErrClosed.
type Conn struct {
	network *Network
	local   netip.AddrPort
	limits  packetconn.Limits
	closed  atomic.Bool

	txMu sync.Mutex // keeps the trains of one Send together
	sent counters

	mu      sync.Mutex
	arrived sync.Cond // under mu: the queue is not empty, or closed
	waiting int       // goroutines in arrived.Wait
	queue   ring
	room    int // bytes of buffers that may still be queued
	small   pool
	large   pool
	lost    uint64 // datagrams that did not fit
}

// counters are written by senders, one at a time, and read at any time.
type counters struct {
	trains, datagrams, bytes, unreachable atomic.Uint64
}

// Counters tell what a Conn has done so far.
type Counters struct {
	Trains      uint64 // sent, whatever became of them
	Datagrams   uint64 // sent, in those trains
	Bytes       uint64 // sent, payload
	Unreachable uint64 // datagrams sent to an address where nobody listened
	Lost        uint64 // datagrams that arrived here while the queue was full
}

func newConn(n *Network, addr netip.AddrPort) *Conn {
	c := &Conn{
		network: n,
		local:   addr,
		limits:  packetconn.Limits{Datagrams: datagramsPerTrain, Bytes: packetconn.MaxBytes(addr.Addr()), Trains: trainsPerCall},
		room:    max(n.queue, largeBuffer),
		small:   pool{size: smallBuffer},
		large:   pool{size: largeBuffer},
	}
	c.arrived.L = &c.mu
	return c
}

// LocalAddr returns the address given to Listen, with the port that was picked.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// ID returns i: trains are numbered as the Linux kernel does with GSO.
func (c *Conn) ID(i int) uint16 { return uint16(i) }

// Limits returns the limits of a UDP socket of Linux.
func (c *Conn) Limits() packetconn.Limits { return c.limits }

// Caps returns those of a socket that can do everything.
func (c *Conn) Caps() packetconn.Caps {
	return packetconn.Caps{GSO: true, GRO: true, Batch: true, Poll: true, ECN: true, KnownID: true, RecvBuffer: max(c.network.queue, largeBuffer), MTU: c.network.mtu}
}

// Counters returns what the Conn has done so far.
func (c *Conn) Counters() Counters {
	c.mu.Lock()
	lost := c.lost
	c.mu.Unlock()
	return Counters{
		Trains:      c.sent.trains.Load(),
		Datagrams:   c.sent.datagrams.Load(),
		Bytes:       c.sent.bytes.Load(),
		Unreachable: c.sent.unreachable.Load(),
		Lost:        lost,
	}
}

// Close takes the Conn off the network and ends what waits in Recv. What was
// queued is gone.
func (c *Conn) Close() error {
	if !c.network.remove(c) {
		return net.ErrClosed
	}
	c.closed.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue, c.small.free, c.large.free = ring{}, nil, nil
	c.arrived.Broadcast()
	return nil
}

// Send puts the trains, or copies of them, into the queues of those who listen at their
// addresses. It never waits.
func (c *Conn) Send(trains []packetconn.Datagrams) (int, error) {
	c.txMu.Lock()
	defer c.txMu.Unlock()
	for i := range trains {
		if c.closed.Load() {
			return i, net.ErrClosed
		}
		t := &trains[i]
		if err := c.limits.Check(c.local.Addr(), t); err != nil {
			return i, err
		}
		if len(t.At(0))+packetconn.Headers(c.local.Addr()) > c.network.mtu {
			return i, packetconn.TooLarge(t, c.network.mtu)
		}
		n := uint64(t.Count())
		c.sent.trains.Add(1)
		c.sent.datagrams.Add(n)
		c.sent.bytes.Add(uint64(len(t.Buf)))
		if to := c.network.lookup(t.Addr); to != nil {
			to.deliver(t, c.local)
		} else {
			c.sent.unreachable.Add(n)
		}
	}
	return len(trains), nil
}

// deliver queues t, or a copy of it, or drops it if there is no room.
func (c *Conn) deliver(t *packetconn.Datagrams, from netip.AddrPort) {
	p := &c.small
	if len(t.Buf) > smallBuffer {
		p = &c.large
	}
	c.mu.Lock()
	if c.room < p.size {
		// A receiver that shares the processor with the sender gets a chance to
		// make room, once.
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
		if c.room < p.size {
			c.lost += uint64(t.Count())
			c.mu.Unlock()
			return
		}
	}
	c.room -= p.size
	buf := p.get()
	c.mu.Unlock()

	// The copy is made without the lock, so that the receiver works meanwhile.
	// Trains of one sender stay in order, because it sends one at a time.
	if buf == nil {
		buf = make([]byte, p.size)
	}
	if t.Swap && p == &c.large {
		buf, t.Buf = t.Buf, buf[:len(t.Buf)]
	} else {
		buf = buf[:copy(buf[:cap(buf)], t.Buf)]
	}
	seg := t.Seg
	if seg <= 0 || seg > len(buf) {
		seg = len(buf)
	}
	c.mu.Lock()
	if !c.closed.Load() {
		c.queue.push(packetconn.Datagrams{Addr: from, Buf: buf, Seg: seg, TOS: t.TOS})
		if c.waiting > 0 {
			c.arrived.Signal()
		}
	}
	c.mu.Unlock()
}

// Recv waits for at least one train and takes as many as fit in trains. It
// exchanges the buffers of larger trains.
func (c *Conn) Recv(trains []packetconn.Datagrams) (int, error) { return c.recv(trains, true) }

// Poll takes what is there.
func (c *Conn) Poll(trains []packetconn.Datagrams) (int, error) { return c.recv(trains, false) }

func (c *Conn) recv(trains []packetconn.Datagrams, wait bool) (int, error) {
	if len(trains) == 0 {
		return 0, nil
	}
	if err := packetconn.CheckBuffers(trains); err != nil {
		return 0, err
	}
	// Small trains are copied after the lock is given back, for which the
	// caller's buffers are set aside.
	var own [trainsPerCall][]byte
	small := 0
	c.mu.Lock()
	for wait && c.queue.len() == 0 && !c.closed.Load() {
		c.waiting++
		c.arrived.Wait()
		c.waiting--
	}
	if c.closed.Load() {
		c.mu.Unlock()
		return 0, net.ErrClosed
	}
	n := min(len(trains), len(own), c.queue.len())
	for i := range n {
		t := &trains[i]
		buf := t.Buf
		*t = c.queue.pop()
		if cap(t.Buf) >= largeBuffer {
			c.large.put(buf)
			c.room += largeBuffer
			continue
		}
		own[i] = buf
		small++
	}
	if c.queue.len() > 0 && c.waiting > 0 {
		c.arrived.Signal() // another Recv can go on with the rest
	}
	c.mu.Unlock()
	if small == 0 {
		return n, nil
	}

	for i := range n {
		if own[i] != nil {
			t := &trains[i]
			t.Buf, own[i] = append(own[i][:0], t.Buf...), t.Buf
		}
	}
	c.mu.Lock()
	for _, buf := range own[:n] {
		if buf != nil {
			c.small.put(buf)
		}
	}
	c.room += small * smallBuffer
	c.mu.Unlock()
	return n, nil
}
