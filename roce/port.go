package roce

import (
	"net/netip"

	"github.com/softmkey/softmkey/internal/udp"
)

// UDPPort is the port of RoCEv2.
const UDPPort = 4791

// MaxRdAtomic is the largest number of READs and atomics that a QP can have on
// their way, as requester or responder.
const MaxRdAtomic = 128

// Options tune a [Port]. The zero value, and nil, mean the defaults.
type Options struct {
	// Rand returns random bits for QP numbers. Default: crypto/rand.
	Rand func() uint32

	// SendWindow is the number of bytes that may be on their way to one peer, all
	// QPs together, before it acknowledges; loss makes the window
	// smaller for a while. Default: 512 KiB.
	SendWindow int

	// ReadWindow is the same for the data of RDMA READs on their way to this port. Default: 512 KiB.
	ReadWindow int

	// ECN marks packets as ECN-capable (ECT(0)), so that switches mark them
	// rather than drop them.
	ECN bool
}

// Port is a device's connection to the network: one UDP socket and the QPs
// behind it.
//
// A receive goroutine takes packets in batches, and a transmit goroutine sends what
// nobody else does: retransmissions, and what waited for a window. Both end before Close
// returns.
type Port struct {
	conn udp.Conn
	opts Options
}

// Listen opens a UDP socket at addr and a Port on it. Port 0 of addr picks a
// free one, for tests: RoCEv2 is spoken on UDPPort.
func Listen(addr netip.AddrPort, opts *Options) (*Port, error) {
	conn, err := udp.Listen(addr, nil)
	if err != nil {
		return nil, err
	}
	return NewPort(conn, opts), nil
}

// NewPort makes a Port on conn and owns it from then on.
func NewPort(conn udp.Conn, opts *Options) *Port {
	p := &Port{conn: conn}
	if opts != nil {
		p.opts = *opts
	}
	return p
}

// LocalAddr returns the address of the socket.
func (p *Port) LocalAddr() netip.AddrPort { return p.conn.LocalAddr() }

// Caps returns what the system grants to the socket, for reports.
func (p *Port) Caps() udp.Caps { return p.conn.Caps() }

// NewQP makes a QP in RESET with a random number. It returns net.ErrClosed on a closed Port,
// and ENOMEM when there are no numbers left.
func (p *Port) NewQP(h Handler) (*QP, error) { return &QP{port: p, h: h}, nil }

// Close closes the socket, waits for the port's goroutines and puts every QP in
// RESET as QP.Close does.
func (p *Port) Close() error { return p.conn.Close() }
