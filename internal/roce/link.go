package roce

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/packetconn"
)

// MaxGIDs is the largest number of entries of a port's GID table.
const MaxGIDs = 256

// A link is an entry of a port's GID table: a local address with its socket. Packets of a
// connected QP leave from its link and are accepted only there. Datagrams leave from the
// link of their address handle and are accepted on every link.
type link struct {
	port    *Port
	index   int // in the GID table
	conn    netconn.Conn
	near    netconn.Neighbor  // of conn; nil: there is none
	addr    netip.AddrPort    // local address; not valid if the entry has none
	limits  packetconn.Limits // of conn, with trains of at most RecvSize bytes
	v1      bool              // packets are those of RoCE v1
	polled  bool              // Poll receives while goroutines poll the port; otherwise the receive goroutine always does
	in      inbox
	removed chan struct{} // closed when the entry is replaced

	refused atomic.Pointer[refusal] // the last train that the system did not send; nil: none
}

func newLink(p *Port, index int, conn packetconn.Conn) *link {
	addr := conn.LocalAddr()
	addr = netip.AddrPortFrom(addr.Addr().WithZone(""), addr.Port())
	l := &link{port: p, index: index, conn: netconn.Of(conn), addr: addr, limits: conn.Limits(), removed: make(chan struct{})}
	if f, ok := netconn.As[netconn.Framer](conn); ok {
		l.v1 = f.V1()
	}
	l.near, _ = netconn.As[netconn.Neighbor](conn)
	l.polled = l.conn.Caps().Poll
	l.limits.Bytes = min(l.limits.Bytes, packetconn.RecvSize)
	if l.addr.IsValid() {
		l.in.init()
	}
	return l
}

// start starts the receive goroutine, unless the entry has no address.
func (l *link) start() {
	if l.addr.IsValid() {
		l.port.wg.Go(l.receive)
	}
}

// gids returns the GID table. The table is never changed in place; a change
// replaces it.
func (p *Port) gids() []*link { return *p.table.Load() }

// SetGID replaces an entry of the GID table, or appends one, while the port is
// in use. The port then owns conn, and closes the Conn of the replaced entry. A
// conn whose LocalAddr is not valid makes an entry without an address. QPs and
// address handles that were made for the old entry send and receive nothing any
// more.
//
// It returns EINVAL for an index beyond the table's end or MaxGIDs, and net.ErrClosed on a
// closed Port; conn is the caller's then.
func (p *Port) SetGID(index int, conn packetconn.Conn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	table := slices.Clone(p.gids())
	switch {
	case p.closed:
		return net.ErrClosed
	case index < 0 || index > len(table) || index >= MaxGIDs:
		return failure.New("set a GID", syscall.EINVAL, "GID index %d: the table has %d entries", index, len(table))
	case index == len(table):
		table = append(table, nil)
	}
	old := table[index]
	l := newLink(p, index, conn)
	table[index] = l
	p.table.Store(&table)
	l.start()
	if old != nil {
		close(old.removed)
		old.conn.Close()
	}
	return nil
}

// link returns the entry of the GID table with an index. It returns EINVAL if
// there is none, or if its address is not of the family of to.
func (p *Port) link(op string, index int, to netip.Addr) (*link, error) {
	table := p.gids()
	if index < 0 || index >= len(table) {
		return nil, failure.New(op, syscall.EINVAL, "GID index %d: the table has %d entries", index, len(table))
	}
	l := table[index]
	switch {
	case !to.IsValid():
	case !l.addr.IsValid():
		return nil, failure.New(op, syscall.EINVAL, "GID index %d: the entry has no address", index)
	case to.Is4() != l.addr.Addr().Is4():
		return nil, failure.New(op, syscall.EINVAL, "address %v: GID index %d is %v, of the other family", to, index, l.addr.Addr())
	}
	return l, nil
}

// peer returns the address of a peer as packets from it have it. The link at a link-local
// address has one zone, which GIDs cannot name.
func (l *link) peer(ip netip.Addr) netip.Addr {
	if l.addr.Addr().IsLinkLocalUnicast() {
		return ip.WithZone("")
	}
	return ip
}

// path is the route of packets to a peer, from an entry of the GID table to an
// address.
type path struct {
	from  *link
	to    netip.AddrPort
	route packetconn.Route
	tos   byte  // DSCP bits of the packets
	near  *link // link with the address to, if packets pass inside the port
}

// source returns the address and the UDP port that the packets leave from.
func (w *path) source() netip.AddrPort {
	if w.route.SourcePort != 0 {
		return netip.AddrPortFrom(w.from.addr.Addr(), w.route.SourcePort)
	}
	return w.from.addr
}

// origin is the source of received packets.
type origin struct {
	to    *link // the link that received the datagrams; nil: a multicast group
	addr  netip.AddrPort
	route packetconn.Route
}

// An inbox holds the receive buffers of a link. The holder of turn delivers every packet to
// its QP before it releases turn.
type inbox struct {
	turn   sync.Mutex
	trains []packetconn.Train // guarded by turn
	heard  bool               // guarded by turn: a message used a receive request
	left   chan struct{}      // receives an element when the last polling goroutine has stopped
}

func (i *inbox) init() {
	i.left = make(chan struct{}, 1)
	i.trains = make([]packetconn.Train, recvTrains)
	for k := range i.trains {
		i.trains[k].Buf = netconn.NewBuffer(packetconn.RecvSize)
	}
}
