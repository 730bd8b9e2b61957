package roce

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/loan"
	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
)

// MaxMulticastGroups is the largest number of groups of a port, each of which has a socket,
// and MaxMulticastQPs the largest number of QPs in a group.
const (
	MaxMulticastGroups = 1 << 10
	MaxMulticastQPs    = 240
)

// multicast holds the groups in which a port's QPs are. A group has a Conn and a receive
// goroutine of its own.
type multicast struct {
	changing sync.Mutex // held while a QP is attached or detached

	mu     sync.Mutex // guards the following fields
	groups map[netip.Addr]*group
	closed bool
}

// group is a multicast group with at least one QP.
type group struct {
	addr netip.AddrPort
	conn packetconn.Conn
	qps  atomic.Pointer[[]*QP] // replaced as a whole
}

func (g *group) members() []*QP { return *g.qps.Load() }

// AttachMulticast lets a UD QP receive the datagrams that are sent to a multicast group of
// the family of one of the port's addresses, with the QP's Q_Key. The datagrams of QPs of the
// same port and of the same host are among them. A QP that is in the group already stays in
// it. Datagrams reach a group through an address handle with the group's address and
// MulticastQPN.
//
// It returns EINVAL for a QP of another type or a closed one and for an address that is no
// group, ENOMEM if the group or the port is full, EOPNOTSUPP if the network has no
// multicast, and otherwise the system's error.
func (q *QP) AttachMulticast(to netip.Addr) error {
	const op = "attach to a multicast group"
	to = to.Unmap().WithZone("")
	p := q.port
	switch {
	case q.typ != rdma.UD:
		return failure.New(op, syscall.EINVAL, "only UD QPs receive from groups")
	case !to.IsMulticast():
		return failure.New(op, syscall.EINVAL, "address %v: must be a multicast group's", to)
	}
	table := p.gids()
	i := slices.IndexFunc(table, func(l *link) bool { return l.addr.IsValid() && !l.v1 && l.addr.Addr().Is4() == to.Is4() })
	if i < 0 {
		return failure.New(op, syscall.EINVAL, "group %v: the port has no address of its family, only %v", to, table[0].addr.Addr())
	}
	l := table[i]
	m := &p.multicast
	m.changing.Lock()
	defer m.changing.Unlock()
	q.mu.Lock()
	closed := q.closed
	q.mu.Unlock()
	if closed {
		return failure.New(op, syscall.EINVAL, "group %v: the QP is closed", to)
	}
	m.mu.Lock()
	g, full := m.groups[to], len(m.groups)
	m.mu.Unlock()
	if g != nil {
		old := g.members()
		switch {
		case slices.Contains(old, q):
			return nil
		case len(old) >= MaxMulticastQPs:
			return failure.New(op, syscall.ENOMEM, "group %v: it has %d QPs, and no more fit", to, len(old))
		}
		qps := append(slices.Clone(old), q)
		g.qps.Store(&qps)
		return nil
	}
	if full >= MaxMulticastGroups {
		return failure.New(op, syscall.ENOMEM, "group %v: the port has %d groups, and no more fit", to, full)
	}
	conn, err := netconn.Join(l.conn, to)
	if err != nil {
		return err
	}
	g = &group{addr: netip.AddrPortFrom(to, l.addr.Port()), conn: conn}
	g.qps.Store(&[]*QP{q})
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		conn.Close()
		return net.ErrClosed
	}
	if m.groups == nil {
		m.groups = make(map[netip.Addr]*group)
	}
	m.groups[to] = g
	p.wg.Go(func() { p.receiveGroup(g) })
	return nil
}

// BlockOwnMulticast keeps the QP from receiving the datagrams that it sends to
// a group itself (IBV_QP_CREATE_BLOCK_SELF_MCAST_LB).
func (q *QP) BlockOwnMulticast() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.deaf = true
}

// DetachMulticast takes the QP out of a group. A datagram that has arrived may still be
// delivered while DetachMulticast runs. It returns EINVAL if the QP is not in the group.
func (q *QP) DetachMulticast(from netip.Addr) error {
	from = from.Unmap().WithZone("")
	m := &q.port.multicast
	m.changing.Lock()
	defer m.changing.Unlock()
	m.mu.Lock()
	g := m.groups[from]
	m.mu.Unlock()
	if g == nil || !slices.Contains(g.members(), q) {
		return failure.New("detach from a multicast group", syscall.EINVAL, "the QP is not in the group %v", from)
	}
	q.port.leaveGroup(from, g, q)
	return nil
}

