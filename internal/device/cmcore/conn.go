package cmcore

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/net/mad"
)

// Default values of a connection.
const (
	// DefaultResponseTimeout is the time before an unanswered message is sent again,
	// 0.54 s. A slower application requests more time with an MRA.
	DefaultResponseTimeout = 17
	// DefaultRetries is the largest value of the field: a peer counts as gone after
	// 8.6 s without an answer.
	DefaultRetries = 15
	// DefaultAckTimeout is the ACK timeout of connected QPs, 0.54 s, as in Linux for
	// soft-RoCE.
	DefaultAckTimeout = 17

	// serviceTimeout is the time that an MRA requests for an application that has taken the
	// request, 69 s, and backlogTimeout for one that has not, 4.3 s: a request in the
	// backlog may be displaced, and its peer waits as long as the MRA says.
	serviceTimeout = 24
	backlogTimeout = 20
	// ackDelay is the local CA ACK delay of softmkey devices: 134 ms.
	ackDelay = 15

	permissiveLID = 0xffff
	hopLimit      = 64
	rate          = 3 // code of 10 Gbit/s: RoCE peers ignore the rate, but 0 is not a valid code
	defaultPKey   = 0xffff
)

// ConnectParams are the contents of the REQ that the connecting side sends.
type ConnectParams struct {
	ServiceID uint64
	Transport mad.Transport
	QPN       uint32

	ResponderResources uint8 // READs and atomics that the QP can answer at a time
	InitiatorDepth     uint8 // READs and atomics that the QP may have outstanding
	RetryCount         uint8
	RNRRetry           uint8 // for the peer's QP
	FlowControl        bool
	SRQ                bool
	MTU                uint8 // 1 to 5
	AckTimeout         uint8 // 0 means DefaultAckTimeout
	TrafficClass       uint8
	ECE                ECE // of the application

	ResponseTimeout uint8 // of the messages; 0 means DefaultResponseTimeout

	Private []byte // whole field, with an IPHeader if the service ID requires one
}

// ReplyParams are the contents of the REP that the accepting side sends.
type ReplyParams struct {
	QPN                uint32
	ResponderResources uint8
	InitiatorDepth     uint8
	RNRRetry           uint8 // for the peer's QP
	FlowControl        bool
	SRQ                bool
	ECE                ECE // of the application
	Private            []byte
}

// Request is a received REQ for a listener.
type Request struct {
	mad.REQ
	ECE ECE

	// IP is the header of a request to a service of the RDMA IP CM service, and Data
	// is the application's private data after it. For other requests Data is the
	// whole field.
	IP   mad.IPHeader
	Data []byte
}

// QPAttr holds the attributes that a connection's QP needs in RTR and RTS. Each side
// chooses the first PSN of its peer: RQPSN, which its REQ or REP carries.
type QPAttr struct {
	Path            Path
	DestQPN         uint32
	RQPSN, SQPSN    uint32
	MTU             uint8
	MaxRdAtomic     uint8 // as requester
	MaxDestRdAtomic uint8 // as responder
	Timeout         uint8
	RetryCount      uint8
	RNRRetry        uint8
	TrafficClass    uint8
}

// State is the state of a connection (figures 130 and 131 of the specification, without
// the states that exist only because of an MRA).
type State uint8

// The states of a connection.
const (
	StateReqSent     State = iota // waits for a REP
	StateReqRcvd                  // waits for the application
	StateRepSent                  // waits for an RTU
	StateRepRcvd                  // waits for the application
	StateEstablished              //
	StateDreqSent                 // waits for a DREP
	StateDreqRcvd                 // waits for the application
	StateTimeWait                 // answers repeated messages of the peer
	StateClosed                   // the service has forgotten it
)

var stateNames = [...]string{"REQ sent", "REQ received", "REP sent", "REP received", "established", "DREQ sent", "DREQ received", "time wait", "closed"}

