package cm

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/cmcore"
	"github.com/softmkey/softmkey/internal/base/mad"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/verbs"
)

// ListenOptions configure a listener; nil selects the defaults.
type ListenOptions struct {
	// Backlog is the number of requests that may wait for Accept. Further requests
	// are dropped, and their peers repeat them. Default 128.
	Backlog int
}

// Listener receives requests for connections. It is safe for concurrent use.
type Listener struct {
	dev  *verbs.Device
	core *cmcore.Listener
	port *cmcore.Port
	inbox[*Request]
}

// Listen listens for connections of RC and UC queue pairs at a port of the device's
// address. If the port is 0, a free one is selected; [Listener.Addr] returns it. The
// ports are those of rdma_cm's RDMA_PS_TCP and are independent of TCP. Listen returns
// EADDRINUSE if the port has a listener.
func Listen(dev *verbs.Device, port uint16, opts *ListenOptions) (*Listener, error) {
	s, done, err := use(dev)
	if err != nil {
		return nil, err
	}
	defer done()
	l := &Listener{dev: dev}
	l.inbox.init()
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

// take handles each request.
func (l *Listener) take(c *cmcore.Conn) cmcore.Handler {
	r := newRequest(l.dev, c)
	if t := c.Request().Transport; t != mad.RC && t != mad.UC {
		_ = c.Reject(mad.ReasonInvalidTransport, nil, nil) // fails only if the peer gave up
		return nil
	}
	if !l.put(r) {
		c.Close()
	}
	return func(e cmcore.Event) {
		l.remove(r)
		r.conn.handle(e)
	}
}

// Accept returns the next request. After Close it returns net.ErrClosed.
func (l *Listener) Accept() (*Request, error) { return l.get() }

// Close ends the listener and refuses pending requests. Connections stay open. Closing
// twice does nothing.
func (l *Listener) Close() error {
	for _, r := range l.inbox.close() {
		r.core.Close()
	}
	l.core.Close()
	l.port.Close()
	return nil
}

// Request is a peer's request for a connection, to be accepted or rejected.
type Request struct {
	// PrivateData comes from the peer's application, padded with zeros to 56 bytes.
	PrivateData []byte

	// Type is the type of the peer's QP, RC or UC.
	Type verbs.QPType

	// MTU is the path MTU that the peer requests.
	MTU verbs.MTU

	// MaxRdAtomic and MaxDestRdAtomic are the peer's limits on outstanding READs and
	// atomics, for this side as requester and as responder.
	MaxRdAtomic     int
	MaxDestRdAtomic int

	core *cmcore.Conn
	conn *Conn
}

func newRequest(dev *verbs.Device, c *cmcore.Conn) *Request {
	m := c.Request()
	attr := c.Attr()
	port := uint16(m.ServiceID)
	conn := &Conn{
		core: c, private: m.Data,
		local: Addr(netip.AddrPortFrom(dev.Addr(), port)), remote: Addr(netip.AddrPortFrom(m.IP.Src, m.IP.Port)),
	}
	conn.init()
	return &Request{
		PrivateData: m.Data, Type: qpTypes[m.Transport], MTU: verbs.MTU(attr.MTU), MaxRdAtomic: int(attr.MaxRdAtomic), MaxDestRdAtomic: int(attr.MaxDestRdAtomic),
		core: c, conn: conn,
	}
}

// qpTypes maps service types of requests to types of QPs.
var qpTypes = map[mad.Transport]verbs.QPType{mad.RC: verbs.RC, mad.UC: verbs.UC}

// LocalAddr returns the address that the peer connects to.
func (r *Request) LocalAddr() net.Addr { return r.conn.local }

// RemoteAddr returns the address of the peer.
func (r *Request) RemoteAddr() net.Addr { return r.conn.remote }

// Accept connects the request to a QP of the same type, which is in RESET or INIT, and
// waits until the peer is ready. If ctx ends or the peer gives up, Accept closes the
// connection and puts the QP in the error state.
//
// The options MTU and Timeout are ignored, because the peer chooses both. MaxRdAtomic
// lowers the limits of the request.
func (r *Request) Accept(ctx context.Context, qp *verbs.QP, opts *Options) (*Conn, error) {
	const op = "cm accept"
	o := opts.withDefaults()
	if qp.Type() != r.Type {
		return nil, operr.New(op, syscall.EINVAL, "a QP of type %v: the peer's is %v", qp.Type(), r.Type)
	}
	dev := qp.PD().Device()
	if have := dev.PortAttr().ActiveMTU; r.MTU > have {
		_ = r.core.Reject(mad.ReasonInvalidMTU, nil, nil) // fails only if the peer gave up
		return nil, operr.New(op, syscall.EINVAL, "path MTU %d of the peer: the port carries %d", r.MTU.Bytes(), have.Bytes())
	}
	self := qp.Endpoint()
	attr := r.core.Attr()
	attr.MaxRdAtomic = min(attr.MaxRdAtomic, uint8(o.MaxRdAtomic))
	attr.MaxDestRdAtomic = min(attr.MaxDestRdAtomic, uint8(o.MaxRdAtomic))
	if err := r.conn.connect(qp, attr, o); err != nil {
		_ = r.core.Reject(mad.ReasonNoResources, nil, nil) // fails only if the peer gave up
		return nil, err
	}
	err := r.core.Accept(cmcore.ReplyParams{
		QPN: self.QPN, ResponderResources: attr.MaxDestRdAtomic, InitiatorDepth: attr.MaxRdAtomic,
		RNRRetry: *o.RNRRetry, Private: o.PrivateData,
	})
	if err != nil {
		return nil, err
	}
	if err := r.conn.wait(ctx, op, cmcore.Established); err != nil {
		return nil, err
	}
	return r.conn, nil
}

// Reject refuses the request, with at most 148 bytes of private data.
func (r *Request) Reject(reason Reason, private []byte) error {
	return r.core.Reject(mad.Reason(reason), nil, private)
}

// inbox is a queue of requests between the handlers and the callers of Accept. The
// listener's backlog limits it.
type inbox[T comparable] struct {
	mu     sync.Mutex // guards the following fields
	cond   sync.Cond
	queue  []T
	closed bool
}

func (b *inbox[T]) init() { b.cond.L = &b.mu }

// put returns false after close.
func (b *inbox[T]) put(v T) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.queue = append(b.queue, v)
	b.cond.Signal()
	return true
}

func (b *inbox[T]) get() (T, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) == 0 {
		if b.closed {
			var none T
			return none, net.ErrClosed
		}
		b.cond.Wait()
	}
	v := b.queue[0]
	b.queue = b.queue[1:]
	return v, nil
}

// remove removes v from the queue if it is there.
func (b *inbox[T]) remove(v T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.queue {
		if b.queue[i] == v {
			b.queue = append(b.queue[:i:i], b.queue[i+1:]...)
			return
		}
	}
}

// close closes the queue and returns the requests in it.
func (b *inbox[T]) close() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest := b.queue
	b.queue, b.closed = nil, true
	b.cond.Broadcast()
	return rest
}
