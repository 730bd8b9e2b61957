package rdmacm

import (
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/internal/device/cmcore"
	"github.com/softmkey/softmkey/internal/net/mad"
)

// maxBacklog is the largest backlog of a listener, and the default. A program gets as many
// requests at a time as its backlog says (rping: 3), and the next one after it has answered one.
// The others wait. There is room for at least minBacklog of them: with less, requests of
// strangers would displace the others before the program is ready.
const (
	maxBacklog = 1024
	minBacklog = 128
)

func (i *id) listen(in []byte) ([]byte, syscall.Errno) {
	if i.state == stateIdle {
		if errno := i.bind(netip.AddrPortFrom(netip.IPv4Unspecified(), 0)); errno != 0 {
			return nil, errno
		}
	}
	if i.state != stateBound {
		return nil, syscall.EINVAL
	}
	backlog := int(int32(ne.Uint32(in[4:])))
	if backlog <= 0 || backlog > maxBacklog {
		backlog = maxBacklog
	}
	devices, local := i.m.devices, i.wildcard(i.src.Addr())
	if i.dev != nil {
		devices, local = []*Device{i.dev}, i.src.Addr()
	}
	i.backlog = backlog
	for _, d := range devices {
		if err := i.listenOn(d, local); err != nil {
			for _, l := range i.listeners {
				l.Close()
			}
			i.listeners = nil
			return nil, i.refused(err)
		}
	}
	i.state = stateListen
	return nil, 0
}

// listenOn adds a listener on a device, for the local address or for those that a wildcard
// stands for. The lock is held.
func (i *id) listenOn(d *Device, local netip.Addr) error {
	c := cmcore.ListenConfig{ServiceID: mad.ServiceID(i.space, i.src.Port()), Local: local, Backlog: max(i.backlog, minBacklog)}
	if i.qpType == qpTypeUD {
		c.Query = func(q *cmcore.Query) func() { return i.queried(d, q) }
	} else {
		c.Conn = func(c *cmcore.Conn) cmcore.Handler { return i.requested(d, c) }
	}
	l, err := d.Service.Listen(c)
	if err != nil {
		return err
	}
	i.listeners = append(i.listeners, l)
	return nil
}

// child creates the id of a request for a listener, or returns nil if the request must be
// refused.
func (i *id) child(d *Device, ip mad.IPHeader, local netip.Addr) *id {
	if i.destroyed {
		return nil
	}
	c, errno := i.file.newID()
	if errno != 0 {
		return nil
	}
	c.passive, c.space, c.qpType, c.qkey, c.tos, c.ackTimeout = true, i.space, i.qpType, i.qkey, i.tos, i.ackTimeout
	c.dev, c.gidIndex = d, d.gid(local)
	c.src, c.dst = netip.AddrPortFrom(local, i.src.Port()), netip.AddrPortFrom(ip.Src, ip.Port)
	c.state = stateConnect
	return c
}

// requested handles a request for a connection. It runs as a handler of the connection
// manager.
func (i *id) requested(d *Device, conn *cmcore.Conn) cmcore.Handler {
	if i.m.busy() {
		conn.Drop()
		return nil
	}
	var c *id // set by the first of the functions that are queued here
	i.m.happened(func() func() {
		r := conn.Request()
		if r.Transport != i.transport() {
			return func() { _ = conn.Reject(mad.ReasonInvalidTransport, nil, nil) } // fails only if the peer gave up
		}
		if c = i.child(d, r.IP, conn.Path().Local); c == nil {
			return func() { _ = conn.Reject(mad.ReasonNoResources, nil, nil) }
		}
		c.conn = conn
		param := connParam{
			qpn: r.QPN, private: r.Data, srq: r.SRQ, flowControl: r.FlowControl, retryCount: r.RetryCount, rnrRetry: r.RNRRetry,
			// The event shows this side's view: the peer's depth is the
			// number of requests that this side answers.
			responderResources: r.InitiatorDepth, initiatorDepth: r.ResponderResources,
		}
		return i.offer(&event{id: i, request: c, kind: eventConnectRequest, param: param.put, ece: r.ECE})
	})
	return func(e cmcore.Event) {
		i.m.happened(func() func() {
			if c == nil {
				return nil
			}
			if c.uid == 0 {
				c.missed(i)
			}
			return c.take(e)
		})
	}
}

// queried handles a query for a datagram QP. It runs as a handler of the connection manager.
func (i *id) queried(d *Device, q *cmcore.Query) (gone func()) {
	if i.m.busy() {
		q.Drop()
		return nil
	}
	var c *id // set by the first of the functions that are queued here
	i.m.happened(func() (after func()) {
		if c = i.child(d, q.IP, q.Path().Local); c == nil {
			return q.Close
		}
		return i.asked(c, q)
	})
	return func() {
		i.m.happened(func() func() {
			if c != nil {
				c.missed(i)
			}
			return nil
		})
	}
}

// asked reports a query to the program. The lock is held.
func (i *id) asked(c *id, q *cmcore.Query) (after func()) {
	c.query = q
	param := udParam{ah: c.ah(0), private: q.Data}
	return i.offer(&event{id: i, request: c, kind: eventConnectRequest, param: param.put})
}

