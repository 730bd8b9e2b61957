package packetconn

import (
	"net/netip"
)

// RecvSize is the capacity that every Buf given to Recv has at least: the largest
// train that any system hands over fits.
const RecvSize = 1 << 16

// Datagrams is a train: datagrams to or from one address, back to back in Buf.
//
// Every datagram has Seg bytes, only the last may be shorter. Seg 0, or Seg of at
// least len(Buf), makes Buf one datagram, which may be empty.
type Datagrams struct {
	Addr netip.AddrPort // destination (Send) or source (Recv); an IPv4 address is never in its IPv6-mapped form
	Buf  []byte         // the payloads, without headers
	Seg  int            // bytes per datagram; Recv sets it to len(Buf) for a single datagram
	TOS  byte           // IPv4 type of service or IPv6 traffic class: the two low bits are ECN
	Swap bool           // Send may keep Buf, of which the capacity is at least RecvSize, and put another such in its place
}

// Count returns the number of datagrams in the train: at least 1.
func (d *Datagrams) Count() int {
	if d.Seg <= 0 || len(d.Buf) <= d.Seg {
		return 1
	}
	return (len(d.Buf) + d.Seg - 1) / d.Seg
}

// At returns the payload of datagram i, 0 <= i < Count. Appending to it never
// writes into the next one.
func (d *Datagrams) At(i int) []byte {
	if d.Seg <= 0 || len(d.Buf) <= d.Seg {
		return d.Buf[:len(d.Buf):len(d.Buf)]
	}
	start := i * d.Seg
	end := min(start+d.Seg, len(d.Buf))
	return d.Buf[start:end:end]
}

// Conn is one unconnected UDP socket, or something that behaves like one.
//
// Send and Recv may run at the same time. Several Sends, or several Recvs and Polls,
// take turns. Neither allocates, except to describe an error. After Close everything
// that blocks, and everything called later, returns net.ErrClosed.
//
// As with any UDP, what was sent may arrive late, twice, in another order, cut
// into other trains, or never.
type Conn interface {
	// LocalAddr returns the one address that the Conn sends from and receives at.
	LocalAddr() netip.AddrPort

	// Send sends the trains in order and returns how many went out whole. It
	// waits while the socket's buffer is full, and does not keep any Buf unless Swap
	// is set.
	//
	// An error concerns trains[n]: EMSGSIZE if its datagrams are larger than the
	// path's MTU or the train is over Limits, EINVAL for an address of the other
	// family, otherwise what the system answered (EHOSTUNREACH, EPERM of a
	// firewall, ...), all of them matched by errors.Is. Its first datagrams may
	// have gone out. The caller may go on with trains[n+1:].
	Send(trains []Datagrams) (n int, err error)

	// Recv waits for at least one train and returns how many it filled in, as
	// many as are there already and fit in trains. It sets all fields.
	//
	// Each Buf comes with a capacity of at least RecvSize, its length does not
	// matter. On return it has the train's length. Recv may exchange it for
	// another buffer of at least RecvSize: the caller owns what is in the filled
	// trains' Buf then, and no longer what it put there. Giving the same trains
	// to the next Recv, as they are, is the way to loop.
	Recv(trains []Datagrams) (n int, err error)

	// Poll is Recv without waiting: it returns 0 if no datagram has arrived. Poll and
	// Recv take turns.
	Poll(trains []Datagrams) (n int, err error)

	// ID returns the identification that the IPv4 header of datagram i of a train
	// will carry; it means nothing for IPv6, which has none. It can change once
	// in the life of a Conn, when GSO turns out not to work on some path: ask for
	// each train. The train that finds this out is sent all the same, so that its
	// datagrams after the first carry another identification than foretold.
	ID(i int) uint16

	// Limits returns what Send takes at most. It does not change.
	Limits() Limits

	// Caps returns what the system grants, for reports. It may change once, see
	// ID.
	Caps() Caps

	// Close frees the socket. Closing twice returns net.ErrClosed.
	Close() error
}

// Limits is what one call of Send takes.
type Limits struct {
	Datagrams int // in one train
	Bytes     int // in one train, payloads only
	Trains    int // that go into one system call; a longer slice is sent in several
}

// Caps is what the system grants to a Conn.
type Caps struct {
	GSO     bool // one call sends a train
	GRO     bool // trains arrive as trains
	Batch   bool // one call sends or receives several trains
	Poll    bool // Poll returns datagrams that have arrived; otherwise it always returns 0
	ECN     bool // TOS is sent and received
	KnownID bool // ID is true (always, on Linux); otherwise it answers 0 and the system may use anything

	SendBuffer int // bytes that may wait to be sent; 0: not known
	RecvBuffer int // bytes, the system's overhead included, that may wait to be received before the next is lost; 0: not known

	MTU int // of the interface, headers included; 0: not known

	Degraded string // why something that the system offers is off; empty if nothing is
}
