package cmcore

import (
	"bytes"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/net/mad"
)

// takeREQ creates a connection for a REQ and passes it to the listener.
func (s *Service) takeREQ(p Path, h mad.Header, m *mad.REQ) {
	p.TrafficClass = m.Path.TrafficClass
	reject := func(reason mad.Reason) {
		s.send(p, mad.Header{TID: h.TID}, &mad.REJ{RemoteID: m.LocalID, About: mad.AboutREQ, Reason: reason})
	}
	if c := s.remote[remoteKey{p.Remote, m.LocalID}]; c != nil {
		if c.req != nil && c.req.QPN == m.QPN && c.req.PSN == m.PSN {
			c.repeatedREQ()
			return
		}
		// The peer has restarted and chose the same id: it no longer has the old
		// connection. One that is not confirmed may be somebody else's forgery.
		if !c.halfOpen() {
			if c.state == StateEstablished {
				c.sendDREQ(nil)
			}
			reject(mad.ReasonStale)
			return
		}
		c.displace()
	}
	if s.stale(p.Remote, m.QPN) {
		reject(mad.ReasonStale)
		return
	}
	l := s.listener(m.ServiceID, p.Local)
	if l == nil || l.conn == nil {
		reject(mad.ReasonInvalidServiceID)
		return
	}
	r := &Request{REQ: *m, ECE: ECE{m.VendorID, h.Modifier}}
	r.Private = bytes.Clone(m.Private)
	r.Data = r.Private
	if reason := r.parseIP(p); reason != 0 {
		reject(reason)
		return
	}
	if m.MTU < 1 || m.MTU > 5 {
		reject(mad.ReasonInvalidMTU)
		return
	}
	if s.crowded(p) {
		return // the peer repeats its REQ
	}
	c := &Conn{
		exchange: exchange{s: s, path: p}, req: r, localID: s.newID(), tid: h.TID, state: StateReqRcvd,
		response: interval(m.LocalResponseTimeout, minTimeout, maxTimeout), retries: int(m.MaxCMRetries),
		attr: QPAttr{
			// The peer's resources as responder limit our depth as requester,
			// and vice versa.
			Path: p, RQPSN: s.newPSN(), SQPSN: m.PSN, MTU: m.MTU, MaxRdAtomic: m.ResponderResources, MaxDestRdAtomic: m.InitiatorDepth,
			Timeout: m.Path.AckTimeout, RetryCount: m.RetryCount, RNRRetry: m.RNRRetry, TrafficClass: m.Path.TrafficClass,
		},
	}
	c.stay(c, l.backlog)
	c.await(0)
	s.conns[c.localID] = c
	c.register(m.LocalID, m.QPN)
	s.outbox = append(s.outbox, func() {
		handler := l.conn(c)
		s.mu.Lock()
		c.handler = handler
		s.mu.Unlock()
	})
}

// parseIP parses the IP header of a request to a service of the RDMA IP CM service. It
// returns the reason to reject the request, or 0. The application trusts the addresses in
// the header, so they must be those of the packet.
func (r *Request) parseIP(p Path) mad.Reason {
	if _, _, ok := mad.SplitServiceID(r.ServiceID); !ok {
		return 0
	}
	ip, data, ok := mad.ParseIPHeader(r.Private)
	if !ok {
		return mad.ReasonUnsupported
	}
	ip.Src, ip.Dst = ip.Src.Unmap(), ip.Dst.Unmap()
	if ip.Src != p.Remote {
		return mad.ReasonPrimaryGID
	}
	r.IP, r.Data = ip, data
	return 0
}

// repeatedREQ answers a duplicate REQ.
func (c *Conn) repeatedREQ() {
	switch c.state {
	case StateReqRcvd:
		t := uint8(backlogTimeout)
		if c.place.in == c.s.half {
			t = serviceTimeout
		}
		c.s.send(c.path, mad.Header{TID: c.tid}, &mad.MRA{LocalID: c.localID, RemoteID: c.remoteID, About: mad.AboutREQ, ServiceTimeout: t})
		c.await(interval(t, 0, maxService))
	case StateRepSent:
		c.s.resend(c.path, c.out)
	}
}

// takeMRA waits longer for the answer to the last transmission.
func (c *Conn) takeMRA(m *mad.MRA) {
	if c.state != StateReqSent && c.state != StateRepSent {
		return
	}
	if c.remoteID == 0 {
		c.setRemoteID(m.LocalID)
	}
	c.excuse(interval(m.ServiceTimeout, 0, maxService))
}

// setRemoteID records the peer's id before its REP arrives, so that a REJ from the peer
// is recognised.
func (c *Conn) setRemoteID(id uint32) {
	if key := (remoteKey{c.path.Remote, id}); id != 0 && c.s.remote[key] == nil {
		c.remoteID, c.remoteKey = id, key
		c.s.remote[key] = c
	}
}

