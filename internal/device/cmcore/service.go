package cmcore

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/random"
	"github.com/softmkey/softmkey/internal/net/fair"
	"github.com/softmkey/softmkey/internal/net/mad"
	"github.com/softmkey/softmkey/internal/net/netconn"
)

// Path is the pair of addresses of a MAD.
type Path struct {
	Local, Remote netip.Addr
	TrafficClass  uint8 // of the MADs to the peer: that of the connection, as Linux has it
}

// Link sends MADs from QP 1 of the device to QP 1 of a peer. Send does not wait for the
// network and may lose the MAD: the service repeats unanswered messages.
type Link interface {
	Send(p Path, mad []byte) error
}

// Options configure a service; zero values select the defaults.
type Options struct {
	// GUID is the node GUID of the device.
	GUID uint64

	// Rand returns random bits for communication ids and transaction ids.
	// Default: crypto/rand.
	Rand func() uint32

	// Several processes may share an address, each with a service (netconn.Member). Member is the number of this
	// one. Claim makes requests for a service id reach it; nil: there is no other process. Open sets both.
	Member uint32
	Claim  func(serviceID uint64) (release func(), err error)

	// MaxConns limits the connections of the service, including those in time wait, and
	// the queries that it sends. A peer can make at most half of them. Default 65536.
	MaxConns int

	// Empty is called when the service has no listener, connection or query left,
	// including those in time wait. It is called like a handler.
	Empty func()
}

// Service is the communication manager of a device. It is safe for concurrent
// use.
type Service struct {
	link Link
	o    Options
	end  func()        // called once by Close; may be nil
	gone chan struct{} // closed by Close

	mu      sync.Mutex // guards the following fields, and those of Conn, Query and Listener
	closed  bool
	running bool          // a goroutine is emptying outbox
	turn    sync.Cond     // signals the end of running to Receive
	waiting int           // calls of Receive that wait for turn
	outbox  []func()      // MADs and events, in order, for the time without the lock
	busy    bool          // something existed since Empty was called
	drained chan struct{} // closed when outbox is empty and no connection waits for a DREP; nil if nobody waits for that

	listeners map[uint64][]*Listener // by service id
	conns     map[uint32]*Conn       // by local communication id
	remote    map[remoteKey]*Conn    // by peer and its communication id
	qpns      map[remoteKey]*Conn    // live connections, by peer and its QP number
	queries   map[uint32]*Query      // sent, by request id
	asked     map[remoteKey]*Query   // received, by peer and its request id
	ports     map[portKey][]*Port

	// Every connection that a peer requested is in half, in open or in the backlog of its
	// listener. Every connection in time wait is in waits, whichever side requested it.
	half, open, waits *table
	answers           *table // queries that are not in a backlog
}

// remoteKey is a number that a peer chose.
type remoteKey struct {
	addr netip.Addr
	n    uint32
}

const defaultMaxConns = 1 << 16

// New returns a service that sends over link. The caller passes received MADs to
// [Service.Receive].
func New(link Link, o Options) *Service {
	if o.Rand == nil {
		o.Rand = random.Uint32
	}
	if o.MaxConns <= 0 {
		o.MaxConns = defaultMaxConns
	}
	bounded := func(most, each int) *table { return fair.New[guest](min(most, o.MaxConns), min(each, o.MaxConns)) }
	s := &Service{
		link: link, o: o, gone: make(chan struct{}),
		listeners: make(map[uint64][]*Listener),
		conns:     make(map[uint32]*Conn),
		remote:    make(map[remoteKey]*Conn),
		qpns:      make(map[remoteKey]*Conn),
		queries:   make(map[uint32]*Query),
		asked:     make(map[remoteKey]*Query),
		ports:     make(map[portKey][]*Port),
		half:      bounded(maxHalfOpen, peerHalfOpen), open: bounded(o.MaxConns, o.MaxConns),
		waits: bounded(maxWaits, peerWaits), answers: bounded(maxAnswers, peerAnswers),
	}
	s.turn.L = &s.mu
	return s
}

