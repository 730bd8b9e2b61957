package cmcore

import (
	"net/netip"

	"github.com/softmkey/softmkey/roce"
)

// inboxLen is the number of MADs that may wait for the service. More are
// dropped, as by the network: their senders repeat them.
const inboxLen = 1024

// portLink is a Link over QP 1 of a port of the transport.
type portLink struct {
	port    *roce.Port
	gsi     *roce.GSI
	udpPort uint16
	inbox   chan roce.Datagram
	done    chan struct{}
}

// Open makes a service on QP 1 of a port of the transport. MADs are handled on a
// goroutine of the service, which ends with Close. There is one service for each
// port, because a service refuses requests that nobody of its own listens for.
// udpPort is the UDP port of peers, 0 for RoCEv2's 4791.
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
		for {
			select {
			case d := <-l.inbox:
				s.Receive(Path{Local: local, Remote: d.Src.Addr().Unmap()}, d.Payload)
			case <-l.done:
				return
			}
		}
	}()
	return s, nil
}

// take is called under a lock of the transport, so it only hands over.
func (l *portLink) take(d roce.Datagram) {
	select {
	case l.inbox <- d:
	default:
	}
}

// Send implements Link.
func (l *portLink) Send(p Path, b []byte) error {
	ah, err := l.port.NewAH(netip.AddrPortFrom(p.Remote, l.udpPort), 0)
	if err != nil {
		return err
	}
	return l.gsi.Send(ah, 1, b)
}