func (i *id) connect(in []byte) ([]byte, syscall.Errno) {
	c := parseConnParam(in)
	if !c.valid || i.state != stateRouteResolved {
		return nil, syscall.EINVAL
	}
	path := cmcore.Path{Local: i.src.Addr(), Remote: i.dst.Addr(), TrafficClass: i.tos}
	private := append(mad.AppendIPHeader(nil, mad.IPHeader{Port: i.src.Port(), Src: i.src.Addr(), Dst: i.dst.Addr()}), c.private...)
	service := mad.ServiceID(i.space, i.dst.Port())
	if i.qpType == qpTypeUD {
		q, err := i.dev.Service.Query(path, service, private, func(a cmcore.Answer, err error) {
			i.m.happened(func() func() { return i.answered(a, err) })
		})
		if err != nil {
			return nil, i.refused(err)
		}
		i.query, i.state = q, stateConnect
		return nil, 0
	}
	conn, err := i.dev.Service.Connect(path, cmcore.ConnectParams{
		ServiceID: service, Transport: i.transport(), QPN: c.qpn,
		ResponderResources: c.responderResources, InitiatorDepth: c.initiatorDepth,
		RetryCount: c.retryCount, RNRRetry: c.rnrRetry, FlowControl: c.flowControl, SRQ: c.srq,
		MTU: i.dev.mtu(), AckTimeout: i.ackTimeout, TrafficClass: i.tos, ECE: parseECE(in[connParamLen+8:]), Private: private,
	}, func(e cmcore.Event) {
		i.m.happened(func() func() { return i.take(e) })
	})
	if err != nil {
		return nil, i.refused(err)
	}
	i.conn, i.qpn, i.state = conn, c.qpn, stateConnect
	return nil, 0
}

// parseECE reads rdma_ucm_ece, which older libraries do not send.
func parseECE(b []byte) cmcore.ECE {
	if len(b) < 8 {
		return cmcore.ECE{}
	}
	return cmcore.ECE{Vendor: ne.Uint32(b) & 0xffffff, Options: ne.Uint32(b[4:])}
}

// answered handles the answer to a query. The lock is held.
func (i *id) answered(a cmcore.Answer, err error) (after func()) {
	switch {
	case i.destroyed:
		return nil
	case err != nil:
		return i.file.post(&event{id: i, kind: eventUnreachable, status: -int32(syscall.ETIMEDOUT)})
	case a.Status != mad.SIDRValid:
		param := udParam{private: a.Private}
		return i.file.post(&event{id: i, kind: eventUnreachable, status: int32(a.Status), param: param.put})
	}
	i.qkey = a.QKey
	param := udParam{qpn: a.QPN, qkey: a.QKey, ah: i.ah(i.tos), private: a.Private}
	return i.file.post(&event{id: i, kind: eventEstablished, param: param.put})
}

func (i *id) accept(in []byte) ([]byte, syscall.Errno) {
	c := parseConnParam(in[8:])
	query := i.qpType == qpTypeUD && i.query != nil && i.passive
	if !query && i.conn == nil {
		return nil, syscall.EINVAL
	}
	errno := i.acceptWith(c, in, query)
	if errno != 0 {
		i.giveUp(query)
	}
	return nil, errno
}

// giveUp rejects the request of the peer after an accept that failed, as a kernel does: the peer would
// wait for an answer until its retries end.
func (i *id) giveUp(query bool) {
	if i.passive {
		i.answer()
	}
	// An error means that the peer has given up, or has an answer already.
	if query {
		_ = i.query.Reply(cmcore.Answer{Status: mad.SIDRRejected})
	} else {
		_ = i.conn.Reject(mad.ReasonConsumer, nil, nil)
	}
}

// acceptWith accepts the request of a peer or, if query is set, its query for a datagram QP; on the
// side that connects it accepts the reply of the peer.
func (i *id) acceptWith(c connParam, in []byte, query bool) syscall.Errno {
	switch {
	case query:
		if !c.valid {
			return syscall.EINVAL
		}
		if c.qkey != 0 {
			i.qkey = c.qkey
		}
		if err := i.query.Reply(cmcore.Answer{QPN: c.qpn, QKey: i.qkey, Private: c.private}); err != nil {
			return i.refused(err)
		}
		i.uid = ne.Uint64(in)
		i.answer()
		return 0
	case !c.valid || !i.passive:
		return i.refused(i.conn.Ready(nil))
	case i.displaced:
		i.uid, i.displaced = ne.Uint64(in), false
		i.answer()
		i.end()
		return 0
	}
	err := i.conn.Accept(cmcore.ReplyParams{
		QPN: c.qpn, ResponderResources: c.responderResources, InitiatorDepth: c.initiatorDepth,
		RNRRetry: c.rnrRetry, FlowControl: c.flowControl, SRQ: c.srq, ECE: parseECE(in[8+connParamLen+8:]), Private: c.private,
	})
	if err != nil {
		return i.refused(err)
	}
	i.uid, i.qpn = ne.Uint64(in), c.qpn
	i.answer()
	return 0
}

// refused returns the errno of an error of the connection manager, and keeps the reason for the trace.
func (i *id) refused(err error) syscall.Errno {
	i.why = err
	return errnoOf(err)
}

func (i *id) reject(in []byte) ([]byte, syscall.Errno) {
	n, reason := int(in[4]), mad.Reason(in[5])
	if reason == 0 {
		reason = mad.ReasonConsumer
	}
	if reason != mad.ReasonConsumer && reason != mad.ReasonVendorOption {
		return nil, syscall.EINVAL
	}
	private := in[8 : 8+n]
	i.answer()
	switch {
	case i.query != nil && i.passive:
		return nil, i.refused(i.query.Reply(cmcore.Answer{Status: mad.SIDRRejected, Private: private}))
	case i.conn != nil:
		return nil, i.refused(i.conn.Reject(reason, nil, private))
	}
	return nil, syscall.EINVAL
}

func (i *id) disconnect(in []byte) ([]byte, syscall.Errno) {
	if i.conn == nil {
		return nil, syscall.EINVAL
	}
	return nil, i.refused(i.conn.Disconnect(nil))
}
