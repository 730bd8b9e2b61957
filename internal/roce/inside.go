package roce

import (
	"net/netip"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/packetconn"
)

// inside returns the link with address to, if packets to its QP number qpn pass
// inside the port; otherwise nil. If the port has no QP with that number, the
// packets leave the port: the QP may belong to another process that shares the
// address.
func (p *Port) inside(to netip.AddrPort, qpn uint32) *link {
	if !p.isInside || qpn == gsiQPN || !p.has(qpn) {
		return nil
	}
	return p.linkAt(to)
}

// has reports whether the port has a QP with a number.
func (p *Port) has(qpn uint32) bool {
	_, ok := p.qps.Get(qpn)
	return ok
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

// insideMTU is the packet payload of acknowledged connections inside the port,
// in place of the path MTU. Both sides
// use it, because each finds the other on its own port. It is so long that a memory key which has to
// copy reads the payload into the packet at once, and not through its read-ahead. Connections of the dynamically
// connected transport keep the path MTU: an initiator counts the packets of its requests
// before it is connected to their target.
const insideMTU = 32 << 10

// mtu returns the payload of a full packet, which is the path MTU or what both ends agreed on.
func (q *endpoint) mtu() int {
	if q.near && q.acknowledged() && q.dynamicEnd == noDynamicEnd {
		return insideMTU
	}
	return int(q.recv.MTU)
}

// mtuOf returns the payload of a full packet of a request, or of its responses. A QP whose packets
// pass through memory of another process sends packets that are as long as inside the port, which
// the peer accepts from memory. For READs both sides must count with the same size, which is the
// path MTU, because the peer need not reach this process by memory, too.
func (q *endpoint) mtuOf(w *Work) int {
	if q.ring && w.Op != ibv.WRRead {
		return insideMTU
	}
	return q.mtu()
}

// medium is what received packets have passed through. Packets that passed through memory need no CRC.
type medium uint8

const (
	overNetwork medium = iota
	overMemory         // of this process and another one
	insidePort
)

// largest returns the length of the largest packet that the QP accepts from its
// present source, the network or the port itself.
func (q *endpoint) largest() int {
	if q.via != overNetwork {
		return wire.MaxHeaders + insideMTU
	}
	return wire.MaxHeaders + max(largestMTU, int(q.recv.MTU))
}

// deliverInside delivers a train that was built for path w. The lock of its builder is held, and no
// QP's lock.
func (w *path) deliverInside(t packetconn.Train) {
	t.Addr = w.source()
	w.near.deliver(&t, true, w.near.port.now())
}
