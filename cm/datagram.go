package cm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/cmcore"
	"github.com/softmkey/softmkey/internal/net/mad"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// maxQueryData is the number of bytes of private data that Resolve can send to the application of the peer.
const maxQueryData = mad.SIDRREQPrivate - mad.IPHeaderLen

// DefaultQKey is the Q_Key of datagram QPs of rdma_cm's port space RDMA_PS_UDP.
const DefaultQKey = 0x01234567

// Datagrams is the destination of datagrams to a UD QP of a peer, for an address handle
// and a work request.
type Datagrams struct {
	Addr        netip.Addr // address of the peer's device
	QPN         uint32
	QKey        uint32
	PrivateData []byte // from the peer's application, padded with zeros to 136 bytes

	sgidIndex int
}

// AH returns the attributes of an address handle for the QP, for
// [verbs.PD.NewAddressHandle].
func (d *Datagrams) AH() rdma.AH { return rdma.AH{DGID: rdma.GIDOf(d.Addr), SGIDIndex: d.sgidIndex} }

// Resolve asks the listener at addr for the QP that receives its datagrams (service ID
// resolution; in rdma_cm the connect of an RDMA_PS_UDP id). It does not open a
// connection. private has at most 180 bytes. The query leaves from the first address of the device that is of addr's family.
// Resolve returns ECONNREFUSED if the listener refuses or does not exist, and
// ETIMEDOUT after 9 seconds if the peer does not answer.
func Resolve(ctx context.Context, dev *verbs.Device, addr netip.AddrPort, private []byte) (*Datagrams, error) {
	const op = "cm resolve"
	if len(private) > maxQueryData {
		return nil, failure.New(op, syscall.EINVAL, "%d bytes of private data: at most %d", len(private), maxQueryData)
	}
	remote := addr.Addr().Unmap()
	gids := dev.GIDTable()
	sgid := slices.IndexFunc(gids, func(g rdma.GID) bool { return g.Addr().Is4() == remote.Is4() })
	if sgid < 0 {
		return nil, failure.New(op, syscall.EINVAL, "address %v: all addresses of the device are of the other family", remote)
	}
	local := gids[sgid].Addr()
	s, done, err := use(dev)
	if err != nil {
		return nil, err
	}
	defer done()
	port, err := s.Bind(mad.PortSpaceUDP, netip.Addr{}, 0, false)
	if err != nil {
		return nil, err
	}
	defer port.Close()
	type answer struct {
		cmcore.Answer
		err error
	}
	answered := make(chan answer, 1)
	header := mad.AppendIPHeader(nil, mad.IPHeader{Port: port.Num(), Src: local, Dst: remote})
	q, err := s.Query(cmcore.Path{Local: local, Remote: remote}, mad.ServiceID(mad.PortSpaceUDP, addr.Port()), append(header, private...),
		func(a cmcore.Answer, err error) { answered <- answer{a, err} })
	if err != nil {
		return nil, err
	}
	select {
	case a := <-answered:
		switch {
		case errors.Is(a.err, net.ErrClosed):
			return nil, a.err // the device was closed
		case a.err != nil:
			return nil, &operr.Error{Op: op, Errno: syscall.ETIMEDOUT, Reason: addr.String(), Err: a.err}
		case a.Status != mad.SIDRValid:
			return nil, failure.New(op, syscall.ECONNREFUSED, "%s: the peer refused: %v (status %d)", addr, a.Status, uint8(a.Status))
		}
		return &Datagrams{Addr: remote, QPN: a.QPN, QKey: a.QKey, PrivateData: a.Private, sgidIndex: sgid}, nil
	case <-ctx.Done():
		q.Close()
		return nil, ctx.Err()
	}
}

// DatagramListener receives the queries of [Resolve]. It is safe for concurrent use.
type DatagramListener struct {
	dev  *verbs.Device
	core *cmcore.Listener
	port *cmcore.Port
	in   inbox[*Query]
}

// ListenDatagram listens for queries at a port of all addresses of the device. If the port is 0,
// a free one is selected. The ports are those of rdma_cm's RDMA_PS_UDP. ListenDatagram
// returns EADDRINUSE if the port has a listener.
func ListenDatagram(dev *verbs.Device, port uint16, opts *ListenOptions) (*DatagramListener, error) {
	s, done, err := use(dev)
	if err != nil {
		return nil, err
	}
	defer done()
	l := &DatagramListener{dev: dev}
	l.in.init()
	l.port, l.core, err = listen(s, mad.PortSpaceUDP, port, opts, cmcore.ListenConfig{Query: func(q *cmcore.Query) func() {
		mine := &Query{PrivateData: q.Data, core: q}
		if !l.in.put(q.Path().Remote, mine) {
			q.Close()
		}
		return func() { l.in.remove(mine) }
	}})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Addr returns the address of the listener, an [Addr].
func (l *DatagramListener) Addr() net.Addr {
	return Addr(netip.AddrPortFrom(l.dev.Addr(), l.port.Num()))
}

// Accept waits for the next query and returns it. It returns the context's error when that
// ends first, and net.ErrClosed after Close.
func (l *DatagramListener) Accept(ctx context.Context) (*Query, error) {
	q, err := l.in.get(ctx)
	if err == nil {
		q.core.Taken()
	}
	return q, err
}

// Close ends the listener and refuses pending queries. Closing twice does nothing.
func (l *DatagramListener) Close() error {
	for _, q := range l.in.close() {
		q.core.Close()
	}
	l.core.Close()
	l.core.Flush()
	l.port.Close()
	return nil
}

// Query is a peer's query for a QP that receives its datagrams.
type Query struct {
	// PrivateData comes from the peer's application, padded with zeros to 180 bytes.
	PrivateData []byte

	core *cmcore.Query
}

// RemoteAddr returns the address of the peer.
func (q *Query) RemoteAddr() net.Addr {
	return Addr(netip.AddrPortFrom(q.core.IP.Src, q.core.IP.Port))
}

// Reply answers with the number and the Q_Key of a UD QP, and at most 136 bytes
// of private data.
func (q *Query) Reply(qpn, qkey uint32, private []byte) error {
	defer q.core.Flush()
	return q.core.Reply(cmcore.Answer{QPN: qpn, QKey: qkey, Private: private})
}

// Reject refuses the query, with at most 136 bytes of private data.
func (q *Query) Reject(private []byte) error {
	defer q.core.Flush()
	return q.core.Reply(cmcore.Answer{Status: mad.SIDRRejected, Private: private})
}
