package pcap

import (
	"net/netip"

	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/packetconn"
)

// conn records the packets of the connection inside. All other methods are that
// connection's.
type conn struct {
	netconn.Conn
	r      *Recorder
	intf   int
	local  netip.AddrPort
	routes bool     // trains name the UDP port from which they are sent
	ids    idSolver // for packets that were received; guarded by r.mu
	lost   idSolver // for packets that were lost on purpose; guarded by r.mu
}

// Wrap returns a connection that is recorded. Closing it closes c, and not the
// Recorder.
func (r *Recorder) Wrap(c packetconn.Conn) packetconn.Conn {
	_, routes := netconn.As[netconn.Framer](c)
	w := &conn{Conn: netconn.Of(c), r: r, local: c.LocalAddr(), routes: routes}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed && r.err == nil {
		w.intf = r.addInterface(w.local.String())
	}
	return w
}

// Unwrap implements packetconn.Wrapper.
func (c *conn) Unwrap() packetconn.Conn { return c.Conn }

// Join implements packetconn.Joiner. The group has an interface of its own in the recording.
func (c *conn) Join(group netip.Addr) (packetconn.Conn, error) {
	joined, err := netconn.Join(c.Conn, group)
	if err != nil {
		return nil, err
	}
	return c.r.Wrap(joined), nil
}

// Send sends through the connection inside. It holds the recorder's lock, so that an
// answer cannot be recorded before its request.
func (c *conn) Send(trains []packetconn.Train) (int, error) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	when := c.r.now()
	c.r.trains = append(c.r.trains[:0], trains...)
	for i := range c.r.trains {
		c.r.trains[i].Swap = false // the buffers are read again for the recording
	}
	n, err := c.Conn.Send(c.r.trains)
	for i := range trains[:n] {
		t := &trains[i]
		for k := range t.Count() {
			c.r.packet = appendPacket(c.r.packet[:0], c.source(t), t.Addr, t.TOS, t.Route.HopLimit, c.ID(k), t.At(k))
			c.r.writePacket(c.intf, when, &outbound)
		}
	}
	return n, err
}

// source returns the socket that a train leaves from.
func (c *conn) source(t *packetconn.Train) netip.AddrPort {
	if p := t.Route.SourcePort; p != 0 && c.routes {
		return netip.AddrPortFrom(c.local.Addr(), p)
	}
	return c.local
}

// Recv receives from the connection inside.
func (c *conn) Recv(trains []packetconn.Train) (int, error) {
	n, err := c.Conn.Recv(trains)
	c.record(trains[:n])
	return n, err
}

// Poll polls the connection inside.
func (c *conn) Poll(trains []packetconn.Train) (int, error) {
	n, err := c.Conn.Poll(trains)
	c.record(trains[:n])
	return n, err
}

// Lost records a datagram that was not sent, because a connection that wraps c loses it on
// purpose. Wrap must have returned c. The packet has the time of the call and the comment
// LostComment.
func (r *Recorder) Lost(c packetconn.Conn, d packetconn.Train) {
	w, ok := c.(*conn)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	when := r.now()
	for k := range d.Count() {
		p := d.At(k)
		r.packet = appendPacket(r.packet[:0], w.source(&d), d.Addr, d.TOS, d.Route.HopLimit, w.lost.solve(w.source(&d), d.Addr, p), p)
		r.writePacket(w.intf, when, &lost)
	}
}

// record writes the packets that were received. Packets that the connection sent to itself were
// recorded when they were sent. If several processes share the address, record cannot know which of
// them sent a packet, so packets of the connection to itself are recorded twice.
func (c *conn) record(trains []packetconn.Train) {
	if len(trains) == 0 {
		return
	}
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	when := c.r.now()
	m, ok := netconn.As[netconn.Member](c.Conn)
	shared := ok && m.Shared()
	for i := range trains {
		t := &trains[i]
		if (t.Addr == c.local || c.routes && t.Addr.Addr() == c.local.Addr()) && !shared {
			continue
		}
		for k := range t.Count() {
			p := t.At(k)
			c.r.packet = appendPacket(c.r.packet[:0], t.Addr, c.local, t.TOS, t.Route.HopLimit, c.ids.solve(t.Addr, c.local, p), p)
			c.r.writePacket(c.intf, when, &inbound)
		}
	}
}

// idSolver finds the IPv4 identification of received packets. It caches the flow of
// the last peer.
type idSolver struct {
	from netip.AddrPort
	flow wire.Flow
}

// solve returns the identification that makes p's invariant CRC right, or 0.
func (s *idSolver) solve(from, to netip.AddrPort, p []byte) uint16 {
	if !from.Addr().Is4() || len(p) < wire.MinPacket || len(p) > wire.MaxPacket {
		return 0
	}
	if from != s.from {
		s.from, s.flow = from, wire.NewFlow(from, to)
	}
	id, ok := s.flow.Front(len(p)).Check(p)
	if !ok {
		return 0
	}
	return id
}
