package framenet

import (
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/packetconn"
)

// MaxPacket is the largest IP packet.
const MaxPacket = 10000 - 22 // of the port's MTU, without the headers of Ethernet, a tag and the FCS

// udpPort is the UDP port of RoCEv2. The network ignores packets to other ports.
const udpPort = 4791

// MAC is an Ethernet address.
type MAC = [6]byte

// Address is the address of a connection. With V1 its packets are those of RoCE v1, and IP is its GID.
type Address struct {
	IP   netip.Addr
	MAC  MAC
	VLAN int // 1 to 4094; 0: frames without a tag
	V1   bool
}

// place is the destination by which a frame is delivered to connections.
type place struct {
	ip   netip.Addr
	vlan int
	v1   bool
}

// Network is one end of a link of Ethernet frames. Its methods are safe for concurrent use.
type Network struct {
	transmit func(frame []byte)

	mu     sync.RWMutex // guards the following field
	places map[place][]*Conn
}

// New returns a network without connections. transmit sends a frame and must not keep it. Several
// connections may call transmit at the same time.
func New(transmit func(frame []byte)) *Network {
	return &Network{transmit: transmit, places: make(map[place][]*Conn)}
}

// Listen returns a new connection with an address. It returns EADDRINUSE if a connection has the
// same IP address and VLAN, and EINVAL if the address is not that of a single host.
func (n *Network) Listen(a Address) (*Conn, error) {
	const op = "listen for frames"
	a.IP = a.IP.Unmap().WithZone("")
	switch {
	case !a.IP.IsValid() || a.IP.IsUnspecified() || a.IP.IsMulticast():
		return nil, failure.New(op, syscall.EINVAL, "address %v: must be one host's", a.IP)
	case a.MAC[0]&1 != 0 || a.MAC == MAC{}:
		return nil, failure.New(op, syscall.EINVAL, "MAC address %x of %v: must be one interface's", a.MAC, a.IP)
	case a.VLAN < 0 || a.VLAN > 4094:
		return nil, failure.New(op, syscall.EINVAL, "VLAN %d of %v: must be 1 to 4094, or 0 for none", a.VLAN, a.IP)
	}
	c := newConn(n, a, a.IP)
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.places[c.place]) > 0 {
		return nil, failure.New(op, syscall.EADDRINUSE, "address %v is in use", a.IP)
	}
	n.places[c.place] = []*Conn{c}
	return c, nil
}

// Absent returns a connection without an address: nothing arrives at it, and nothing can be
// sent from it. It stands for an empty entry of a table of addresses.
func (n *Network) Absent() *Conn { return newConn(n, Address{}, netip.Addr{}) }

func (n *Network) add(c *Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.places[c.place] = append(slices.Clone(n.places[c.place]), c)
}

func (n *Network) remove(c *Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(n.places[c.place]), func(e *Conn) bool { return e == c })
	if n.places[c.place] = left; len(left) == 0 {
		delete(n.places, c.place)
	}
}

// listeners returns the connections that receive a frame. The slice does not change after the
// call, even if connections are opened or closed.
func (n *Network) listeners(to place, mac MAC) []*Conn {
	n.mu.RLock()
	defer n.mu.RUnlock()
	all := n.places[to]
	if len(all) > 0 && !to.ip.IsMulticast() && all[0].addr.MAC != mac {
		return nil
	}
	return all
}

// own reports whether a MAC address is one of the network's own in a VLAN.
func (n *Network) own(mac MAC, vlan int) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for to, all := range n.places {
		if to.vlan == vlan && !to.ip.IsMulticast() && all[0].addr.MAC == mac {
			return true
		}
	}
	return false
}

// Receive takes a frame from the link and reports whether it is a packet for a connection. It
// does not keep the frame. Fragments and headers with options do not count as packets, because
// RoCEv2 has neither.
func (n *Network) Receive(frame []byte) bool {
	h, payload, ok := parse(frame)
	if !ok {
		return false
	}
	all := n.listeners(place{h.dst, h.vlan, h.v1}, h.to)
	if len(all) == 0 {
		return false
	}
	if h.v1 {
		payload = fromV1(&h, payload)
	}
	d := datagram{
		addr: netip.AddrPortFrom(h.src, h.srcPort), tos: h.tos, n: len(payload),
		route: packetconn.Route{MAC: h.from, HopLimit: h.hopLimit, Priority: h.priority},
	}
	for _, c := range all {
		c.arrive(d, payload)
	}
	// The link's other users may be members of the group, too.
	return !h.dst.IsMulticast()
}
