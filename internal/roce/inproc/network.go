package inproc

import (
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/packetconn"
)

// Options configure a Network. A nil *Options and the zero value select the defaults.
type Options struct {
	MTU   int // largest IP packet in bytes, headers included; 0: 65536, as on Linux's loopback
	Queue int // receive queue of a connection in bytes, rounded up to whole buffers; 0: DefaultQueue
}

// DefaultQueue is the default of Options.Queue in bytes: room for 128 of the largest
// trains or 1024 of up to 8 KiB.
const DefaultQueue = 8 << 20

const defaultMTU = 1 << 16

// Network connects everything that listens on it. It is safe for concurrent use. Closing
// its connections releases all its resources.
type Network struct {
	mtu, queue int

	// Every train looks up its destination, while connections rarely open or close.
	// conns is therefore read without a lock and replaced as a whole, under mu.
	mu    sync.Mutex
	conns atomic.Pointer[map[netip.AddrPort]*Conn]
	port  uint16 // the last port chosen for port 0
}

// firstPort is the first port to choose for port 0: the start of the ephemeral ports of
// RFC 6335.
const firstPort = 49152

// NewNetwork returns a network without connections.
func NewNetwork(opts *Options) *Network {
	n := &Network{mtu: defaultMTU, queue: DefaultQueue, port: firstPort - 1}
	if opts != nil && opts.MTU > 0 {
		n.mtu = opts.MTU
	}
	if opts != nil && opts.Queue > 0 {
		n.queue = opts.Queue
	}
	n.conns.Store(&map[netip.AddrPort]*Conn{})
	return n
}

// Listen returns a connection at addr. If the port is 0, Listen chooses a free one. It
// returns EADDRINUSE if the address is in use and EINVAL if it is not a unicast address.
func (n *Network) Listen(addr netip.AddrPort) (*Conn, error) {
	const op = "in-process listen"
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	if ip := addr.Addr(); !ip.IsValid() || ip.IsUnspecified() || ip.IsMulticast() {
		return nil, failure.New(op, syscall.EINVAL, "address %v: must be a unicast address", ip)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	old := *n.conns.Load()
	if addr.Port() == 0 {
		free, ok := n.freePort(addr.Addr(), old)
		if !ok {
			return nil, failure.New(op, syscall.EADDRINUSE, "%v has no free port", addr.Addr())
		}
		addr = free
	}
	if _, taken := old[addr]; taken {
		return nil, failure.New(op, syscall.EADDRINUSE, "%v is taken", addr)
	}
	c := newConn(n, addr)
	conns := maps.Clone(old)
	conns[addr] = c
	n.conns.Store(&conns)
	return c, nil
}

// freePort returns the next free port of ip, or false if all are in use.
func (n *Network) freePort(ip netip.Addr, taken map[netip.AddrPort]*Conn) (netip.AddrPort, bool) {
	for range 1<<16 - firstPort {
		n.port++
		if n.port < firstPort {
			n.port = firstPort
		}
		addr := netip.AddrPortFrom(ip, n.port)
		if _, ok := taken[addr]; !ok {
			return addr, true
		}
	}
	return netip.AddrPort{}, false
}

// remove removes c from the network, and returns false if it was removed before.
func (n *Network) remove(c *Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	old := *n.conns.Load()
	if old[c.local] != c {
		return false
	}
	conns := maps.Clone(old)
	delete(conns, c.local)
	n.conns.Store(&conns)
	return true
}

// lookup returns the connection that listens at addr, or nil.
func (n *Network) lookup(addr netip.AddrPort) *Conn { return (*n.conns.Load())[addr] }

// Pair returns two connections on a new network, at 192.0.2.1 and 192.0.2.2 with RoCEv2's
// port. RFC 5737 reserves these addresses for documentation.
func Pair(opts *Options) (a, b *Conn) {
	const port = 4791
	n := NewNetwork(opts)
	// Listen cannot fail: the network is empty and the addresses are valid.
	a, _ = n.Listen(netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}), port))
	b, _ = n.Listen(netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 2}), port))
	return a, b
}

var _ packetconn.Conn = (*Conn)(nil)