// takeREP handles the answer to a REQ.
func (s *Service) takeREP(p Path, h mad.Header, m *mad.REP) {
	c := s.find(p, m.RemoteID, m.LocalID)
	reject := func(reason mad.Reason) {
		s.send(p, mad.Header{TID: h.TID}, &mad.REJ{LocalID: m.RemoteID, RemoteID: m.LocalID, About: mad.AboutREP, Reason: reason})
	}
	switch {
	case c == nil:
		reject(mad.ReasonInvalidCommID)
	case c.state == StateReqSent:
		if s.stale(p.Remote, m.QPN) {
			reject(mad.ReasonStale)
			c.forget()
			c.emit(Event{Kind: Rejected, Reason: mad.ReasonStale, Err: failure.New("cm connect", syscall.ECONNREFUSED, "%s answered with QP %#x, which is connected already", p.Remote, m.QPN)})
			return
		}
		c.timer.stop()
		c.state = StateRepRcvd
		c.register(m.LocalID, m.QPN)
		c.attr.SQPSN = m.PSN
		c.attr.MaxRdAtomic = min(c.attr.MaxRdAtomic, m.ResponderResources)
		c.attr.MaxDestRdAtomic = min(c.attr.MaxDestRdAtomic, m.InitiatorDepth)
		c.attr.RNRRetry = m.RNRRetry
		r := *m
		r.Private = bytes.Clone(m.Private)
		c.emit(Event{Kind: Replied, Reply: &r, Private: r.Private, ECE: ECE{m.VendorID, h.Modifier}})
	case c.state == StateRepRcvd:
		s.send(p, mad.Header{TID: h.TID}, &mad.MRA{LocalID: c.localID, RemoteID: c.remoteID, About: mad.AboutREP, ServiceTimeout: serviceTimeout})
	case c.state == StateEstablished && c.active:
		s.resend(p, c.reply)
	}
}

// takeRTU ends the wait for the peer to be ready.
func (c *Conn) takeRTU(m *mad.RTU) {
	if c.state == StateRepSent {
		c.establish(bytes.Clone(m.Private))
	}
}

// takeREJ ends a connection that the peer refuses or abandons.
func (s *Service) takeREJ(p Path, m *mad.REJ) {
	c := s.conns[m.RemoteID]
	if c == nil && m.Reason == mad.ReasonTimeout {
		// A sender that abandons its REQ does not know our id.
		c = s.remote[remoteKey{p.Remote, m.LocalID}]
	}
	if c == nil || c.path.Remote != p.Remote || c.remoteID != 0 && m.LocalID != 0 && c.remoteID != m.LocalID {
		return
	}
	switch c.state {
	case StateReqSent, StateReqRcvd, StateRepSent, StateRepRcvd:
		c.forget()
		c.emit(Event{Kind: Rejected, Reason: m.Reason, ARI: bytes.Clone(m.ARI), Private: bytes.Clone(m.Private)})
	case StateEstablished, StateDreqSent:
		c.emit(Event{Kind: Disconnected})
		c.timeWait()
	}
}

// takeDREQ ends a connection, or answers the DREQ for one that no longer exists.
func (s *Service) takeDREQ(p Path, h mad.Header, m *mad.DREQ) {
	c := s.find(p, m.RemoteID, m.LocalID)
	if c == nil {
		s.send(p, mad.Header{TID: h.TID}, &mad.DREP{LocalID: m.RemoteID, RemoteID: m.LocalID})
		return
	}
	if m.RemoteQPN != c.localQPN {
		return
	}
	switch c.state {
	case StateRepSent:
		// The RTU was lost: a peer without a connection could not disconnect.
		c.establish(nil)
		fallthrough
	case StateEstablished, StateRepRcvd:
		c.tid, c.state = h.TID, StateDreqRcvd
		if c.closed {
			c.sendDREP(nil)
			c.timeWait()
			return
		}
		c.emit(Event{Kind: Disconnected, Private: bytes.Clone(m.Private)})
	case StateDreqSent:
		c.tid = h.TID
		c.sendDREP(nil)
		c.emit(Event{Kind: Disconnected, Private: bytes.Clone(m.Private)})
		c.timeWait()
	case StateTimeWait:
		c.tid = h.TID
		c.sendDREP(nil)
	}
}

// takeDREP ends the wait for the peer to disconnect.
func (c *Conn) takeDREP(m *mad.DREP) {
	if c.state == StateDreqSent {
		c.emit(Event{Kind: Disconnected, Private: bytes.Clone(m.Private)})
		c.timeWait()
	}
}