// String returns the state in words.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Kind is the kind of an event.
type Kind uint8

// The kinds of events of a connection.
const (
	Replied      Kind = iota // REP received; the application answers with Ready or Reject
	Established              // RTU received
	Rejected                 // REJ received: Reason, ARI, Private
	TimedOut                 // REQ or REP not answered, or request given up: Err
	Disconnected             // DREQ received, or our DREQ answered or timed out (Err)
	Ended                    // time wait is over
	Displaced                // a request that was not confirmed made room for a newer one: Err
)

// Event is an event of a connection.
type Event struct {
	Kind    Kind
	Conn    *Conn
	Private []byte // from the message, padded with zeros; the receiver may keep it
	Reason  mad.Reason
	ARI     []byte
	ECE     ECE      // of the REP
	Reply   *mad.REP // with Replied
	Err     error
}

// Handler handles events. It is called without locks and must not block.
type Handler func(Event)

// Conn is a connection, or a request for one.
type Conn struct {
	exchange // REQ, REP or DREQ; the timer also ends the time wait

	active  bool
	handler Handler
	req     *Request // received

	localID, remoteID   uint32
	localQPN, remoteQPN uint32
	tid                 uint64
	state               State
	attr                QPAttr

	response time.Duration // time to wait for the answer to a REQ or REP
	retries  int           // how often a REQ or REP is repeated before the peer counts as gone
	reply    []byte        // RTU, or DREP in time wait: the answer to a repeated message of the peer

	remoteKey, qpnKey remoteKey // entries in the service's tables; n is 0 without one
}

// Request returns the REQ that made the connection, nil on the side that sent it.
func (c *Conn) Request() *Request { return c.req }

// State returns the state of the connection.
func (c *Conn) State() State {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.state
}

// Attr returns the attributes of the QP. They are complete once the REQ (on the
// accepting side) or the REP (on the connecting side) has come.
func (c *Conn) Attr() QPAttr {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.attr
}

// Connect sends a REQ. The handler gets Replied, Rejected or TimedOut.
func (s *Service) Connect(p Path, o ConnectParams, h Handler) (*Conn, error) {
	const op = "cm connect"
	if len(o.Private) > mad.REQPrivate {
		return nil, failure.New(op, syscall.EINVAL, "%d bytes of private data: a REQ has room for %d", len(o.Private), mad.REQPrivate)
	}
	o.AckTimeout, o.ResponseTimeout = cmp.Or(o.AckTimeout, DefaultAckTimeout), cmp.Or(o.ResponseTimeout, DefaultResponseTimeout)
	p = Path{Local: p.Local.Unmap(), Remote: p.Remote.Unmap(), TrafficClass: o.TrafficClass}
	s.mu.Lock()
	defer s.unlock()
	if err := s.admit(op); err != nil {
		return nil, err
	}
	c := &Conn{
		exchange: exchange{s: s, path: p}, active: true, handler: h, localID: s.newID(), tid: s.newTID(), localQPN: o.QPN,
		response: interval(o.ResponseTimeout, minTimeout, maxTimeout), retries: DefaultRetries,
		attr: QPAttr{
			Path: p, RQPSN: s.newPSN(), MTU: o.MTU, MaxRdAtomic: o.InitiatorDepth, MaxDestRdAtomic: o.ResponderResources,
			Timeout: o.AckTimeout, RetryCount: o.RetryCount, RNRRetry: o.RNRRetry, TrafficClass: o.TrafficClass,
		},
	}
	s.conns[c.localID] = c
	c.ask(StateReqSent, mad.Header{TID: c.tid, Modifier: o.ECE.Options}, &mad.REQ{
		LocalID: c.localID, ServiceID: o.ServiceID, CAGUID: s.o.GUID, QPN: o.QPN,
		ResponderResources: o.ResponderResources, InitiatorDepth: o.InitiatorDepth,
		RemoteResponseTimeout: o.ResponseTimeout, LocalResponseTimeout: o.ResponseTimeout, MaxCMRetries: DefaultRetries,
		Transport: o.Transport, FlowControl: o.FlowControl, PSN: c.attr.RQPSN, RetryCount: o.RetryCount, RNRRetry: o.RNRRetry,
		PKey: defaultPKey, MTU: o.MTU, SRQ: o.SRQ, VendorID: o.ECE.Vendor,
		Path: mad.PathInfo{
			LocalLID: permissiveLID, RemoteLID: permissiveLID, LocalGID: mad.GID(p.Local), RemoteGID: mad.GID(p.Remote),
			Rate: rate, TrafficClass: o.TrafficClass, HopLimit: hopLimit, AckTimeout: o.AckTimeout,
		},
		Private: o.Private,
	})
	return c, nil
}

