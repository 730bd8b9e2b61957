package roce

import (
	"net/netip"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/roce/packetconn"
)

// A link is an entry of a port's GID table: a local address with its socket. Packets of a
// connected QP leave from its link and are accepted only there. Datagrams leave from the
// link of their address handle and are accepted on every link.
type link struct {
	port   *Port
	conn   packetconn.Conn
	addr   netip.AddrPort
	limits packetconn.Limits // of conn, with trains of at most RecvSize bytes
	in     inbox
}

func newLink(p *Port, conn packetconn.Conn) *link {
	l := &link{port: p, conn: conn, addr: conn.LocalAddr(), limits: conn.Limits()}
	l.limits.Bytes = min(l.limits.Bytes, packetconn.RecvSize)
	l.in.init()
	return l
}

// link returns the entry of the GID table with an index. It returns EINVAL if there is none,
// or if packets cannot go from there to an address because of its family.
func (p *Port) link(op string, index int, to netip.Addr) (*link, error) {
	if index < 0 || index >= len(p.links) {
		return nil, operr.New(op, syscall.EINVAL, "GID index %d: the table has %d entries", index, len(p.links))
	}
	l := p.links[index]
	if to.IsValid() && to.Is4() != l.addr.Addr().Is4() {
		return nil, operr.New(op, syscall.EINVAL, "address %v: GID index %d is %v, of the other family", to, index, l.addr.Addr())
	}
	return l, nil
}

// An inbox holds the receive buffers of a link. The holder of turn delivers every packet to
// its QP before it releases turn.
type inbox struct {
	turn   sync.Mutex
	trains []packetconn.Datagrams // guarded by turn
	heard  bool                   // guarded by turn: a message used a receive request
	left   chan struct{}          // holds an element after the last goroutine that polled stopped
}

func (i *inbox) init() {
	i.left = make(chan struct{}, 1)
	i.trains = make([]packetconn.Datagrams, recvTrains)
	for k := range i.trains {
		i.trains[k].Buf = make([]byte, packetconn.RecvSize)
	}
}
