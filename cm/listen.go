package cm

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/cmcore"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/fair"
	"github.com/softmkey/softmkey/internal/net/mad"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// ListenOptions configure a listener; nil selects the defaults.
type ListenOptions struct {
	// Backlog is the number of requests that may wait for Accept. When it is full,
	// a new request displaces the oldest request of the peer that has most. A peer
	// that has half of the backlog displaces its own oldest request in any case. A
	// peer whose request was displaced repeats it. Accept takes the requests of
	// different peers in turn. Default 128.
	Backlog int

	// Type is the type of the QPs that the listener connects, RC or UC. Requests for
	// other types are refused. Default RC. ListenDatagram ignores it.
	Type rdma.QPType
}

// Listener receives requests for connections. It is safe for concurrent use.
type Listener struct {
	dev  *verbs.Device
	core *cmcore.Listener
	port *cmcore.Port
	kind mad.Transport
	in   inbox[*Request]
}

// Listen listens for connections at a port of all addresses of the device. If the port is 0,
// a free one is selected; [Listener.Addr] returns it with the device's first address. The
// ports are those of rdma_cm's RDMA_PS_TCP and are independent of TCP. Listen returns
// EADDRINUSE if the port has a listener.
func Listen(dev *verbs.Device, port uint16, opts *ListenOptions) (*Listener, error) {
	qpType := rdma.RC
	if opts != nil && opts.Type != 0 {
		qpType = opts.Type
	}
	kind, ok := transports[qpType]
	if !ok {
		return nil, failure.New("cm listen", syscall.EINVAL, "QPs of type %v: RC and UC have connections", qpType)
	}
	s, done, err := use(dev)
	if err != nil {
		return nil, err
	}
	defer done()
	l := &Listener{dev: dev, kind: kind}
	l.in.init()
	l.port, l.core, err = listen(s, mad.PortSpaceTCP, port, opts, cmcore.ListenConfig{Conn: l.take})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// listen binds a port and listens on it.
func listen(s *service, space mad.PortSpace, port uint16, opts *ListenOptions, c cmcore.ListenConfig) (*cmcore.Port, *cmcore.Listener, error) {
	if opts != nil {
		c.Backlog = opts.Backlog
	}
	p, err := s.Bind(space, netip.Addr{}, port, false)
	if err != nil {
		return nil, nil, err
	}
	c.ServiceID = p.ServiceID()
	l, err := s.Listen(c)
	if err != nil {
		p.Close()
	}
	return p, l, err
}

// Addr returns the address of the listener, an [Addr].
func (l *Listener) Addr() net.Addr { return Addr(netip.AddrPortFrom(l.dev.Addr(), l.port.Num())) }

// take handles a new request; cmcore calls it.
func (l *Listener) take(c *cmcore.Conn) cmcore.Handler {
	if c.Request().Transport != l.kind {
		_ = c.Reject(mad.ReasonInvalidTransport, nil, nil) // fails only if the peer gave up
		return nil
	}
	r := newRequest(l.dev, c)
	if !l.in.put(c.Path().Remote, r) {
		c.Close()
	}
	return func(e cmcore.Event) {
		l.in.remove(r)
		r.conn.handle(e)
	}
}

// Accept waits for the next request and returns it. It returns the context's error when that
// ends first, and net.ErrClosed after Close.
func (l *Listener) Accept(ctx context.Context) (*Request, error) {
	r, err := l.in.get(ctx)
	if err == nil {
		r.core.Taken()
	}
	return r, err
}

// Close ends the listener and refuses pending requests. Connections stay open. Closing
// twice does nothing.
func (l *Listener) Close() error {
	for _, r := range l.in.close() {
		r.core.Close()
	}
	l.core.Close()
	l.core.Flush()
	l.port.Close()
	return nil
}

// Request is a peer's request for a connection, to be accepted or rejected.
type Request struct {
	// PrivateData comes from the peer's application, padded with zeros to 56 bytes.
	PrivateData []byte

	core *cmcore.Conn
	conn *Conn
	dev  *verbs.Device
}

func newRequest(dev *verbs.Device, c *cmcore.Conn) *Request {
	m := c.Request()
	port, at := uint16(m.ServiceID), c.Path().Local
	conn := &Conn{
		core: c, private: m.Data,
		local: Addr(netip.AddrPortFrom(at, port)), remote: Addr(netip.AddrPortFrom(m.IP.Src, m.IP.Port)),
	}
	conn.init()
	return &Request{PrivateData: m.Data, core: c, conn: conn, dev: dev}
}

// qpTypes maps service types of requests to types of QPs, and transports maps them back.
var (
	qpTypes    = map[mad.Transport]rdma.QPType{mad.RC: rdma.RC, mad.UC: rdma.UC}
	transports = map[rdma.QPType]mad.Transport{rdma.RC: mad.RC, rdma.UC: mad.UC}
)

// LocalAddr returns the address that the peer connects to.
func (r *Request) LocalAddr() net.Addr { return r.conn.local }

// RemoteAddr returns the address of the peer.
func (r *Request) RemoteAddr() net.Addr { return r.conn.remote }

// Accept connects the request to a QP of the same type, which is in RESET or
// INIT, and waits until the peer is ready. If Accept returns an error, the
// request is refused: the program can neither accept nor reject it any more. If
// ctx ends or the peer gives up, Accept closes the connection and puts the QP
// in the error state.
//
// The options MTU and Timeout are ignored, because the peer chooses both. The
// peer also chooses the address of this device: an SGIDIndex other than 0 must
// be the index of that address. MaxRdAtomic lowers the limits of the request.
func (r *Request) Accept(ctx context.Context, qp *verbs.QP, opts *ConnOptions) (*Conn, error) {
	const op = "cm accept"
	// refuse answers the peer. Reject fails only if the peer gave up.
	refuse := func(reason mad.Reason, err error) (*Conn, error) {
		_ = r.core.Reject(reason, nil, nil)
		r.core.Flush()
		return nil, err
	}
	o, m, err := opts.terms()
	if err != nil {
		return refuse(mad.ReasonConsumer, err)
	}
	dev := qp.PD().Device()
	at := r.core.Path().Local
	sgid := gidIndex(dev, at)
	attr := r.core.Attr()
	kind, mtu, have := qpTypes[r.core.Request().Transport], ibv.MTU(attr.MTU).Bytes(), dev.PortAttr().ActiveMTU
	switch {
	case dev != r.dev:
		return refuse(mad.ReasonNoQP, failure.New(op, syscall.EINVAL, "a QP of the device at %v: the request came to that at %v", dev.Addr(), r.dev.Addr()))
	case qp.Type() != kind:
		return refuse(mad.ReasonInvalidTransport, failure.New(op, syscall.EINVAL, "a QP of type %v: the peer's is %v", qp.Type(), kind))
	case o.SGIDIndex != 0 && o.SGIDIndex != sgid:
		return refuse(mad.ReasonConsumer, failure.New(op, syscall.EINVAL, "SGIDIndex %d: the peer connects to %v, which has GID index %d", o.SGIDIndex, at, sgid))
	case len(o.PrivateData) > mad.REPPrivate:
		return refuse(mad.ReasonConsumer, failure.New(op, syscall.EINVAL, "%d bytes of private data: at most %d", len(o.PrivateData), mad.REPPrivate))
	case mtu > have:
		return refuse(mad.ReasonInvalidMTU, failure.New(op, syscall.EINVAL, "path MTU %d of the peer: the port carries %d", mtu, have))
	}
	attr.MaxRdAtomic = min(attr.MaxRdAtomic, uint8(m.MaxRdAtomic))
	attr.MaxDestRdAtomic = min(attr.MaxDestRdAtomic, uint8(m.MaxRdAtomic))
	if err := r.conn.connect(qp, attr, m, sgid); err != nil {
		return refuse(mad.ReasonNoResources, err)
	}
	err = r.core.Accept(cmcore.ReplyParams{
		QPN: qp.Num(), ResponderResources: attr.MaxDestRdAtomic, InitiatorDepth: attr.MaxRdAtomic,
		RNRRetry: m.RNRRetry, Private: o.PrivateData,
	})
	if err != nil {
		// The peer gave up, or newer requests displaced this one.
		r.conn.end(err)
		return nil, err
	}
	if err := r.conn.wait(ctx, op, cmcore.Established); err != nil {
		return nil, err
	}
	return r.conn, nil
}

// Reject refuses the request, with at most 148 bytes of private data. The refusal has been
// sent when Reject returns.
func (r *Request) Reject(reason Reason, private []byte) error {
	defer r.core.Flush()
	return r.core.Reject(mad.Reason(reason), nil, private)
}

// inbox is a queue of requests between the handlers and the callers of Accept. The
// listener's backlog limits it.
type inbox[T comparable] struct {
	mu     sync.Mutex // guards the following fields
	cond   sync.Cond
	queue  fair.Queue[T]
	closed bool
}

func (b *inbox[T]) init() { b.cond.L = &b.mu }

// put returns false after close.
func (b *inbox[T]) put(peer netip.Addr, v T) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.queue.Push(peer, v)
	b.cond.Signal()
	return true
}

func (b *inbox[T]) get(ctx context.Context) (T, error) {
	stop := context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.cond.Broadcast()
	})
	defer stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.queue.Len() == 0 {
		var none T
		switch {
		case b.closed:
			return none, net.ErrClosed
		case ctx.Err() != nil:
			return none, ctx.Err()
		}
		b.cond.Wait()
	}
	return b.queue.Pop(), nil
}

// remove removes v from the queue if it is there.
func (b *inbox[T]) remove(v T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue.Remove(v)
}

// close closes the queue and returns the requests in it.
func (b *inbox[T]) close() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.cond.Broadcast()
	return b.queue.Clear()
}