// GUID returns the node GUID of the device.
func (s *Service) GUID() uint64 { return s.o.GUID }

// Close ends the service. After the calls in progress, nothing is sent and no handler is
// called.
func (s *Service) Close() {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	defer func() {
		s.mu.Unlock()
		if closed {
			return
		}
		close(s.gone)
		if s.end != nil {
			s.end()
		}
	}()
	for _, c := range s.conns {
		c.timer.stop()
	}
	for _, q := range s.queries {
		q.timer.stop()
	}
	for _, q := range s.asked {
		q.timer.stop()
	}
	for _, list := range s.listeners {
		for _, l := range list {
			l.release()
		}
	}
	s.outbox = nil
	clear(s.listeners)
	clear(s.conns)
	clear(s.remote)
	clear(s.qpns)
	clear(s.queries)
	clear(s.asked)
	clear(s.ports)
	s.checkDrained()
}

// abandon ends all connections and queries, because nothing can be sent any more.
func (s *Service) abandon(err error) {
	s.mu.Lock()
	defer s.unlock()
	for _, c := range s.conns {
		e := Event{Kind: Disconnected, Err: err}
		switch c.state {
		case StateReqSent, StateReqRcvd, StateRepSent, StateRepRcvd:
			e.Kind = TimedOut
		case StateTimeWait:
			e = Event{Kind: Ended}
		}
		c.forget()
		c.emit(e)
	}
	for _, q := range s.queries {
		q.end(Answer{}, err)
	}
	for _, q := range s.asked {
		q.displace()
	}
}

// Drain waits until no connection waits for the answer to its DREQ, or until ctx ends. A
// service that ends earlier does not repeat a DREQ that was lost, and the peer keeps the
// connection.
//
// Before and after the wait, Drain repeats the DREPs of the connections in time wait. After
// the end, nobody answers a peer whose DREP was lost: Linux repeats its DREQ for more than
// a minute, and the program waits for it.
func (s *Service) Drain(ctx context.Context) {
	s.repeatDREPs()
	s.settle(ctx)
	s.repeatDREPs()
	s.settle(ctx)
}

func (s *Service) repeatDREPs() {
	s.mu.Lock()
	defer s.unlock()
	for _, c := range s.conns {
		if c.state == StateTimeWait && c.reply != nil {
			s.resend(c.path, c.reply)
		}
	}
}

// settle waits until all MADs are sent and no connection waits for a DREP, or until ctx
// ends.
func (s *Service) settle(ctx context.Context) {
	s.mu.Lock()
	if s.drained == nil {
		s.drained = make(chan struct{})
	}
	drained := s.drained
	s.unlock()
	select {
	case <-drained:
	case <-ctx.Done():
	}
}

// checkDrained ends settle if it is due. The lock is held.
func (s *Service) checkDrained() {
	if s.drained == nil {
		return
	}
	for _, c := range s.conns {
		if c.state == StateDreqSent {
			return
		}
	}
	close(s.drained)
	s.drained = nil
}

// Flush returns when everything that was queued before has been sent and handled. A method
// whose message another goroutine is about to send returns at once. A program that may close
// the device next therefore calls Flush, which a handler must not.
func (s *Service) Flush() {
	sent := make(chan struct{})
	s.mu.Lock()
	s.outbox = append(s.outbox, func() { close(sent) })
	s.unlock()
	select {
	case <-sent:
	case <-s.gone:
	}
}

// Flush is [Service.Flush].
func (l *Listener) Flush() { l.s.Flush() }

