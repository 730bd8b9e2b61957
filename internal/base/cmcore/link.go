package cmcore

import (
	"net"
	"net/netip"

	"github.com/softmkey/softmkey/roce"
)

// inboxLen is the number of MADs that may wait for the service. Further MADs are dropped
// and their senders repeat them.
const inboxLen = 1024

// portLink is a Link over QP 1 of a port of the transport.
type portLink struct {
	port    *roce.Port
	gsi     *roce.GSI
	udpPort uint16
	inbox   chan roce.Datagram
	done    chan struct{}
}

// Open returns a service on QP 1 of a transport port. A goroutine of the service handles
// MADs and ends with Close. When the port is closed, the connections and queries end with
// net.ErrClosed. A port can have only one service, because a service refuses
// requests for which it has no listener. udpPort is the UDP port of peers, 0 for RoCEv2's
// 4791.
func Open(port *roce.Port, udpPort uint16, o Options) (*Service, error) {
	l := &portLink{port: port, udpPort: udpPort, inbox: make(chan roce.Datagram, inboxLen), done: make(chan struct{})}
	o.Caps = roce.CapSelective
	s := New(l, o)
	gsi, err := port.OpenGSI(l.take)
	if err != nil {
		return nil, err
	}
	l.gsi = gsi
	s.end = func() {
		close(l.done)
		_ = gsi.Close() // always nil
	}
	local := port.LocalAddr().Addr().Unmap()
	go func() {
		gone := port.Done()
		for {
			select {
			case d := <-l.inbox:
				s.Receive(Path{Local: local, Remote: d.Src.Addr().Unmap()}, d.Payload)
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
	select {
	case l.inbox <- d:
	default:
	}
}

// Send implements Link.
func (l *portLink) Send(p Path, b []byte) error {
	ah, err := l.port.NewAH(0, netip.AddrPortFrom(p.Remote, l.udpPort), 0)
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