// Accept answers the request with a REP. Established, Rejected or TimedOut
// follows; the QP should be ready to receive before.
func (c *Conn) Accept(o ReplyParams) error {
	const op = "cm accept"
	if len(o.Private) > mad.REPPrivate {
		return failure.New(op, syscall.EINVAL, "%d bytes of private data: a REP has room for %d", len(o.Private), mad.REPPrivate)
	}
	c.s.mu.Lock()
	defer c.s.unlock()
	if c.state != StateReqRcvd {
		return c.errState(op)
	}
	c.stay(c, c.s.half)
	c.localQPN = o.QPN
	c.attr.MaxRdAtomic, c.attr.MaxDestRdAtomic = o.InitiatorDepth, o.ResponderResources
	c.ask(StateRepSent, mad.Header{TID: c.tid, Modifier: o.ECE.Options}, &mad.REP{
		LocalID: c.localID, RemoteID: c.remoteID, QPN: o.QPN, PSN: c.attr.RQPSN,
		ResponderResources: o.ResponderResources, InitiatorDepth: o.InitiatorDepth, TargetAckDelay: ackDelay,
		FlowControl: o.FlowControl, RNRRetry: o.RNRRetry, SRQ: o.SRQ, CAGUID: c.s.o.GUID, VendorID: o.ECE.Vendor,
		Private: o.Private,
	})
	return nil
}

// Ready answers the REP with an RTU: the connection is established.
func (c *Conn) Ready(private []byte) error {
	const op = "cm ready"
	if len(private) > mad.RTUPrivate {
		return failure.New(op, syscall.EINVAL, "%d bytes of private data: an RTU has room for %d", len(private), mad.RTUPrivate)
	}
	c.s.mu.Lock()
	defer c.s.unlock()
	if c.state != StateRepRcvd {
		return c.errState(op)
	}
	c.state = StateEstablished
	c.reply = c.s.send(c.path, mad.Header{TID: c.tid}, &mad.RTU{LocalID: c.localID, RemoteID: c.remoteID, Private: private})
	return nil
}

// Arrived records that the QP received a message from the peer. This has the same effect
// as an RTU that is still missing.
func (c *Conn) Arrived() {
	c.s.mu.Lock()
	defer c.s.unlock()
	if c.state == StateRepSent {
		c.establish(nil)
	}
}

// Reject answers the REQ or the REP with a REJ. The connection is closed.
func (c *Conn) Reject(reason mad.Reason, ari, private []byte) error {
	const op = "cm reject"
	if len(private) > mad.REJPrivate || len(ari) > mad.ARILen {
		return failure.New(op, syscall.EINVAL, "%d bytes of reject information and %d of private data: a REJ has room for %d and %d", len(ari), len(private), mad.ARILen, mad.REJPrivate)
	}
	c.s.mu.Lock()
	defer c.s.unlock()
	switch c.state {
	case StateReqRcvd:
		c.refuse(mad.AboutREQ, reason, ari, private)
	case StateRepRcvd, StateRepSent:
		c.refuse(mad.AboutREP, reason, ari, private)
	default:
		return c.errState(op)
	}
	return nil
}