// unlock releases the lock and runs the functions in outbox, unless another goroutine is
// doing so. Every method that may have queued a function ends with it.
//
// MADs may arrive faster than the functions run that they queue. Receive therefore waits while
// another goroutine runs functions, so that outbox stays short. That goroutine stops after the
// current batch when a call of Receive waits: a method that a program called must not run the
// functions of later MADs.
func (s *Service) unlock() {
	defer s.mu.Unlock()
	if s.running {
		return
	}
	s.running = true
	for first := true; first || s.waiting == 0; first = false {
		batch := s.outbox
		s.outbox = nil
		if len(batch) == 0 {
			if empty := s.emptied(); empty != nil {
				batch = append(batch, empty)
			} else {
				break
			}
		}
		s.mu.Unlock()
		for _, f := range batch {
			f()
		}
		s.mu.Lock()
	}
	s.running = false
	if s.waiting > 0 {
		s.turn.Signal()
	}
	if len(s.outbox) == 0 {
		s.checkDrained()
	}
}

// Idle reports whether the service has no listener, connection, query or port.
func (s *Service) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idle()
}

func (s *Service) idle() bool {
	return len(s.listeners)+len(s.conns)+len(s.queries)+len(s.asked)+len(s.ports) == 0
}

// emptied returns Options.Empty if it is due.
func (s *Service) emptied() func() {
	if !s.idle() {
		s.busy = true
		return nil
	}
	if !s.busy || s.closed {
		return nil
	}
	s.busy = false
	return s.o.Empty
}

// send queues a MAD.
func (s *Service) send(p Path, h mad.Header, m mad.Message) []byte {
	b := mad.Append(nil, h, m)
	s.resend(p, b)
	return b
}

func (s *Service) resend(p Path, b []byte) {
	if !s.closed {
		// A MAD that the system failed to send counts as lost in the network.
		s.outbox = append(s.outbox, func() { _ = s.link.Send(p, b) })
	}
}

// full reports whether peers must not add state to the service.
func (s *Service) full() bool { return len(s.conns)+len(s.queries)+len(s.asked) >= s.o.MaxConns }

// admit returns an error if the program must not add a connection or query to the service.
func (s *Service) admit(op string) error {
	switch {
	case s.closed:
		return net.ErrClosed
	case s.full():
		return failure.New(op, syscall.ENOMEM, "%d connections and queries: no more on one device", s.o.MaxConns)
	}
	return nil
}

// newID returns a random number that no connection or query uses and that is not 0.
func (s *Service) newID() uint32 {
	for {
		id := s.o.Rand()
		if s.o.Claim != nil {
			id = id>>netconn.MemberBits | s.o.Member<<(32-netconn.MemberBits)
		}
		if id != 0 && s.conns[id] == nil && s.queries[id] == nil {
			return id
		}
	}
}

func (s *Service) newTID() uint64 { return uint64(s.o.Rand())<<32 | uint64(s.o.Rand()) }

// newPSN returns the first PSN for a peer.
func (s *Service) newPSN() uint32 { return s.o.Rand() & 0xffffff }

// Receive handles a MAD that arrived on QP 1. It drops MADs of other classes. It does not
// keep the bytes. It must not be called by a handler.
func (s *Service) Receive(p Path, b []byte) {
	h, m, err := mad.Parse(b)
	if err != nil {
		return
	}
	p = Path{Local: p.Local.Unmap(), Remote: p.Remote.Unmap()}
	s.mu.Lock()
	for s.running {
		s.waiting++
		s.turn.Wait()
		s.waiting--
	}
	defer s.unlock()
	if s.closed {
		return
	}
	switch m := m.(type) {
	case *mad.REQ:
		s.takeREQ(p, h, m)
	case *mad.MRA:
		if c := s.find(p, m.RemoteID, m.LocalID); c != nil {
			c.takeMRA(m)
		}
	case *mad.REJ:
		s.takeREJ(p, m)
	case *mad.REP:
		s.takeREP(p, h, m)
	case *mad.RTU:
		if c := s.find(p, m.RemoteID, m.LocalID); c != nil {
			c.takeRTU(m)
		}
	case *mad.DREQ:
		s.takeDREQ(p, h, m)
	case *mad.DREP:
		if c := s.find(p, m.RemoteID, m.LocalID); c != nil {
			c.takeDREP(m)
		}
	case *mad.SIDRREQ:
		s.takeSIDRREQ(p, h, m)
	case *mad.SIDRREP:
		s.takeSIDRREP(p, m)
	}
}

