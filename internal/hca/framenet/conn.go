package framenet

import (
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/loan"
	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/packetconn"
)

const (
	// queueBytes bounds the payloads of the packets that wait to be received, plus
	// packetCost for each packet. It is reported as Caps.RecvBuffer, from which the port
	// computes its windows.
	queueBytes = 4 << 20
	packetCost = 256

	trainDatagrams = 128
	trainsPerCall  = 64
)

// Conn is a connection of a network. It follows the contract of packetconn.Conn.
type Conn struct {
	network *Network
	addr    Address
	local   netip.AddrPort // not valid: the connection has no address
	place   place
	limits  packetconn.Limits

	sending sync.Mutex
	frame   []byte // guarded by sending

	mu      sync.Mutex // guards the following fields
	arrived sync.Cond  // signalled when queue is not empty, or the Conn is closed
	queue   queue
	closed  bool
}

func newConn(n *Network, a Address, ip netip.Addr) *Conn {
	c := &Conn{network: n, addr: a, place: place{ip, a.VLAN, a.V1}}
	c.limits = packetconn.Limits{Datagrams: trainDatagrams, Bytes: packetconn.RecvSize, Trains: trainsPerCall}
	if ip.IsValid() {
		c.local = netip.AddrPortFrom(a.IP, udpPort)
		c.limits.Bytes = netconn.MaxBytes(a.IP)
	}
	c.arrived.L = &c.mu
	return c
}

// LocalAddr returns the connection's address with the UDP port of RoCEv2.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// Address returns the connection's address.
func (c *Conn) Address() Address { return c.addr }

// ID returns i.
func (c *Conn) ID(i int) uint16 { return uint16(i) }

// Limits returns the limits of a UDP socket on Linux.
func (c *Conn) Limits() packetconn.Limits { return c.limits }

// V1 implements netconn.Framer.
func (c *Conn) V1() bool { return c.addr.V1 }

// Caps returns the connection's properties.
func (c *Conn) Caps() packetconn.Caps {
	return packetconn.Caps{GSO: true, GRO: true, Batch: true, Poll: true, ECN: true, KnownID: true, RecvBuffer: queueBytes, MTU: MaxPacket}
}

// Join returns a connection that receives the packets to a multicast group.
func (c *Conn) Join(group netip.Addr) (packetconn.Conn, error) {
	group = group.Unmap().WithZone("")
	if c.addr.V1 {
		return nil, failure.New("join a multicast group", syscall.EOPNOTSUPP, "group %v: RoCE v1 has no groups here, use a GID of RoCE v2", group)
	}
	if !group.IsMulticast() || group.Is4() != c.addr.IP.Is4() {
		return nil, failure.New("join a multicast group", syscall.EINVAL, "group %v: must be a group of the family of %v", group, c.addr.IP)
	}
	m := newConn(c.network, c.addr, group)
	c.network.add(m)
	return m, nil
}

// Send sends the trains as frames. It does not block longer than the link.
func (c *Conn) Send(trains []packetconn.Train) (int, error) {
	c.sending.Lock()
	defer c.sending.Unlock()
	for i := range trains {
		if err := c.send(&trains[i]); err != nil {
			return i, err
		}
	}
	return len(trains), nil
}

func (c *Conn) send(t *packetconn.Train) error {
	const op = "send"
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	to := t.Addr.Addr()
	switch {
	case closed:
		return net.ErrClosed
	case !c.local.IsValid():
		return failure.New(op, syscall.EADDRNOTAVAIL, "to %v: the GID table's entry has no address", t.Addr)
	case c.addr.V1 && to.IsMulticast():
		return failure.New(op, syscall.EOPNOTSUPP, "to group %v: RoCE v1 has no groups here, use a GID of RoCE v2", to)
	case t.Addr.Port() != udpPort:
		return failure.New(op, syscall.EINVAL, "destination %v: must have port %d", t.Addr, udpPort)
	}
	if err := c.limits.Check(c.local.Addr(), t); err != nil {
		return err
	}
	if n := len(t.At(0)); n+netconn.Headers(to) > MaxPacket || c.addr.V1 && n+headerGRH > MaxPacket {
		return netconn.TooLarge(t, MaxPacket)
	}
	h := header{
		from: c.addr.MAC, to: t.Route.MAC, vlan: c.addr.VLAN, priority: t.Route.Priority & 7, src: c.local.Addr(), dst: to,
		srcPort: t.Route.SourcePort, tos: t.TOS, hopLimit: t.Route.HopLimit, v1: c.addr.V1,
	}
	if h.srcPort == 0 {
		h.srcPort = udpPort
	}
	leaves, stays := true, false
	switch {
	case to.IsMulticast():
		h.to, stays = groupMAC(to), true
	case h.to == MAC{}:
		return failure.New(op, syscall.EHOSTUNREACH, "to %v: the MAC address of the next hop is not known", to)
	case c.network.own(h.to, h.vlan):
		leaves, stays = false, true
	}
	for i := range t.Count() {
		b := t.At(i)
		if c.frame == nil {
			c.frame = make([]byte, maxHeaders+MaxPacket)
		}
		h.id = c.ID(i)
		n := h.put(c.frame, len(b))
		n += copy(c.frame[n:], b)
		if h.v1 && len(b) >= wire.BTHLen+wire.ICRCLen {
			toV1(&h, c.frame[n-len(b):n])
		}
		if stays {
			c.network.Receive(c.frame[:n])
		}
		if leaves {
			c.network.transmit(c.frame[:n])
			loan.End(c.frame[:n])
		}
	}
	return nil
}

// arrive queues a packet, or drops it if the queue is full.
func (c *Conn) arrive(d datagram, payload []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && c.queue.push(d, payload) {
		c.arrived.Signal()
	}
}

// Recv waits for packets. Consecutive packets from one sender make a train.
func (c *Conn) Recv(trains []packetconn.Train) (int, error) { return c.recv(trains, true) }

// Poll is Recv without waiting.
func (c *Conn) Poll(trains []packetconn.Train) (int, error) { return c.recv(trains, false) }

func (c *Conn) recv(trains []packetconn.Train, wait bool) (n int, err error) {
	if len(trains) == 0 {
		return 0, nil
	}
	if err := netconn.CheckBuffers(trains); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for wait && c.queue.empty() && !c.closed {
		c.arrived.Wait()
	}
	if c.closed {
		return 0, net.ErrClosed
	}
	for n < len(trains) && c.queue.train(&trains[n]) {
		n++
	}
	if !c.queue.empty() {
		c.arrived.Signal() // another Recv can receive the remaining packets
	}
	return n, nil
}

// Close ends the connection and unblocks Recv. Queued packets are lost.
func (c *Conn) Close() error {
	c.mu.Lock()
	closed := c.closed
	c.closed, c.queue = true, queue{}
	c.arrived.Broadcast()
	c.mu.Unlock()
	if closed {
		return net.ErrClosed
	}
	if c.local.IsValid() {
		c.network.remove(c)
	}
	return nil
}
