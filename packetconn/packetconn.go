package packetconn

import (
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// RecvSize is the smallest allowed capacity of a Buf passed to Recv. The largest train of
// any system fits in it.
const RecvSize = 1 << 16

// Train is a run of datagrams to or from one address, contiguous in Buf.
//
// Every datagram has Seg bytes, except that the last may be shorter. If Seg is 0 or at
// least len(Buf), Buf is one datagram, which may be empty.
type Train struct {
	Addr netip.AddrPort // destination (Send) or source (Recv); IPv4 addresses are never IPv6-mapped
	Buf  []byte         // the payloads, without headers
	Seg  int            // bytes per datagram; Recv sets it to len(Buf) for a single datagram
	TOS  byte           // IPv4 type of service or IPv6 traffic class; the two low bits are ECN
	Swap bool           // Send may keep Buf and replace it by another buffer; both have a capacity of at least RecvSize

	// Memory is set by Recv if the train passed through memory that another process
	// wrote: its packets need no CRC, and may be longer than the path MTU.
	Memory bool

	// Route is the route of the train. A UDP socket uses its hop limit only.
	Route Route
}

// Route is how a train crosses a network of Ethernet frames. A UDP socket
// leaves routing to the system, and uses the hop limit only.
type Route struct {
	MAC        [6]byte // Send: next hop; Recv: sender of the frame
	SourcePort uint16  // Send: UDP source port; 0: that of LocalAddr
	HopLimit   uint8   // time to live or hop limit; Send: 0 is the default; Recv: 0 is not known
	Priority   uint8   // IEEE 802.1p priority, on a VLAN
}

// Count returns the number of datagrams in the train, at least 1.
func (d *Train) Count() int {
	if d.Seg <= 0 || len(d.Buf) <= d.Seg {
		return 1
	}
	return (len(d.Buf) + d.Seg - 1) / d.Seg
}

// At returns the payload of datagram i, 0 <= i < Count. Appending to it does not
// overwrite the next datagram.
func (d *Train) At(i int) []byte {
	if d.Seg <= 0 || len(d.Buf) <= d.Seg {
		return d.Buf[:len(d.Buf):len(d.Buf)]
	}
	start := i * d.Seg
	end := min(start+d.Seg, len(d.Buf))
	return d.Buf[start:end:end]
}

// Conn is one unconnected UDP socket, or an equivalent. [Poller], [Identifier], [Capable], [Joiner] and syscall.Conn
// are optional interfaces of a Conn.
//
// Send and Recv may run concurrently. Several Sends take turns, and so do several Recvs,
// and the Polls of a [Poller]. None allocates, except for an error. After Close, blocked and later calls
// return net.ErrClosed.
//
// As with UDP, a sent datagram may arrive late, twice, out of order, in a different
// train, or not at all.
type Conn interface {
	// LocalAddr returns the address that the Conn sends from and receives at.
	LocalAddr() netip.AddrPort

	// Send sends the trains in order and returns the number of trains sent
	// completely. It blocks while the socket's buffer is full. It keeps no Buf unless
	// Swap is set.
	//
	// An error concerns trains[n], of which some datagrams may have been sent. The
	// error is EMSGSIZE if the datagrams are larger than the path's MTU or the train
	// exceeds Limits, EINVAL if the address is of the other family, and otherwise the
	// error of the system, for example EHOSTUNREACH, or EPERM from a firewall.
	// errors.Is matches all of them. The caller may continue with trains[n+1:].
	Send(trains []Train) (n int, err error)

	// Recv waits for at least one train and returns the number of trains it filled:
	// as many as have arrived and fit in trains. It sets all fields.
	//
	// Each Buf must have a capacity of at least RecvSize; its length is ignored. On
	// return, Buf has the train's length. Recv may replace Buf by another buffer of
	// at least RecvSize, which then belongs to the caller in place of the old one. A
	// caller that loops passes the same trains again, unchanged.
	Recv(trains []Train) (n int, err error)

	// Limits returns the limits of Send. They do not change.
	Limits() Limits

	// Close closes the socket. Closing twice returns net.ErrClosed.
	Close() error
}

// A Poller is a Conn that can receive without waiting. Without it, a goroutine of the device waits in Recv.
type Poller interface {
	// Poll is Recv without waiting: it returns 0 if no datagram has arrived.
	Poll(trains []Train) (n int, err error)
}

// An Identifier is a Conn with IPv4 headers whose identification it knows.
type Identifier interface {
	// ID returns the identification that the IPv4 header of datagram i of a
	// train will carry. For IPv6 it has no meaning. The result may change once,
	// when GSO turns out not to work on a path, so the device calls ID for each
	// train. The train that reveals this is still sent; its datagrams after the
	// first then carry other identifications than ID returned.
	ID(i int) uint16
}

// A Capable is a Conn that describes itself.
type Capable interface {
	// Caps returns the capabilities that the system grants. They may change once, as
	// described for Identifier.
	Caps() Caps
}

// A Joiner is a Conn that can join multicast groups.
type Joiner interface {
	// Join returns a Conn that receives the datagrams sent to a group, at the
	// UDP port and on the interface of this one. Datagrams are sent to a group
	// with the Conn on which Join was called, and members on the sender's host
	// receive them, too. Closing the returned Conn leaves the group.
	Join(group netip.Addr) (Conn, error)
}

// A Wrapper is a Conn that adds something to another Conn, for example faults
// or a recording. Optional interfaces that the Wrapper does not implement are
// found in the Conn inside, so a Wrapper need not know them, except for Poller:
// a Wrapper that is to be polled implements it.
type Wrapper interface {
	Conn
	Unwrap() Conn // the Conn inside
}

// Limits are the limits of a call of Send.
type Limits struct {
	Datagrams int // in one train
	Bytes     int // in one train, payloads only
	Trains    int // trains per system call; Send splits a longer slice
}

// Caps are the capabilities of a Conn.
type Caps struct {
	GSO     bool // one system call sends a train
	GRO     bool // one system call receives a train
	Batch   bool // one system call sends or receives several trains
	Poll    bool // the Poll of a Poller works; otherwise it always returns 0
	ECN     bool // TOS is sent and received
	KnownID bool // ID is exact, as on Linux; otherwise it returns 0 and the system may use any identification

	SendBuffer int // size of the socket's send buffer in bytes; 0: unknown
	RecvBuffer int // size of the socket's receive buffer in bytes, the system's overhead included; 0: unknown

	MTU int // MTU of the interface, headers included; 0: unknown

	Degraded string // reason why a feature of the system is not used; empty if all are used
}

// Check returns an error if a train exceeds the limits, or if a Conn at local cannot send
// to its address. Every Conn applies these rules in Send.
func (l Limits) Check(local netip.Addr, t *Train) error {
	const op = "send"
	if to := t.Addr.Addr(); to.Is4() != local.Is4() || !to.IsValid() || to.Is4In6() {
		return failure.New(op, syscall.EINVAL, "destination %v: the socket's own address is %v", to, local)
	}
	if len(t.Buf) > l.Bytes {
		return failure.New(op, syscall.EMSGSIZE, "train of %d bytes: at most %d", len(t.Buf), l.Bytes)
	}
	if n := t.Count(); n > l.Datagrams {
		return failure.New(op, syscall.EMSGSIZE, "train of %d datagrams: at most %d", n, l.Datagrams)
	}
	return nil
}
