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
	"github.com/softmkey/softmkey/roce"
	"github.com/softmkey/softmkey/verbs"
)

// MaxPrivateData is the number of bytes of private data that [Dial] can send to
// the application of the peer.
const MaxPrivateData = mad.REQPrivate - mad.IPHeaderLen

// Options are what a connection is made with; nil means the defaults.
type Options struct {
	// ConnectOptions are the attributes of the QP. Access counts for a QP in
	// RESET; one in INIT has it already. Timeout is 17 by default,
	// 0.54 s, as rdma_cm has it. MaxRdAtomic bounds READs and atomics in flight
	// in both directions; the peer may lower it.
	verbs.ConnectOptions

	// PrivateData is for the application of the peer: at most MaxPrivateData
	// bytes in a request, 196 in an acceptance. The peer gets the whole field,
	// padded with zeros, so data of variable length carries its length.
	PrivateData []byte

	// LocalPort is the port that the peer sees; 0 takes a free one. Only Dial
	// looks at it.
	LocalPort uint16
}

// withDefaults returns a copy of o without zero values.
func (o *Options) withDefaults() Options {
	var c Options
	if o != nil {
		c = *o
	}
	seven := uint8(7)
	if c.Access == 0 {
		c.Access = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic
	}
	if c.Timeout == 0 {
		c.Timeout = cmcore.DefaultAckTimeout
	}
	if c.RetryCnt == nil {
		c.RetryCnt = &seven
	}
	if c.RNRRetry == nil {
		c.RNRRetry = &seven
	}
	if c.MinRNRTimer == 0 {
		c.MinRNRTimer = 12
	}
	if c.MaxRdAtomic == 0 {
		c.MaxRdAtomic = 16
	}
	return c
}

// Conn is a connection of a QP. It is safe for concurrent use.
type Conn struct {
	core          *cmcore.Conn
	port          *cmcore.Port // of the dialing side
	local, remote Addr
	private       []byte

	mu     sync.Mutex // guards the following fields
	qp     *verbs.QP
	events []cmcore.Event // until the connection is established
	ended  bool
	err    error

	news chan struct{} // an event came, before the connection is established
	done chan struct{} // the connection ended
}

func (c *Conn) init() {
	c.news, c.done = make(chan struct{}, 1), make(chan struct{})
}

// LocalAddr returns the address of this end, an [Addr].
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the address of the peer, an [Addr].
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// PrivateData returns the private data of the peer's application, padded with
// zeros: 196 bytes of an acceptance, or 56 of a request.
func (c *Conn) PrivateData() []byte { return c.private }

// QP returns the connected QP.
func (c *Conn) QP() *verbs.QP {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.qp
}

// Done returns a channel that is closed when the connection has ended, by either
// side. The QP is in the error state then, and its requests are flushed.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the connection ended: nil while it has not, and after an
// orderly disconnect by either side.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close disconnects: it tells the peer, waits until the peer has answered, and
// puts the QP into the error state. Requests that have not completed are flushed,
// on both sides. Close returns ETIMEDOUT when the peer does not answer, which takes
// 9 seconds; the connection has ended then, too. A second Close returns the same.
func (c *Conn) Close() error {
	if err := c.core.Disconnect(nil); err != nil {
		return err
	}
	<-c.done
	return c.Err()
}

// handle takes an event of the connection. It runs without locks and does not
// block.
func (c *Conn) handle(e cmcore.Event) {
	switch e.Kind {
	case cmcore.Disconnected:
		c.end(e.Err)
		_ = e.Conn.Disconnect(nil) // the answer to a DREQ
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
		// Fails if the program has closed or reset the QP, which ends it too.
		_ = qp.Modify(verbs.QPModify{State: verbs.StateErr}, verbs.AttrState)
	}
	if c.port != nil {
		c.port.Close()
	}
	close(c.done)
}

// wait waits for an event that is expected next. Another event, and the end of
// ctx, end the connection.
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
			err = operr.New(op, syscall.ECONNRESET, "%s: the peer ended the connection", c.remote)
		case <-ctx.Done():
			err = ctx.Err()
		}
		break
	}
	c.core.Close()
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

// transportOf returns the service type that a QP asks a peer for.
func transportOf(qp *verbs.QP) (mad.Transport, bool) {
	switch qp.Type() {
	case verbs.RC:
		return mad.RC, true
	case verbs.UC:
		return mad.UC, true
	}
	return 0, false
}

// Init takes a QP from RESET to INIT, where receive requests can be posted: those
// that must be there before the peer's first message. [Dial] and [Request.Accept]
// take QPs in either state.
func Init(qp *verbs.QP, access verbs.Access) error {
	m := verbs.QPModify{State: verbs.StateInit, AccessFlags: access, Port: 1}
	return qp.Modify(m, verbs.AttrState|verbs.AttrPKeyIndex|verbs.AttrPort|verbs.AttrAccessFlags)
}

