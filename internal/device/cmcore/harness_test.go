package cmcore

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/softmkey/softmkey/internal/net/mad"
)

var (
	addrA = netip.MustParseAddr("192.0.2.1")
	addrB = netip.MustParseAddr("192.0.2.2")
	addrC = netip.MustParseAddr("192.0.2.3")
	pathA = Path{Local: addrA, Remote: addrB}
)

// guests returns the number of entries in the service's tables.
func guests(s *Service) int {
	n := s.half.Len() + s.open.Len() + s.waits.Len() + s.answers.Len()
	for _, ls := range s.listeners {
		for _, l := range ls {
			n += l.backlog.Len()
		}
	}
	return n
}

// network connects services by address, with a delay for every MAD. drop and twice select
// the MADs that are lost and that arrive twice.
type network struct {
	t        *testing.T
	services map[netip.Addr]*Service

	mu    sync.Mutex // held while a MAD is sent, with its functions
	delay func() time.Duration
	drop  func(from netip.Addr, m mad.Message) bool
	twice func() bool
	sent  []mad.Attr // all, in order
	plain int        // how many of them have no traffic class
}

func newNetwork(t *testing.T) *network {
	return &network{
		t: t, services: make(map[netip.Addr]*Service),
		delay: func() time.Duration { return time.Millisecond },
		drop:  func(netip.Addr, mad.Message) bool { return false },
		twice: func() bool { return false },
	}
}

// Send delivers a MAD in virtual time.
func (n *network) Send(p Path, b []byte) error {
	_, m, err := mad.Parse(b)
	if err != nil {
		n.t.Errorf("sent a MAD that does not parse: %v", err)
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sent = append(n.sent, m.Attr()); p.TrafficClass != 0x68 {
		n.plain++
	}
	if n.drop(p.Local, m) {
		return nil
	}
	times := 1
	if n.twice() {
		times = 2
	}
	for range times {
		if to := n.services[p.Remote]; to != nil {
			time.AfterFunc(n.delay(), func() { to.Receive(Path{Local: p.Remote, Remote: p.Local}, b) })
		}
	}
	return nil
}

// add puts a service on the network.
func (n *network) add(a netip.Addr, o Options) *Service {
	r := rand.New(rand.NewPCG(uint64(a.As4()[3]), 1))
	if o.Rand == nil {
		o.Rand = r.Uint32
	}
	s := New(n, o)
	n.mu.Lock()
	n.services[a] = s
	n.mu.Unlock()
	return s
}

// recorder records the events of a connection.
type recorder struct {
	events []Event
	on     func(Event) // may be nil
}

func (r *recorder) handle(e Event) {
	r.events = append(r.events, e)
	if r.on != nil {
		r.on(e)
	}
}

func (r *recorder) kinds() (k []Kind) {
	for _, e := range r.events {
		k = append(k, e.Kind)
	}
	return k
}

// got fails the test unless these events came, and no others.
func (r *recorder) got(t *testing.T, want ...Kind) {
	t.Helper()
	if !slices.Equal(r.kinds(), want) {
		t.Errorf("events %+v, want %v", r.events, want)
	}
}

// refused fails the test unless a rejection with this reason came, and nothing else.
func (r *recorder) refused(t *testing.T, want mad.Reason) {
	t.Helper()
	if len(r.events) != 1 || r.events[0].Kind != Rejected || r.events[0].Reason != want {
		t.Errorf("events %+v, want a rejection: %v", r.events, want)
	}
}

// listen makes s take the requests of c.
func listen(t *testing.T, s *Service, c ListenConfig) *Listener {
	t.Helper()
	l, err := s.Listen(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// side is one end of a connection under test.
type side struct {
	recorder
	c *Conn
}

var testService = mad.ServiceID(mad.PortSpaceTCP, 7471)

func request(n uint32) ConnectParams { return requestFrom(addrA, n) }

func requestFrom(from netip.Addr, n uint32) ConnectParams {
	return ConnectParams{
		ServiceID: testService, QPN: 0x100 + n, ResponderResources: 4, InitiatorDepth: 8, RetryCount: 7, RNRRetry: 6, MTU: 3, TrafficClass: 0x68,
		Private: append(mad.AppendIPHeader(nil, mad.IPHeader{Port: 40000, Src: from, Dst: addrB}), "hello"...),
	}
}

func reply(n uint32) ReplyParams {
	return ReplyParams{QPN: 0x200 + n, ResponderResources: 8, InitiatorDepth: 4, RNRRetry: 5, Private: []byte("welcome")}
}

// accepting listens on s and accepts everything; the sides come on the channel.
func accepting(t *testing.T, s *Service) *[]*side {
	t.Helper()
	var sides []*side
	listen(t, s, ListenConfig{ServiceID: testService, Conn: func(c *Conn) Handler {
		b := &side{c: c}
		sides = append(sides, b)
		if err := c.Accept(reply(uint32(len(sides)))); err != nil {
			t.Error(err)
		}
		b.on = func(e Event) {
			if e.Kind == Disconnected && e.Err == nil {
				if err := c.Disconnect(nil); err != nil {
					t.Error(err)
				}
			}
		}
		return b.handle
	}})
	return &sides
}

// connect connects from s and confirms every reply.
func connect(t *testing.T, s *Service, p Path, o ConnectParams) *side {
	t.Helper()
	a := &side{}
	a.on = func(e Event) {
		switch e.Kind {
		case Replied:
			if err := e.Conn.Ready(nil); err != nil {
				t.Error(err)
			}
		case Disconnected:
			if err := e.Conn.Disconnect(nil); err != nil {
				t.Error(err)
			}
		}
	}
	var err error
	if a.c, err = s.Connect(p, o, a.handle); err != nil {
		t.Fatal(err)
	}
	return a
}

// settle advances virtual time until everything that is due has happened. The locks order
// the test's actions before the handlers that run in that time.
func (n *network) settle(d time.Duration) {
	n.mu.Lock()
	for _, s := range n.services {
		s.mu.Lock()
		_ = s.closed
		s.mu.Unlock()
	}
	n.mu.Unlock()
	time.Sleep(d)
	synctest.Wait()
}