// find returns the connection that a MAD names: by our id, together with the peer's
// address and, if it is known, the peer's id.
func (s *Service) find(p Path, id, remoteID uint32) *Conn {
	c := s.conns[id]
	if c == nil || c.path.Remote != p.Remote || c.remoteID != 0 && c.remoteID != remoteID {
		return nil
	}
	return c
}

// Listener receives the requests for a service ID.
type Listener struct {
	s       *Service
	id      uint64
	local   netip.Addr // the invalid address takes requests to every address
	release func()     // gives the service ID back
	backlog *table     // requests that the application has neither taken nor answered
	conn    func(*Conn) Handler
	query   func(*Query) (gone func())
}

// ListenConfig configures a listener.
type ListenConfig struct {
	ServiceID uint64

	// Local is the address whose requests the listener gets. An unspecified address means
	// every address of its family, the invalid address every address.
	Local netip.Addr

	// Backlog is the number of requests that may wait until the application takes or
	// answers them. A further one displaces the oldest of a peer that has most; a peer
	// has at most half of them. Default 128.
	Backlog int

	// Conn is called with each request for a connection and returns the
	// handler of the connection's further events. Requests for connections to a
	// listener without it are refused.
	Conn func(*Conn) Handler

	// Query is called with each request for a datagram QP. See [Query]. It returns a
	// function, or nil, that is called if the request is dropped before the application
	// has answered it.
	Query func(*Query) (gone func())
}

// Listen starts to receive requests. It returns EADDRINUSE if the service ID is in use at
// the same address or at all addresses.
func (s *Service) Listen(c ListenConfig) (*Listener, error) {
	const op = "cm listen"
	if c.Backlog <= 0 {
		c.Backlog = 128
	}
	s.mu.Lock()
	defer s.unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	local := c.Local.Unmap()
	for _, l := range s.listeners[c.ServiceID] {
		if l.local == local {
			return nil, failure.New(op, syscall.EADDRINUSE, "service id %#x: somebody listens already", c.ServiceID)
		}
	}
	release := func() {} // may be called again after the service has ended
	if s.o.Claim != nil {
		var err error
		if release, err = s.o.Claim(c.ServiceID); err != nil {
			return nil, err
		}
	}
	l := &Listener{s: s, id: c.ServiceID, local: local, release: release, backlog: fair.New[guest](c.Backlog, (c.Backlog+1)/2).Level(), conn: c.Conn, query: c.Query}
	s.listeners[c.ServiceID] = append(s.listeners[c.ServiceID], l)
	return l, nil
}

// Close ends the listener. Connections from the listener, and requests that wait for an
// answer, remain.
func (l *Listener) Close() {
	l.s.mu.Lock()
	defer l.s.unlock()
	l.release()
	remove(l.s.listeners, l.id, l)
}

// remove removes a value from one of the lists in a map, and the last one together with its list.
func remove[K, V comparable](lists map[K][]V, key K, v V) {
	lists[key] = slices.DeleteFunc(lists[key], func(e V) bool { return e == v })
	if len(lists[key]) == 0 {
		delete(lists, key)
	}
}

// listener returns the listener for a service ID at a local address. A listener at that
// address takes precedence over one at all addresses of a family, that one over one at all
// addresses.
func (s *Service) listener(id uint64, local netip.Addr) *Listener {
	var best *Listener
	for _, l := range s.listeners[id] {
		if covers(l.local, local) && (best == nil || covers(best.local, l.local)) {
			best = l
		}
	}
	return best
}
