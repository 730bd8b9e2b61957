package roce

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/operr"
)

// evidence holds hints why a host does not answer, which the QPs connected to it have collected. Anybody can
// forge the packets that they come from, so evidence is only used in the text of errors.
type evidence struct {
	elsewhere atomic.Pointer[netip.Addr] // an address other than the host's from which packets to one of these QPs came; nil: none
	rewritten atomic.Uint32              // source port of packets whose CRC is only right for the host's own port, so NAT changed it; 0: none
}

// A refusal is a train that the system did not send.
type refusal struct {
	to  netip.Addr
	err error
}

// refuse notes the error of a train to an address, by its errno if it has one.
func (l *link) refuse(to netip.Addr, err error) {
	var e *operr.Error
	if errors.As(err, &e) {
		err = e.Errno
	}
	l.refused.Store(&refusal{to, err})
}

// noteBadCRC handles packet b, whose CRC is wrong. If the CRC is right for the peer's own source port, NAT has
// changed the port, and the peer's evidence records that.
func (q *QP) noteBadCRC(b []byte) {
	if q.peer == nil || q.peer.seen.rewritten.Load() != 0 || q.fromPort == q.recv.Peer.Port() {
		return
	}
	flow := wire.NewFlow(q.recv.Peer, q.link.addr)
	if _, ok := flow.Front(len(b)).Check(b); ok {
		q.peer.seen.rewritten.Store(uint32(q.fromPort))
	}
}

// noteStranger notes that a packet to the QP came from another address than the peer's.
func (q *QP) noteStranger(addr netip.Addr) {
	if q.peer == nil {
		return
	}
	if old := q.peer.seen.elsewhere.Load(); old == nil || *old != addr {
		q.peer.seen.elsewhere.Store(&addr)
	}
}

// silence returns why the peer may not answer, as the end of a sentence, or nothing if it has
// answered before.
func (q *QP) silence() string {
	if q.peer == nil || q.near {
		return ""
	}
	to, own := q.recv.Peer.Addr(), q.link.addr.Addr()
	refused := q.link.refused.Load()
	rewritten, elsewhere := q.peer.seen.rewritten.Load(), q.peer.seen.elsewhere.Load()
	switch p, qpn := q.port, q.recv.DestQPN; {
	case to == own && qpn-p.first < p.count && !p.has(qpn):
		return fmt.Sprintf("; this device has no QP %#x", qpn)
	case rewritten != 0:
		return fmt.Sprintf("; packets of the peer arrive from UDP port %d with a checksum for port %d: NAT on the way rewrites ports, which RoCEv2 does not pass", rewritten, q.recv.Peer.Port())
	case elsewhere != nil:
		return fmt.Sprintf("; packets for this QP come from %v instead: NAT is on the way, or the peer's device has another address", *elsewhere)
	case q.peer.heard.Load() != 0:
		return ""
	case own.IsLoopback() && !to.IsLoopback():
		return fmt.Sprintf("; this device is on %v, which reaches this host only: it needs an address of the network", own)
	case to.IsLoopback():
		return fmt.Sprintf("; %v is this host: if the peer is on another one, its device needs an address of the network", to)
	case refused != nil && refused.to == to && refused.err == syscall.EPERM:
		return fmt.Sprintf("; this host's firewall does not let UDP port %d out (%v)", q.recv.Peer.Port(), refused.err)
	case refused != nil && refused.to == to:
		return fmt.Sprintf("; this host does not send there: %v", refused.err)
	}
	return fmt.Sprintf("; no acknowledgement has ever come from there: no device has that address, a firewall drops UDP port %d, or NAT rewrites it", q.recv.Peer.Port())
}
