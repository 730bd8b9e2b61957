package packetconn

import (
	"errors"
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// A Joiner is a Conn that can join multicast groups. Callers use the function
// [Join], which also finds a Joiner inside a [Wrapper].
type Joiner interface {
	// Join returns a Conn that receives the datagrams sent to a group, at the
	// UDP port and on the interface of this one. Datagrams are sent to a group
	// with the Conn on which Join was called, and members on the sender's host
	// receive them, too. Closing the returned Conn leaves the group.
	Join(group netip.Addr) (Conn, error)
}

// A Wrapper is a Conn that adds something to another Conn, for example faults
// or a recording. Optional abilities that the Wrapper does not implement are
// found in the Conn inside, so a Wrapper need not know them. A Wrapper that
// must change an ability implements it, and calls [Join] or [SyscallConn] on
// the Conn inside.
type Wrapper interface {
	Conn
	Unwrap() Conn // the Conn inside
}

// ability returns c, or the outermost Conn inside of it, as a T.
func ability[T any](c Conn) (t T, ok bool) {
	for {
		if t, ok = c.(T); ok {
			return t, true
		}
		w, wraps := c.(Wrapper)
		if !wraps {
			return t, false
		}
		c = w.Unwrap()
	}
}

// Join joins a multicast group with c; see [Joiner]. The error is EOPNOTSUPP if the network
// of c has no multicast.
func Join(c Conn, group netip.Addr) (Conn, error) {
	j, ok := ability[Joiner](c)
	if !ok {
		return nil, failure.New("join a multicast group", syscall.EOPNOTSUPP, "group %v: the network of %v has no multicast", group, c.LocalAddr())
	}
	return j.Join(group)
}

// SyscallConn returns the descriptor of c, for callers that wait for datagrams together with
// other events. The error is errors.ErrUnsupported if c has none.
func SyscallConn(c Conn) (syscall.RawConn, error) {
	s, ok := ability[syscall.Conn](c)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return s.SyscallConn()
}
