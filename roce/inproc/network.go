package inproc

import (
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/roce/packetconn"
)

// Options tune a Network. The zero value, and nil, mean the defaults.
type Options struct {
	MTU   int // the largest IP packet, headers included; 0: 65536, as on Linux's loopback
	Queue int // bytes that may wait at a connection, rounded up to whole buffers; 0: DefaultQueue
}

// DefaultQueue is 128 of the largest trains or 1024 of up to 8 KiB.
const DefaultQueue = 8 << 20

const defaultMTU = 1 << 16

// Network connects everything that listens on it. It is safe for concurrent use.
// It holds no resources of its own: closing its connections is enough.
type Network struct {
	mtu, queue int

	// Looking up a destination is on the way of every train, listening is rare:
	// conns is replaced as a whole, under mu, and read without.
	mu    sync.Mutex
	conns atomic.Pointer[map[netip.AddrPort]*Conn]
	port  uint16 // the last one given out for port 0
}

// firstPort starts the range of ports for those who ask for none in particular:
// the ephemeral ports of RFC 6335.
const firstPort = 49152

// NewNetwork returns a network with nobody on it.
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

// Listen returns a connection at addr; port 0 picks a free port. It fails with
// EADDRINUSE if the address is taken and with EINVAL if it is not a unicast one.
func (n *Network) Listen(addr netip.AddrPort) (*Conn, error) {
	const op = "in-process listen"
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	if ip := addr.Addr(); !ip.IsValid() || ip.IsUnspecified() || ip.IsMulticast() {
		return nil, operr.New(op, syscall.EINVAL, "address %v: must be a unicast address", ip)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	old := *n.conns.Load()
	if addr.Port() == 0 {
		free, ok := n.freePort(addr.Addr(), old)
		if !ok {
			return nil, operr.New(op, syscall.EADDRINUSE, "%v has no free port", addr.Addr())
		}
		addr = free
	}
	if _, taken := old[addr]; taken {
		return nil, operr.New(op, syscall.EADDRINUSE, "%v is taken", addr)
	}
	c := newConn(n, addr)
	conns := maps.Clone(old)
	conns[addr] = c
	n.conns.Store(&conns)
	return c, nil
}

// freePort looks for a port once around the range.
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

// remove takes c off the network; false if it was not on it.
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

// lookup returns who listens at addr, or nil.
func (n *Network) lookup(addr netip.AddrPort) *Conn { return (*n.conns.Load())[addr] }

// Pair returns two connections on a network of their own, for those who need no
// more: the addresses are 192.0.2.1 and 192.0.2.2, which RFC 5737 keeps free for
// documentation, with RoCEv2's port.
func Pair(opts *Options) (a, b *Conn) {
	const port = 4791
	n := NewNetwork(opts)
	// Neither can fail: the network is empty and the addresses are good.
	a, _ = n.Listen(netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}), port))
	b, _ = n.Listen(netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 2}), port))
	return a, b
}

var _ packetconn.Conn = (*Conn)(nil)