// connect takes a QP from RESET or INIT to RTS.
func (c *Conn) connect(qp *verbs.QP, a cmcore.QPAttr, o Options) error {
	dev := qp.PD().Device()
	m := verbs.QPModify{
		AV:      verbs.AH{DGID: verbs.GIDOf(a.Path.Remote), UDPPort: dev.Transport().LocalAddr().Port()},
		PathMTU: verbs.MTU(a.MTU), DestQPN: a.DestQPN, RQPSN: a.RQPSN,
		MaxDestRdAtomic: int(a.MaxDestRdAtomic), MinRNRTimer: o.MinRNRTimer,
		Timeout: a.Timeout, RetryCnt: a.RetryCount, RNRRetry: a.RNRRetry, SQPSN: a.SQPSN, MaxRdAtomic: int(a.MaxRdAtomic),
		Selective: c.core.Caps()&roce.CapSelective != 0,
	}
	if qp.State() == verbs.StateReset {
		if err := Init(qp, o.Access); err != nil {
			return err
		}
	}
	rtr, rts := verbs.AttrState|verbs.AttrAV|verbs.AttrPathMTU|verbs.AttrDestQPN|verbs.AttrRQPSN, verbs.AttrState|verbs.AttrSQPSN
	if qp.Type() == verbs.RC {
		rtr |= verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer
		rts |= verbs.AttrTimeout | verbs.AttrRetryCnt | verbs.AttrRNRRetry | verbs.AttrMaxRdAtomic
	}
	m.State = verbs.StateRTR
	if err := qp.Modify(m, rtr); err != nil {
		return err
	}
	m.State = verbs.StateRTS
	if err := qp.Modify(m, rts); err != nil {
		return err
	}
	c.mu.Lock()
	c.qp = qp
	ended := c.ended
	c.mu.Unlock()
	if ended {
		return qp.Modify(verbs.QPModify{State: verbs.StateErr}, verbs.AttrState)
	}
	return nil
}

// Dial connects a QP, which is in RESET or INIT, to the listener at addr, and
// returns when both sides are ready.
//
// A listener that refuses is ECONNREFUSED, with a [RejectError] that has the
// reason and the listener's private data. A peer that does not answer is
// ETIMEDOUT after 9 seconds; a peer whose application is slow asks for more time
// by itself. When ctx ends the peer is told.
func Dial(ctx context.Context, qp *verbs.QP, addr netip.AddrPort, opts *Options) (*Conn, error) {
	const op = "cm dial"
	o := opts.withDefaults()
	if len(o.PrivateData) > MaxPrivateData {
		return nil, operr.New(op, syscall.EINVAL, "%d bytes of private data: at most %d", len(o.PrivateData), MaxPrivateData)
	}
	transport, ok := transportOf(qp)
	if !ok {
		return nil, operr.New(op, syscall.EINVAL, "a QP of type %v: RC and UC have connections", qp.Type())
	}
	dev := qp.PD().Device()
	self := qp.Endpoint()
	if o.MTU == 0 {
		o.MTU = self.MTU
	}
	mtu, ok := verbs.MTUOf(o.MTU)
	if !ok {
		return nil, operr.New(op, syscall.EINVAL, "MTU %d: must be 256, 512, 1024, 2048 or 4096", o.MTU)
	}
	s, done, err := use(dev)
	if err != nil {
		return nil, err
	}
	defer done()
	port, err := s.Bind(mad.PortSpaceTCP, netip.Addr{}, o.LocalPort, o.LocalPort != 0)
	if err != nil {
		return nil, err
	}
	remote := addr.Addr().Unmap()
	c := &Conn{port: port, local: Addr(netip.AddrPortFrom(dev.Addr(), port.Num())), remote: Addr(netip.AddrPortFrom(remote, addr.Port()))}
	c.init()
	private := mad.AppendIPHeader(nil, mad.IPHeader{Port: port.Num(), Src: dev.Addr(), Dst: remote})
	c.core, err = s.Connect(cmcore.Path{Local: dev.Addr(), Remote: remote}, cmcore.ConnectParams{
		ServiceID: mad.ServiceID(mad.PortSpaceTCP, addr.Port()), Transport: transport, QPN: self.QPN,
		ResponderResources: uint8(o.MaxRdAtomic), InitiatorDepth: uint8(o.MaxRdAtomic),
		RetryCount: *o.RetryCnt, RNRRetry: *o.RNRRetry, MTU: uint8(mtu), AckTimeout: o.Timeout,
		Private: append(private, o.PrivateData...),
	}, c.handle)
	if err != nil {
		port.Close()
		return nil, err
	}
	if err := c.wait(ctx, op, cmcore.Replied); err != nil {
		return nil, err
	}
	if err := c.connect(qp, c.core.Attr(), o); err != nil {
		_ = c.core.Reject(mad.ReasonNoResources, nil, nil) // fails only if the peer gave up
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
