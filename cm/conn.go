package cm

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/cmcore"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/mad"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// maxPrivateData is the number of bytes of private data that Dial can send to the application of the peer.
const maxPrivateData = mad.REQPrivate - mad.IPHeaderLen

// ConnOptions configure a connection; nil selects the defaults.
type ConnOptions struct {
	// ConnectOptions are the attributes of the QP. Access applies to a QP in RESET;
	// one in INIT has its access rights already. Timeout is 0.54 s by default, as
	// in rdma_cm. MaxRdAtomic limits outstanding READs and atomics in both
	// directions; the peer may lower it. SGIDIndex selects the address that Dial connects
	// from.
	verbs.ConnectOptions

	// PrivateData is data for the peer's application: at most 56 bytes in
	// a request, 196 in an acceptance. The peer gets the whole field, padded with
	// zeros, so data of variable length must contain its length.
	PrivateData []byte
}

// terms returns a copy of o, and the attributes of the QP that it determines.
func (o *ConnOptions) terms() (c ConnOptions, m ibv.QPModify, err error) {
	if o != nil {
		c = *o
	}
	c.Timeout = cmp.Or(c.Timeout, roce.AckTimeout(cmcore.DefaultAckTimeout))
	m, err = (*engine.ConnectOptions)(&c.ConnectOptions).Terms()
	return c, m, err
}

// Conn is a connection of a QP. It is safe for concurrent use.
type Conn struct {
	core          *cmcore.Conn
	port          *cmcore.Port // reserved port, on the dialing side
	local, remote Addr
	private       []byte

	mu     sync.Mutex // guards the following fields
	qp     *verbs.QP
	events []cmcore.Event // pending events, until the connection is established
	ended  bool

	leaving atomic.Bool // this side ends the connection
	err     error

	news chan struct{} // signals an event before the connection is established
	done chan struct{} // closed when the connection has ended
}

func (c *Conn) init() {
	c.news, c.done = make(chan struct{}, 1), make(chan struct{})
}

// LocalAddr returns the address of this end, an [Addr].
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the address of the peer, an [Addr].
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// PrivateData returns the private data of the peer's application, padded with zeros: 196
// bytes from an acceptance, 56 from a request.
func (c *Conn) PrivateData() []byte { return c.private }

// QP returns the connected QP.
func (c *Conn) QP() *verbs.QP {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.qp
}

// Done returns a channel that is closed when either side has ended the connection. The QP
// is then in the error state, and its requests are flushed. A request that fails moves the QP
// to that state, but does not end the connection: call Disconnect or Close.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns the reason for the end of the connection. It is nil while the connection
// exists, and after an orderly disconnect by either side.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Disconnect ends the connection: it sends a request to the peer, waits for the answer, and
// puts the QP in the error state. Outstanding requests are flushed on both sides. If the
// peer does not answer, Disconnect returns ETIMEDOUT after 9 seconds, or the context's error
// when that ends first; the connection has then ended too. Further calls return the same
// result.
func (c *Conn) Disconnect(ctx context.Context) error {
	if c.core == nil {
		return failure.Zero("cm disconnect", "Dial")
	}
	c.leaving.Store(true)
	if err := c.core.Disconnect(nil); err != nil {
		return err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		c.core.Close()
		c.core.Flush()
		c.end(ctx.Err())
	}
	return c.Err()
}

// Close is [Conn.Disconnect] without a context. It implements io.Closer.
func (c *Conn) Close() error { return c.Disconnect(context.Background()) }

// handle handles an event of the connection. It is called without locks and does not
// block.
func (c *Conn) handle(e cmcore.Event) {
	switch e.Kind {
	case cmcore.Disconnected:
		_ = e.Conn.Disconnect(nil) // answers the DREQ
		if qp := c.QP(); qp != nil && e.Err == nil && !c.leaving.Load() {
			engine.QPOf(qp).PeerLeft()
		}
		// Whoever waits for the end may close the device, so the answer leaves first.
		e.Conn.After(func() { c.end(e.Err) })
	case cmcore.Ended:
	default:
		c.mu.Lock()
		c.events = append(c.events, e)
		c.mu.Unlock()
		select {
		case c.news <- struct{}{}:
		default:
		}
	}
}

// end puts the QP into the error state and closes done.
func (c *Conn) end(err error) {
	c.mu.Lock()
	first := !c.ended
	c.ended = true
	if first {
		c.err = err
	}
	qp := c.qp
	c.mu.Unlock()
	if !first {
		return
	}
	if qp != nil {
		// SetState fails if the program has closed or reset the QP, which also ends
		// its requests.
		_ = qp.SetState(rdma.StateErr)
	}
	if c.port != nil {
		c.port.Close()
	}
	close(c.done)
}

// wait waits for the next expected event. Another event, or the end of ctx, ends the
// connection.
func (c *Conn) wait(ctx context.Context, op string, want cmcore.Kind) (err error) {
	for {
		e, ok := c.next()
		if ok && e.Kind == want {
			if want == cmcore.Replied {
				c.private = e.Private
			}
			return nil
		}
		if ok {
			err = failed(op, c.remote, e)
			break
		}
		select {
		case <-c.news:
			continue
		case <-c.done:
			if e, ok := c.next(); ok && e.Kind == want {
				return nil
			}
			err = failure.New(op, syscall.ECONNRESET, "%s: the peer ended the connection", c.remote)
		case <-ctx.Done():
			err = ctx.Err()
		}
		break
	}
	c.core.Close()
	c.core.Flush()
	c.end(err)
	return err
}