// Disconnect ends an established connection with a DREQ, or answers the DREQ of
// the peer with a DREP. It does nothing when the connection has ended.
func (c *Conn) Disconnect(private []byte) error {
	const op = "cm disconnect"
	c.s.mu.Lock()
	defer c.s.unlock()
	switch c.state {
	case StateEstablished, StateDreqRcvd:
		limit := mad.DREQPrivate
		if c.state == StateDreqRcvd {
			limit = mad.DREPPrivate
		}
		if len(private) > limit {
			return failure.New(op, syscall.EINVAL, "%d bytes of private data: the message has room for %d", len(private), limit)
		}
		if c.state == StateEstablished {
			c.sendDREQ(private)
		} else {
			c.sendDREP(private)
			c.timeWait()
		}
	case StateDreqSent, StateTimeWait, StateClosed:
	default:
		return c.errState(op)
	}
	return nil
}

// After calls f like a handler, once the messages and events that are already queued have been
// handled.
func (c *Conn) After(f func()) {
	c.s.mu.Lock()
	defer c.s.unlock()
	c.s.outbox = append(c.s.outbox, f)
}

// Close abandons the connection without further events. The peer of an established
// connection gets a DREQ, which is repeated until it answers; a peer that waits for an
// answer gets a REJ or a DREP. Closing twice does nothing.
func (c *Conn) Close() {
	c.s.mu.Lock()
	defer c.s.unlock()
	c.closed = true
	switch c.state {
	case StateReqSent:
		c.refuse(mad.AboutREQ, mad.ReasonTimeout, guidARI(c.s.o.GUID), nil)
	case StateReqRcvd:
		c.refuse(mad.AboutREQ, mad.ReasonConsumer, nil, nil)
	case StateRepRcvd, StateRepSent:
		c.refuse(mad.AboutREP, mad.ReasonConsumer, nil, nil)
	case StateEstablished:
		c.sendDREQ(nil)
	case StateDreqRcvd:
		c.sendDREP(nil)
		c.timeWait()
	}
}

func (c *Conn) errState(op string) error {
	return failure.New(op, syscall.EINVAL, "the connection is in state %q", c.state)
}

// guidARI returns the additional reject information of the REJ with which the sender of a REQ
// gives up: the sender's GUID.
func guidARI(guid uint64) []byte {
	return binary.BigEndian.AppendUint64(nil, guid)
}

// emit queues an event.
func (c *Conn) emit(e Event) {
	e.Conn = c
	c.report(func() func() {
		h := c.handler
		if h == nil {
			return nil
		}
		return func() { h(e) }
	})
}

// ask sends a REQ or a REP.
func (c *Conn) ask(state State, h mad.Header, m mad.Message) {
	// The peer of a REQ is one that the application chose. The peer of a REP may be a
	// stranger, who gets one MRA.
	about, mras := mad.AboutREQ, c.retries+1
	if state == StateRepSent {
		about, mras = mad.AboutREP, 1
	}
	c.state = state
	c.transmit(h, m, c.response, c.retries, func() {
		err := c.unanswered(c.retries)
		c.refuse(about, mad.ReasonTimeout, guidARI(c.s.o.GUID), nil)
		c.emit(Event{Kind: TimedOut, Err: err})
	})
	c.mras = mras
}

// await waits for the application's answer to the REQ, as long as the peer may wait for it.
// more is the time that an MRA has requested.
func (c *Conn) await(more time.Duration) {
	d := requestTime + interval(c.req.RemoteResponseTimeout, minTimeout, maxService) + more
	c.timer.start(c.s, d, func() {
		c.refuse(mad.AboutREQ, mad.ReasonTimeout, nil, nil)
		c.emit(Event{Kind: TimedOut, Err: failure.New("cm", syscall.ETIMEDOUT, "%s has not repeated its request in %v", c.path.Remote, d)})
	})
}

