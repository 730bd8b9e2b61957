package cmcore

import (
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/softmkey/softmkey/internal/net/fair"
	"github.com/softmkey/softmkey/internal/roce"
)

// inboxLen is the number of MADs that may wait for the service, half of them from one peer.
// Each further MAD displaces the oldest, whose sender repeats it.
const inboxLen = 1024

// portLink is a Link over QP 1 of a port of the transport.
type portLink struct {
	port    *roce.Port
	gsi     *roce.GSI
	udpPort uint16
	news    chan struct{} // signals a MAD in inbox
	done    chan struct{}

	mu    sync.Mutex // guards inbox
	inbox *fair.Table[roce.Datagram]
}

// Open returns a service on QP 1 of a transport port. A goroutine of the service handles
// MADs and ends with Close. When the port is closed, the connections and queries end with
// net.ErrClosed. A port can have only one service, because a service refuses
// requests for which it has no listener. udpPort is the UDP port of peers, 0 for RoCEv2's
// 4791.
func Open(port *roce.Port, udpPort uint16, o Options) (*Service, error) {
	l := &portLink{port: port, udpPort: udpPort, news: make(chan struct{}, 1), done: make(chan struct{}), inbox: fair.New[roce.Datagram](inboxLen, inboxLen/2)}
	if m := port.Member(); m != nil {
		o.Member, o.Claim = m.Member(), m.Claim
	}
	s := New(l, o)
	gsi, err := port.OpenGSI(l.take)
	if err != nil {
		return nil, err
	}
	l.gsi = gsi
	s.end = func() {
		close(l.done)
		gsi.Close()
	}
	go func() {
		gone := port.Done()
		for {
			select {
			case <-l.news:
				if d, ok := l.next(); ok {
					s.Receive(Path{Local: d.Dst, Remote: d.Src.Addr()}, d.Payload)
				}
			case <-gone:
				s.abandon(net.ErrClosed)
				gone = nil
			case <-l.done:
				return
			}
		}
	}()
	return s, nil
}

// take only queues the datagram, because it is called with a lock of the transport held.
func (l *portLink) take(d roce.Datagram) {
	l.mu.Lock()
	from := d.Src.Addr().Unmap()
	l.inbox.Remove(l.inbox.Displaced(from))
	l.inbox.Add(from, d)
	l.mu.Unlock()
	l.signal()
}

func (l *portLink) signal() {
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// next takes the oldest datagram out of the inbox.
func (l *portLink) next() (d roce.Datagram, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.inbox.Oldest()
	if e == nil {
		return d, false
	}
	l.inbox.Remove(e)
	if l.inbox.Len() > 0 {
		l.signal()
	}
	return e.Value, true
}

// Send implements Link. The MAD leaves from the entry of the GID table that p.Local names.
func (l *portLink) Send(p Path, b []byte) error {
	sgid := slices.IndexFunc(l.port.Addrs(), func(a netip.AddrPort) bool { return a.Addr().Unmap().WithZone("") == p.Local.WithZone("") })
	ah, err := l.port.NewAH(sgid, netip.AddrPortFrom(p.Remote, l.udpPort), p.TrafficClass)
	if err != nil {
		return err
	}
	if err := l.gsi.Send(ah, 1, b); err != nil {
		return err
	}
	// The device may be closed next, and a last DREP or REJ is not repeated.
	l.gsi.Flush()
	return nil
}