func (c *Conn) next() (e cmcore.Event, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.events) == 0 {
		return e, false
	}
	e = c.events[0]
	c.events = c.events[1:]
	return e, true
}

// gidIndex returns the GID index of an address of the device, -1 if it has no such address.
func gidIndex(dev *verbs.Device, a netip.Addr) int {
	return slices.Index(dev.GIDTable(), rdma.GIDOf(a))
}

// connect moves a QP from RESET or INIT to RTS. m has the attributes of the options.
func (c *Conn) connect(qp *verbs.QP, a cmcore.QPAttr, m ibv.QPModify, sgid int) error {
	m.AV = rdma.AH{DGID: rdma.GIDOf(a.Path.Remote), SGIDIndex: sgid, UDPPort: qp.PD().Device().UDPPort()}
	m.PathMTU, m.DestQPN, m.RQPSN, m.SQPSN = ibv.MTU(a.MTU), a.DestQPN, a.RQPSN, a.SQPSN
	m.Timeout, m.RetryCnt, m.RNRRetry = a.Timeout, a.RetryCount, a.RNRRetry
	m.MaxRdAtomic, m.MaxDestRdAtomic = int(a.MaxRdAtomic), int(a.MaxDestRdAtomic)
	if err := engine.Connect(qp.Type(), qp.State() == rdma.StateReset, m, engine.QPOf(qp).Modify); err != nil {
		return err
	}
	c.mu.Lock()
	c.qp = qp
	ended := c.ended
	c.mu.Unlock()
	if ended {
		return qp.SetState(rdma.StateErr)
	}
	return nil
}

// Dial connects a QP, which is in RESET or INIT, to the listener at addr. It returns when
// both sides are ready. The port of addr is that of the listener. The listener's device must
// have the same UDP port (see [verbs.DeviceOptions]) as the QP's device, so two devices of
// one host need different addresses, such as 127.0.0.1 and 127.0.0.2.
//
// If the listener refuses, Dial returns ECONNREFUSED and a [RejectError] with the reason
// and the listener's private data. If the peer does not answer, Dial returns ETIMEDOUT
// after 9 seconds; a peer with a slow application automatically requests more time. If
// ctx ends, Dial cancels the request at the peer.
func Dial(ctx context.Context, qp *verbs.QP, addr netip.AddrPort, opts *ConnOptions) (*Conn, error) {
	const op = "cm dial"
	o, m, err := opts.terms()
	if err != nil {
		return nil, err
	}
	if len(o.PrivateData) > maxPrivateData {
		return nil, failure.New(op, syscall.EINVAL, "%d bytes of private data: at most %d", len(o.PrivateData), maxPrivateData)
	}
	transport, ok := transports[qp.Type()]
	if !ok {
		return nil, failure.New(op, syscall.EINVAL, "a QP of type %v: RC and UC have connections", qp.Type())
	}
	dev := qp.PD().Device()
	self, err := qp.EndpointAt(o.SGIDIndex)
	if err != nil {
		return nil, err
	}
	o.MTU = cmp.Or(o.MTU, self.MTU)
	mtu, ok := ibv.MTUOf(o.MTU)
	if !ok {
		return nil, failure.New(op, syscall.EINVAL, "MTU %d: must be 256, 512, 1024, 2048 or 4096", o.MTU)
	}
	local, remote := self.GID.Unmap(), addr.Addr().Unmap()
	if local.Is4() != remote.Is4() {
		return nil, failure.New(op, syscall.EINVAL, "address %v: that of GID index %d, %v, is of the other family", remote, o.SGIDIndex, local)
	}
	s, done, err := use(dev)
	if err != nil {
		return nil, err
	}
	defer done()
	port, err := s.Bind(mad.PortSpaceTCP, netip.Addr{}, 0, false)
	if err != nil {
		return nil, err
	}
	c := &Conn{port: port, local: Addr(netip.AddrPortFrom(local, port.Num())), remote: Addr(netip.AddrPortFrom(remote, addr.Port()))}
	c.init()
	private := mad.AppendIPHeader(nil, mad.IPHeader{Port: port.Num(), Src: local, Dst: remote})
	c.core, err = s.Connect(cmcore.Path{Local: local, Remote: remote}, cmcore.ConnectParams{
		ServiceID: mad.ServiceID(mad.PortSpaceTCP, addr.Port()), Transport: transport, QPN: self.QPN,
		ResponderResources: uint8(m.MaxRdAtomic), InitiatorDepth: uint8(m.MaxRdAtomic),
		RetryCount: m.RetryCnt, RNRRetry: m.RNRRetry, MTU: uint8(mtu), AckTimeout: m.Timeout,
		Private: append(private, o.PrivateData...),
	}, c.handle)
	if err != nil {
		port.Close()
		return nil, err
	}
	if err := c.wait(ctx, op, cmcore.Replied); err != nil {
		return nil, err
	}
	if err := c.connect(qp, c.core.Attr(), m, o.SGIDIndex); err != nil {
		_ = c.core.Reject(mad.ReasonNoResources, nil, nil) // fails only if the peer has given up
		c.core.Flush()
		c.end(err)
		return nil, err
	}
	if err := c.core.Ready(nil); err != nil {
		c.core.Close()
		c.end(err)
		return nil, err
	}
	return c, nil
}
