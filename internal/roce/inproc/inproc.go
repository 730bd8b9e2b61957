// Package inproc is a network inside one process, for tests and examples: the devices of a program reach each
// other without sockets.
//
// A [Network] behaves like one Ethernet segment. [Network.Listen] opens a connection at
// any address, which need not belong to the host, and every connection reaches every
// other. The network follows the rules of UDP: trains have the same limits, datagrams above the MTU are
// refused, and datagrams to an address without a listener, or to a full queue, are dropped. It never loses,
// reorders or damages datagrams otherwise. Package netem adds those faults.
//
// Delivery takes no time. A goroutine that waits in Recv is durably blocked in the sense
// of testing/synctest.
package inproc

import (
	"net"
	"net/netip"
	"runtime"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/packetconn"
)

// Options configure a Network. A nil *Options and the zero value select the defaults.
type Options struct {
	MTU int // largest IP packet in bytes, headers included; 0: 65536, as on Linux's loopback
}

// queueSize is the receive queue of a connection in bytes. A train of at most smallTrain bytes counts as that, a
// larger one as packetconn.RecvSize.
const (
	queueSize  = 8 << 20
	smallTrain = 8 << 10
)

// firstPort is the first port to choose for port 0: the start of the ephemeral ports of RFC 6335.
const firstPort = 49152

// Network connects everything that listens on it. It is safe for concurrent use.
type Network struct {
	mtu   int
	mu    sync.RWMutex // guards the following fields
	conns map[netip.AddrPort]*Conn
	next  uint16 // how many ports were chosen for port 0
}

// NewNetwork returns a network without connections.
func NewNetwork(opts *Options) *Network {
	n := &Network{mtu: 1 << 16, conns: map[netip.AddrPort]*Conn{}}
	if opts != nil && opts.MTU > 0 {
		n.mtu = opts.MTU
	}
	return n
}

