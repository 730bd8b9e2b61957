// Package netconn defines what the networks of this module can do beyond [packetconn.Conn], as optional interfaces such
// as [Neighbor]. It also has what these networks have in common: the sizes of packets, and the place of a packet in a
// buffer.
package netconn

import (
	"errors"
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/packetconn"
)

// Conn is a packetconn.Conn with its optional interfaces.
type Conn interface {
	packetconn.Conn
	packetconn.Poller
	packetconn.Identifier
	packetconn.Capable
}

// A Framer is a Conn whose packets are sent in Ethernet frames: the Route of a train is used by Send and set by
// Recv. V1 reports whether the packets are those of RoCE v1, with a GRH in place of the headers of IP and UDP.
type Framer interface {
	V1() bool
}

// Of returns c with the optional interfaces, those that it lacks with their defaults.
func Of(c packetconn.Conn) Conn {
	if all, ok := c.(Conn); ok {
		return all
	}
	p := plain{Conn: c}
	p.poller, _ = c.(packetconn.Poller)
	p.identifier, _ = As[packetconn.Identifier](c)
	p.capable, _ = As[packetconn.Capable](c)
	return p
}

// plain is a Conn that lacks some of the optional interfaces.
type plain struct {
	packetconn.Conn
	poller     packetconn.Poller // that of Conn itself: a wrapper that changes Recv does not see what the Conn inside polls
	identifier packetconn.Identifier
	capable    packetconn.Capable
}

func (p plain) Unwrap() packetconn.Conn { return p.Conn }

func (p plain) Poll(trains []packetconn.Train) (int, error) {
	if p.poller == nil {
		return 0, nil
	}
	return p.poller.Poll(trains)
}

func (p plain) ID(i int) uint16 {
	if p.identifier == nil {
		return 0
	}
	return p.identifier.ID(i)
}

func (p plain) Caps() (c packetconn.Caps) {
	if p.capable != nil {
		c = p.capable.Caps()
	}
	c.Poll = p.poller != nil && (c.Poll || p.capable == nil)
	return c
}

// As returns c, or the outermost Conn inside of it, as a T.
func As[T any](c packetconn.Conn) (t T, ok bool) {
	for {
		if t, ok = c.(T); ok {
			return t, true
		}
		w, wraps := c.(packetconn.Wrapper)
		if !wraps {
			return t, false
		}
		c = w.Unwrap()
	}
}

// Join joins a multicast group with c; see [packetconn.Joiner]. The error is EOPNOTSUPP if the network
// of c has no multicast.
func Join(c packetconn.Conn, group netip.Addr) (packetconn.Conn, error) {
	j, ok := As[packetconn.Joiner](c)
	if !ok {
		return nil, failure.New("join a multicast group", syscall.EOPNOTSUPP, "group %v: the network of %v has no multicast", group, c.LocalAddr())
	}
	return j.Join(group)
}

// SyscallConn returns the descriptor of c, for callers that wait for datagrams together with
// other events. The error is errors.ErrUnsupported if c has none.
func SyscallConn(c packetconn.Conn) (syscall.RawConn, error) {
	s, ok := As[syscall.Conn](c)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return s.SyscallConn()
}
