package netem

import (
	"net/netip"
	"sync/atomic"

	"github.com/softmkey/softmkey/internal/roce/inproc"
)

// Network is an in-process network on which every connection has faults.
type Network struct {
	inner  *inproc.Network
	seed   uint64
	faults Faults
	opts   *Options
	count  atomic.Uint64
}

// NewNetwork returns a network without connections. Connection n that listens, counted
// from 0, uses seed+n.
func NewNetwork(seed uint64, f Faults, opts *Options) *Network {
	f.withDefaults() // panics here rather than in Listen
	return &Network{inner: inproc.NewNetwork(nil), seed: seed, faults: f, opts: opts}
}

// Listen returns a connection at addr, as inproc.Network.Listen does.
func (n *Network) Listen(addr netip.AddrPort) (*Conn, error) {
	c, err := n.inner.Listen(addr)
	if err != nil {
		return nil, err
	}
	return Wrap(c, n.seed+n.count.Add(1)-1, n.faults, n.opts), nil
}

// Pair returns two connections with faults in both directions, at 192.0.2.1 and 192.0.2.2
// with RoCEv2's port.
func Pair(seed uint64, f Faults, opts *Options) (a, b *Conn) {
	x, y := inproc.Pair(nil)
	return Wrap(x, seed, f, opts), Wrap(y, seed+1, f, opts)
}