// Listen returns a connection at addr. If the port is 0, Listen chooses one that it has not chosen before. It
// returns EADDRINUSE if the address is in use and EINVAL if it is not a unicast address.
func (n *Network) Listen(addr netip.AddrPort) (*Conn, error) {
	const op = "in-process listen"
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	if ip := addr.Addr(); !ip.IsValid() || ip.IsUnspecified() || ip.IsMulticast() {
		return nil, failure.New(op, syscall.EINVAL, "address %v: must be a unicast address", ip)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if addr.Port() == 0 {
		addr = netip.AddrPortFrom(addr.Addr(), firstPort+n.next%(1<<16-firstPort))
		n.next++
	}
	if n.conns[addr] != nil {
		return nil, failure.New(op, syscall.EADDRINUSE, "%v is taken", addr)
	}
	c := &Conn{network: n, local: addr, limits: packetconn.Limits{Datagrams: 128, Bytes: netconn.MaxBytes(addr.Addr()), Trains: 64}, room: queueSize}
	c.arrived.L = &c.mu
	n.conns[addr] = c
	return c, nil
}

// lookup returns the connection that listens at addr, or nil.
func (n *Network) lookup(addr netip.AddrPort) *Conn {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.conns[addr]
}

// Pair returns two connections on a new network, at 192.0.2.1 and 192.0.2.2 with RoCEv2's
// port. RFC 5737 reserves these addresses for documentation.
func Pair(opts *Options) (a, b *Conn) {
	n := NewNetwork(opts)
	// Listen cannot fail: the network is empty and the addresses are valid.
	a, _ = n.Listen(netip.MustParseAddrPort("192.0.2.1:4791"))
	b, _ = n.Listen(netip.MustParseAddrPort("192.0.2.2:4791"))
	return a, b
}

// Conn is a connection to a Network. It follows the contract of packetconn.Conn, as a UDP
// socket's connection does.
type Conn struct {
	network *Network
	local   netip.AddrPort
	limits  packetconn.Limits
	sending sync.Mutex // keeps the trains of one Send together

	mu      sync.Mutex // guards the following fields
	arrived sync.Cond  // signals that the queue is not empty or that the Conn is closed
	closed  bool
	queue   []packetconn.Train // each Buf has a capacity of packetconn.RecvSize
	room    int                // remaining capacity of the queue
	free    [][]byte           // buffers that Recv got in exchange
}

var _ packetconn.Conn = (*Conn)(nil)

// LocalAddr returns the address passed to Listen, with the chosen port if that was 0.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// ID returns i, because the Linux kernel numbers the datagrams of a GSO train in this
// way.
func (c *Conn) ID(i int) uint16 { return uint16(i) }

// Limits returns the limits of a UDP socket on Linux.
func (c *Conn) Limits() packetconn.Limits { return c.limits }

// Caps returns the capabilities of a UDP socket with every optional feature.
func (c *Conn) Caps() packetconn.Caps {
	return packetconn.Caps{GSO: true, GRO: true, Batch: true, Poll: true, ECN: true, KnownID: true, RecvBuffer: queueSize, MTU: c.network.mtu}
}

// Close removes the Conn from the network and unblocks Recv. Queued trains are lost.
func (c *Conn) Close() error {
	c.network.mu.Lock()
	open := c.network.conns[c.local] == c
	if open {
		delete(c.network.conns, c.local)
	}
	c.network.mu.Unlock()
	if !open {
		return net.ErrClosed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed, c.queue, c.free = true, nil, nil
	c.arrived.Broadcast()
	return nil
}

// Send queues copies of the trains at the connections that listen at their addresses. It never
// blocks.
func (c *Conn) Send(trains []packetconn.Train) (int, error) {
	c.sending.Lock()
	defer c.sending.Unlock()
	for i := range trains {
		if c.network.lookup(c.local) != c {
			return i, net.ErrClosed
		}
		t := &trains[i]
		if err := c.limits.Check(c.local.Addr(), t); err != nil {
			return i, err
		}
		if len(t.At(0))+netconn.Headers(c.local.Addr()) > c.network.mtu {
			return i, netconn.TooLarge(t, c.network.mtu)
		}
		if to := c.network.lookup(t.Addr); to != nil {
			to.deliver(t, c.local)
		}
	}
	return len(trains), nil
}

// cost returns how much of a queue a train takes.
func cost(t *packetconn.Train) int {
	if len(t.Buf) > smallTrain {
		return packetconn.RecvSize
	}
	return smallTrain
}

// deliver queues a copy of t, or drops t if the queue is full.
func (c *Conn) deliver(t *packetconn.Train, from netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.room < cost(t) {
		// A receiver that shares the processor with the sender may then empty its queue.
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	if c.room < cost(t) || c.closed {
		return
	}
	var buf []byte
	if n := len(c.free); n > 0 {
		buf, c.free = c.free[n-1], c.free[:n-1]
	} else {
		buf = netconn.NewBuffer(packetconn.RecvSize)
	}
	buf = append(buf[:0], t.Buf...)
	seg := t.Seg
	if seg <= 0 || seg > len(buf) {
		seg = len(buf)
	}
	c.queue = append(c.queue, packetconn.Train{Addr: from, Buf: buf, Seg: seg, TOS: t.TOS, Route: packetconn.Route{HopLimit: t.Route.HopLimit}})
	c.room -= cost(t)
	c.arrived.Signal()
}

// Recv waits for at least one train and returns as many as fit in trains, whose buffers it exchanges.
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
	c.mu.Lock()
	defer c.mu.Unlock()
	for wait && len(c.queue) == 0 && !c.closed {
		c.arrived.Wait()
	}
	if c.closed {
		return 0, net.ErrClosed
	}
	n := min(len(trains), len(c.queue))
	for i := range n {
		if len(c.free) < c.limits.Trains {
			c.free = append(c.free, trains[i].Buf)
		}
		trains[i] = c.queue[i]
		c.room += cost(&trains[i])
	}
	c.queue = append(c.queue[:0], c.queue[n:]...)
	if len(c.queue) > 0 {
		c.arrived.Signal() // another Recv can take the remaining trains
	}
	return n, nil
}