// leaveGroup takes q out of g, and closes g if q was the last QP. The caller
// holds changing.
func (p *Port) leaveGroup(addr netip.Addr, g *group, q *QP) {
	qps := slices.DeleteFunc(slices.Clone(g.members()), func(e *QP) bool { return e == q })
	g.qps.Store(&qps)
	if len(qps) > 0 {
		return
	}
	p.multicast.mu.Lock()
	delete(p.multicast.groups, addr)
	p.multicast.mu.Unlock()
	g.conn.Close()
}

// leaveGroups takes a QP that is being closed out of all groups.
func (p *Port) leaveGroups(q *QP) {
	m := &p.multicast
	m.changing.Lock()
	defer m.changing.Unlock()
	m.mu.Lock()
	in := make(map[netip.Addr]*group)
	for addr, g := range m.groups {
		if slices.Contains(g.members(), q) {
			in[addr] = g
		}
	}
	m.mu.Unlock()
	for addr, g := range in {
		p.leaveGroup(addr, g, q)
	}
}

// close closes all groups, so that their goroutines end.
func (m *multicast) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for _, g := range m.groups {
		g.conn.Close()
	}
}

// receiveGroup is the receive goroutine of a group.
func (p *Port) receiveGroup(g *group) {
	trains := []packetconn.Train{{Buf: netconn.NewBuffer(packetconn.RecvSize)}}
	for {
		n, err := g.conn.Recv(trains)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			select {
			case <-p.done:
				return
			case <-time.After(time.Millisecond):
			}
			continue
		}
		for i := range trains[:n] {
			p.takeGroup(g, &trains[i])
			loan.End(trains[i].Buf)
		}
	}
}

// takeGroup delivers the packets of a train to all QPs of a group.
func (p *Port) takeGroup(g *group, t *packetconn.Train) {
	flow, from := wire.NewFlow(t.Addr, g.addr), origin{addr: t.Addr, route: t.Route}
	count := t.Count()
	for i := range count {
		b := t.At(i)
		var k packet
		if !k.parse(b) {
			p.n.Malformed.Add(1)
			continue
		}
		id, ok := flow.Front(len(b)).Check(b)
		switch {
		case !ok:
			p.n.BadICRC.Add(1)
			continue
		case binary.BigEndian.Uint32(b[4:])&psnMask != rdma.MulticastQPN:
			p.n.UnknownQP.Add(1)
			continue
		case k.service != wire.ServiceUD:
			p.n.WrongService.Add(1)
			continue
		case !k.inPartition():
			p.n.BadPKey.Add(1)
			continue
		}
		grh := wire.GRH{Src: t.Addr.Addr(), Dst: g.addr.Addr(), TOS: t.TOS, ID: id, Length: len(b), HopLimit: t.Route.HopLimit}
		for _, q := range g.members() {
			if n := q.lane.Load(); n != nil {
				n.multicast(&k, &grh, &from)
				continue
			}
			q.multicast(&k, &grh, &from)
		}
	}
	p.n.RecvTrains.Add(1)
	p.n.RecvPackets.Add(uint64(count))
	p.n.MulticastReceived.Add(uint64(count))
	p.n.RecvBytes.Add(uint64(len(t.Buf)))
}

// multicast handles a datagram of a group.
func (q *QP) multicast(k *packet, grh *wire.GRH, from *origin) {
	q.mu.Lock()
	defer q.mu.Unlock()
	own := q.deaf && k.deth.SrcQP == q.num && q.port.sentFrom(from.addr)
	if !own && (q.state == rdma.StateRTR || q.state == rdma.StateRTS) {
		q.datagram(k, grh, from)
		q.endBatch()
	}
}

// sentFrom reports whether addr is one of the port's own addresses.
func (p *Port) sentFrom(addr netip.AddrPort) bool {
	return slices.ContainsFunc(p.gids(), func(l *link) bool { return l.addr == addr })
}
