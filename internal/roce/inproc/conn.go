package inproc

import (
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/packetconn"
)

// Sizes of the buffers that hold queued trains. A train that fits a small buffer, for
// example an acknowledgement or a single packet, is copied to the receiver's buffer. A
// larger train is not: the receiver gets the large buffer itself and gives its own in
// exchange. The sender exchanges buffers in the same way if it sets Swap.
const (
	smallBuffer = 8 << 10
	largeBuffer = packetconn.RecvSize
)

// datagramsPerTrain is the largest number of segments in a GSO call of newer Linux
// kernels.
const datagramsPerTrain = 128

// trainsPerCall is the number of trains per call that Limits reports. Send and
// Recv make no system calls, so its value has little effect.
const trainsPerCall = 64

// Conn is a connection to a Network. It follows the contract of packetconn.Conn, as a UDP
// socket's connection does: Send and Recv may run concurrently, several Sends or several
// Recvs take turns, and all return net.ErrClosed after Close.
type Conn struct {
	network *Network
	local   netip.AddrPort
	limits  packetconn.Limits
	closed  atomic.Bool

	txMu sync.Mutex // keeps the trains of one Send together
	sent counters

	mu      sync.Mutex
	arrived sync.Cond // signals, under mu, that the queue is not empty or that the Conn is closed
	waiting int       // number of goroutines in arrived.Wait
	queue   ring
	room    int // remaining capacity of the queue, in bytes of buffers
	small   pool
	large   pool
	lost    uint64 // datagrams dropped because the queue was full
}

// counters are written by one sender at a time and read at any time.
type counters struct {
	trains, datagrams, bytes, unreachable atomic.Uint64
}

// Counters count the traffic of a Conn.
type Counters struct {
	Trains      uint64 // trains sent, delivered or not
	Datagrams   uint64 // datagrams sent in those trains
	Bytes       uint64 // payload bytes sent
	Unreachable uint64 // datagrams sent to an address without a listener
	Lost        uint64 // datagrams that arrived here and were dropped because the queue was full
}

func newConn(n *Network, addr netip.AddrPort) *Conn {
	c := &Conn{
		network: n,
		local:   addr,
		limits:  packetconn.Limits{Datagrams: datagramsPerTrain, Bytes: netconn.MaxBytes(addr.Addr()), Trains: trainsPerCall},
		room:    max(n.queue, largeBuffer),
		small:   pool{size: smallBuffer},
		large:   pool{size: largeBuffer},
	}
	c.arrived.L = &c.mu
	return c
}

// LocalAddr returns the address passed to Listen, with the chosen port if that was 0.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// ID returns i, because the Linux kernel numbers the datagrams of a GSO train in this
// way.
func (c *Conn) ID(i int) uint16 { return uint16(i) }

// Limits returns the limits of a UDP socket on Linux.
func (c *Conn) Limits() packetconn.Limits { return c.limits }

// Caps returns the capabilities of a UDP socket with every optional feature.
func (c *Conn) Caps() packetconn.Caps {
	return packetconn.Caps{GSO: true, GRO: true, Batch: true, Poll: true, ECN: true, KnownID: true, RecvBuffer: max(c.network.queue, largeBuffer), MTU: c.network.mtu}
}

// Counters returns a snapshot of the counters.
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

// Close removes the Conn from the network and unblocks Recv. Queued trains are lost.
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

// Send queues the trains at the connections that listen at their addresses. It never
// blocks.
func (c *Conn) Send(trains []packetconn.Train) (int, error) {
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
		if len(t.At(0))+netconn.Headers(c.local.Addr()) > c.network.mtu {
			return i, netconn.TooLarge(t, c.network.mtu)
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

// deliver queues t or a copy of it, or drops t if the queue is full.
func (c *Conn) deliver(t *packetconn.Train, from netip.AddrPort) {
	p := &c.small
	if len(t.Buf) > smallBuffer {
		p = &c.large
	}
	c.mu.Lock()
	if c.room < p.size {
		// Yield once: a receiver that shares the processor with the sender may
		// then empty its queue.
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

	// The copy is made without the lock, so that the receiver can work at the same
	// time. Trains of one sender stay in order, because it delivers one at a time.
	if buf == nil {
		buf = netconn.NewBuffer(p.size)
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
		c.queue.push(packetconn.Train{Addr: from, Buf: buf, Seg: seg, TOS: t.TOS, Route: packetconn.Route{HopLimit: t.Route.HopLimit}})
		if c.waiting > 0 {
			c.arrived.Signal()
		}
	}
	c.mu.Unlock()
}

// Recv waits for at least one train and returns as many as fit in trains. It exchanges
// the buffers of larger trains.
func (c *Conn) Recv(trains []packetconn.Train) (int, error) { return c.recv(trains, true) }

// Poll is Recv without waiting.
func (c *Conn) Poll(trains []packetconn.Train) (int, error) { return c.recv(trains, false) }

func (c *Conn) recv(trains []packetconn.Train, wait bool) (int, error) {
	if len(trains) == 0 {
		return 0, nil
	}
	if err := netconn.CheckBuffers(trains); err != nil {
		return 0, err
	}
	// Small trains are copied after the lock is released; own holds the caller's
	// buffers until then.
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
		c.arrived.Signal() // another Recv can take the remaining trains
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