// unanswered is the error for a message that was sent and repeated without an answer.
func (c *Conn) unanswered(repetitions int) error {
	return failure.New("cm", syscall.ETIMEDOUT, "%s did not answer in state %q, after %d tries", c.path.Remote, c.state, repetitions+1)
}

// refuse sends a REJ and removes the connection.
func (c *Conn) refuse(about mad.About, reason mad.Reason, ari, private []byte) {
	c.s.send(c.path, mad.Header{TID: c.tid}, &mad.REJ{
		LocalID: c.localID, RemoteID: c.remoteID, About: about, Reason: reason, ARI: ari, Private: private,
	})
	c.forget()
}

// sendDREQ disconnects. It uses the default timeout and number of repetitions. Those of the REP
// are not suitable, because the peer chose them and may have chosen no repetitions.
func (c *Conn) sendDREQ(private []byte) {
	c.tid, c.state, c.reply = c.s.newTID(), StateDreqSent, nil
	m := &mad.DREQ{LocalID: c.localID, RemoteID: c.remoteID, RemoteQPN: c.remoteQPN, Private: private}
	c.transmit(mad.Header{TID: c.tid}, m, interval(DefaultResponseTimeout, minTimeout, maxTimeout), DefaultRetries, func() {
		c.emit(Event{Kind: Disconnected, Err: c.unanswered(DefaultRetries)})
		c.timeWait()
	})
}

func (c *Conn) sendDREP(private []byte) {
	c.reply = c.s.send(c.path, mad.Header{TID: c.tid}, &mad.DREP{LocalID: c.localID, RemoteID: c.remoteID, Private: private})
}

// establish ends the wait for an RTU.
func (c *Conn) establish(private []byte) {
	c.timer.stop()
	c.leave()
	c.place = place{c.s.open, c.s.open.Add(c.path.Remote, c)}
	c.state = StateEstablished
	c.emit(Event{Kind: Established, Private: private})
}

// timeWait keeps the connection while packets and repeated messages of the peer may
// arrive. Its QP number can be used for a new connection at once, because the peer reuses
// it only after its own time wait.
func (c *Conn) timeWait() {
	c.state = StateTimeWait
	c.stay(c, c.s.waits)
	c.freeQPN()
	c.timer.start(c.s, interval(c.attr.Timeout, minTimeout, maxTimeout), func() {
		c.forget()
		c.emit(Event{Kind: Ended})
	})
}

// forget removes the connection from the service's tables.
func (c *Conn) forget() {
	c.timer.stop()
	c.leave()
	c.freeQPN()
	c.state = StateClosed
	delete(c.s.conns, c.localID)
	if c.s.remote[c.remoteKey] == c {
		delete(c.s.remote, c.remoteKey)
	}
}

func (c *Conn) freeQPN() {
	if c.s.qpns[c.qpnKey] == c {
		delete(c.s.qpns, c.qpnKey)
	}
}

// register enters the peer's numbers in the service's tables.
func (c *Conn) register(remoteID, qpn uint32) {
	c.remoteID, c.remoteQPN, c.attr.DestQPN = remoteID, qpn, qpn
	c.remoteKey = remoteKey{c.path.Remote, remoteID}
	c.qpnKey = remoteKey{c.path.Remote, qpn}
	c.s.remote[c.remoteKey] = c
	c.s.qpns[c.qpnKey] = c
}

// stale reports whether an open connection has the same QP of the peer. It ends that
// connection, because the peer no longer has it. A request that is not confirmed does not
// count and ends, too: somebody else may have sent it in the peer's name.
func (s *Service) stale(remote netip.Addr, qpn uint32) bool {
	old := s.qpns[remoteKey{remote, qpn}]
	if old == nil {
		return false
	}
	if old.halfOpen() {
		old.displace()
		return false
	}
	if old.state == StateEstablished {
		old.sendDREQ(nil)
	}
	return true
}
