package roce

import (
	"net/netip"

	"github.com/softmkey/softmkey/roce/packetconn"
)

// inside returns the link with address to, if packets to its QP number qpn pass inside the port;
// otherwise nil. A QP that does not exist may be another program's that shares the address.
func (p *Port) inside(to netip.AddrPort, qpn uint32) *link {
	if !p.isInside || qpn == gsiQPN || p.qps.get(qpn) == nil {
		return nil
	}
	return p.linkAt(to)
}

// linkAt returns the link with an address, or nil.
func (p *Port) linkAt(to netip.AddrPort) *link {
	for _, l := range p.gids() {
		if l.addr == to {
			return l
		}
	}
	return nil
}

// deliverInside delivers a train that was built for path w. The lock of its builder is held, and no
// QP's lock.
func (w *path) deliverInside(t packetconn.Datagrams) {
	t.Addr = w.source()
	w.near.deliver(&t, true, w.near.port.now())
}
