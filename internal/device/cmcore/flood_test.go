package cmcore

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/net/mad"
)

var queryService = mad.ServiceID(mad.PortSpaceUDP, 7174)

// stranger sends requests to a service and keeps no state of its own. It ignores every answer
// except a REP, which is passed to answer.
type stranger struct {
	s      *Service
	addr   func(i int) netip.Addr // of request i
	answer func(s *Service, p Path, m *mad.REP)
}

// one and forged are values of stranger.addr: one address for all requests, and a different
// address for each.
func one(int) netip.Addr { return addrC }
func forged(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

func (x *stranger) req(i int, qpn uint32, t mad.Transport) {
	from := x.addr(i)
	o := requestFrom(from, uint32(i))
	x.s.Receive(Path{Local: addrB, Remote: from}, mad.Append(nil, mad.Header{TID: 1}, &mad.REQ{
		LocalID: uint32(i) + 1, QPN: qpn, ServiceID: o.ServiceID, Transport: t, MTU: 3, MaxCMRetries: 15,
		RemoteResponseTimeout: 20, LocalResponseTimeout: 20, Path: mad.PathInfo{AckTimeout: 31}, Private: o.Private,
	}))
}

func (x *stranger) query(i int) {
	from := x.addr(i)
	private := mad.AppendIPHeader(nil, mad.IPHeader{Port: 5, Src: from, Dst: addrB})
	x.s.Receive(Path{Local: addrB, Remote: from}, mad.Append(nil, mad.Header{TID: 1}, &mad.SIDRREQ{RequestID: uint32(i) + 1, ServiceID: queryService, Private: private}))
}

// excuseREP answers a REP with an MRA of the longest time, and nothing more.
func excuseREP(s *Service, p Path, m *mad.REP) {
	s.Receive(p, mad.Append(nil, mad.Header{TID: 1}, &mad.MRA{LocalID: m.RemoteID, RemoteID: m.LocalID, About: mad.AboutREP, ServiceTimeout: 31}))
}

// hangUp confirms a REP and disconnects at once, so that the connection is in time wait.
func hangUp(s *Service, p Path, m *mad.REP) {
	s.Receive(p, mad.Append(nil, mad.Header{TID: 1}, &mad.RTU{LocalID: m.RemoteID, RemoteID: m.LocalID}))
	s.Receive(p, mad.Append(nil, mad.Header{TID: 1}, &mad.DREQ{LocalID: m.RemoteID, RemoteID: m.LocalID, RemoteQPN: m.QPN}))
}

// strangers is a network on which a stranger has every address that no service has.
type strangers struct {
	*network
	x *stranger
}

func (n strangers) Send(p Path, b []byte) error {
	if _, m, _ := mad.Parse(b); n.services[p.Remote] == nil && n.x.answer != nil {
		if rep, ok := m.(*mad.REP); ok {
			time.AfterFunc(time.Millisecond, func() { n.x.answer(n.x.s, Path{Local: p.Remote, Remote: p.Local}.turned(), rep) })
		}
	}
	return n.network.Send(p, b)
}

func (p Path) turned() Path { return Path{Local: p.Remote, Remote: p.Local} }

// application accepts one request after another and spends the time each on every request. If
// each is 0, it accepts a request as soon as it arrives.
type application struct {
	t       *testing.T
	each    time.Duration
	waiting []*Conn
	queries []*Query
	n       uint32
}

func (a *application) listen(s *Service) {
	for _, c := range []ListenConfig{{ServiceID: testService, Conn: a.requested}, {ServiceID: queryService, Query: a.queried}} {
		listen(a.t, s, c)
	}
}

func (a *application) requested(c *Conn) Handler {
	a.waiting = append(a.waiting, c)
	if a.each == 0 {
		a.step()
	}
	return func(e Event) {
		a.waiting = slices.DeleteFunc(a.waiting, func(w *Conn) bool { return w == c })
		if e.Kind == Disconnected {
			c.Disconnect(nil)
		}
	}
}

func (a *application) queried(q *Query) func() {
	a.queries = append(a.queries, q)
	if a.each == 0 {
		a.step()
	}
	return func() { a.queries = slices.DeleteFunc(a.queries, func(w *Query) bool { return w == q }) }
}

// step accepts the oldest request and the oldest query.
func (a *application) step() {
	if len(a.waiting) > 0 {
		c := a.waiting[0]
		a.waiting = a.waiting[1:]
		a.n++
		c.Taken()
		// Accept fails if the request has been displaced.
		_ = c.Accept(reply(a.n & 0xffff))
	}
	if len(a.queries) > 0 {
		q := a.queries[0]
		a.queries = a.queries[1:]
		q.Taken()
		_ = q.Reply(Answer{QPN: 0x77})
	}
}

// TestRequestFloods floods a service with requests of strangers, 10,000 a second. Meanwhile a peer
// connects, disconnects and asks for a datagram QP ten times in a row. What the service
// keeps is bounded, and in the end it keeps nothing.
func TestRequestFloods(t *testing.T) {
	for _, test := range []struct {
		name  string
		each  time.Duration // that the application takes for a request
		addr  func(int) netip.Addr
		reply func(*Service, Path, *mad.REP)
		send  func(x *stranger, i int)
	}{
		{"requests that nobody confirms", time.Millisecond, one, nil, func(x *stranger, i int) { x.req(i, uint32(i), mad.RC) }},
		{"requests with an MRA", time.Millisecond, one, excuseREP, func(x *stranger, i int) { x.req(i, uint32(i), mad.RC) }},
		{"forged requests", 0, forged, nil, func(x *stranger, i int) { x.req(i, uint32(i), mad.RC) }},
		{"forged requests with an MRA", 0, forged, excuseREP, func(x *stranger, i int) { x.req(i, uint32(i), mad.RC) }},
		{"connections in time wait", 0, one, hangUp, func(x *stranger, i int) { x.req(i, uint32(i), mad.RC) }},
		{"forged connections in time wait", 0, forged, hangUp, func(x *stranger, i int) { x.req(i, uint32(i), mad.RC) }},
		{"requests in the peer's name", 0, func(int) netip.Addr { return addrA }, nil, func(x *stranger, i int) { x.req(i, 0x10000+uint32(i), mad.RC) }},
		{"queries", time.Millisecond, one, nil, (*stranger).query},
		{"forged queries", 0, forged, nil, (*stranger).query},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t)
				x := &stranger{addr: test.addr, answer: test.reply}
				a := n.add(addrA, Options{GUID: 0xa})
				b := New(strangers{n, x}, Options{GUID: 0xb})
				n.services[addrB], x.s = b, b
				defer a.Close()
				defer b.Close()
				app := &application{t: t, each: test.each}
				app.listen(b)
				stop := make(chan struct{})
				flood := func(each time.Duration, f func(i int)) {
					for i := 0; ; i++ {
						select {
						case <-stop:
							return
						case <-time.After(each):
							f(i)
						}
					}
				}
				var most int
				go flood(100*time.Microsecond, func(i int) {
					test.send(x, i)
					b.mu.Lock()
					most = max(most, guests(b), len(b.conns)+len(b.asked))
					b.mu.Unlock()
				})
				if test.each > 0 {
					go flood(test.each, func(int) {
						// step runs like the handler of an event.
						b.mu.Lock()
						b.outbox = append(b.outbox, app.step)
						b.unlock()
					})
				}
				flooded, connections := 2*time.Second, 10
				if testing.Short() {
					flooded, connections = 500*time.Millisecond, 2
				}
				n.settle(flooded)
				for i := range connections {
					p := connect(t, a, pathA, request(uint32(i)))
					var answer *Answer
					_, err := a.Query(pathA, queryService, request(0).Private, func(a Answer, err error) {
						if err != nil {
							t.Error(err)
						}
						answer = &a
					})
					fatal.If(t, err)
					for range 90 {
						if n.settle(100 * time.Millisecond); p.c.State() == StateEstablished && answer != nil {
							break
						}
					}
					if p.c.State() != StateEstablished {
						t.Errorf("connection %d is in state %v: %+v", i, p.c.State(), p.events)
					}
					if answer == nil || answer.QPN != 0x77 {
						t.Errorf("query %d: %+v", i, answer)
					}
					p.c.Close()
				}
				close(stop)
				if limit := maxHalfOpen + maxWaits + maxAnswers + 2*128 + 100; most > limit {
					t.Errorf("the service kept %d connections and queries, more than %d", most, limit)
				}
				n.settle(10 * time.Minute)
				b.mu.Lock()
				defer b.mu.Unlock()
				if n := len(b.conns) + len(b.remote) + len(b.qpns) + len(b.asked) + guests(b); n != 0 {
					t.Errorf("%d entries stay after the flood", n)
				}
			})
		})
	}
}

// TestForgedQPN sends requests in the name of a peer, with the numbers of its QPs. The peer's
// own request comes later and must not be refused as stale.
func TestForgedQPN(t *testing.T) {
	for _, accepts := range []bool{false, true} {
		inBubble(t, func(t *testing.T, n *network, a, b *Service) {
			app := &application{t: t}
			app.listen(b)
			if !accepts {
				app.each = time.Minute
			}
			x := &stranger{s: b, addr: func(int) netip.Addr { return addrA }}
			for i := range 16 {
				x.req(i, 0x100+uint32(i), mad.RC)
			}
			n.settle(time.Second)
			app.each, app.waiting = 0, nil
			for i := range 16 {
				p := connect(t, a, pathA, request(uint32(i)))
				n.settle(time.Second)
				if p.c.State() != StateEstablished {
					t.Errorf("accepts %v: connection %d is in state %v: %+v", accepts, i, p.c.State(), p.events)
				}
			}
		})
	}
}

// TestForgedID sends a request in the name of a peer with the id of a connection that it is
// about to request.
func TestForgedID(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *Service) {
		app := &application{t: t}
		app.listen(b)
		lost := false
		n.drop = func(from netip.Addr, m mad.Message) bool {
			first := !lost && from == addrA
			lost = lost || first
			return first
		}
		p := connect(t, a, pathA, request(0))
		n.settle(10 * time.Millisecond)
		x := &stranger{s: b, addr: func(int) netip.Addr { return addrA }}
		app.each = time.Minute
		x.req(int(p.c.localID)-1, 0x777, mad.RC)
		n.settle(10 * time.Millisecond)
		app.each, app.waiting = 0, nil
		n.settle(5 * time.Second)
		if p.c.State() != StateEstablished {
			t.Errorf("state %v: %+v", p.c.State(), p.events)
		}
	})
}

// TestTakenRequestsStay checks that newer requests do not displace one that the application has
// taken.
func TestTakenRequestsStay(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *Service) {
		var first *Conn
		listen(t, b, ListenConfig{ServiceID: testService, Backlog: 2, Conn: func(c *Conn) Handler {
			if first == nil {
				first = c
				c.Taken()
			}
			return func(Event) {}
		}})
		p := connect(t, a, pathA, request(0))
		n.settle(100 * time.Millisecond)
		x := &stranger{s: b, addr: forged}
		for i := range 1000 {
			x.req(i, 1, mad.RC)
		}
		fatal.If(t, first.Accept(reply(0)))
		n.settle(time.Second)
		if p.c.State() != StateEstablished {
			t.Errorf("state %v: %+v", p.c.State(), p.events)
		}
	})
}

// TestRequestTimer sends one request that the application never answers and whose sender
// vanishes. It must be given up, and so must a query.
func TestRequestTimer(t *testing.T) {
	for _, take := range []bool{false, true} {
		inBubble(t, func(t *testing.T, n *network, _, b *Service) {
			var events recorder
			gone := 0
			listen(t, b, ListenConfig{ServiceID: testService, Conn: func(c *Conn) Handler {
				if take {
					c.Taken()
				}
				return events.handle
			}})
			listen(t, b, ListenConfig{ServiceID: queryService, Query: func(q *Query) func() {
				if take {
					q.Taken()
				}
				return func() { gone++ }
			}})
			x := &stranger{s: b, addr: one}
			x.req(1, 1, mad.RC)
			x.req(1, 1, mad.RC) // gets an MRA
			x.query(1)
			n.settle(3 * time.Minute)
			if !slices.Equal(events.kinds(), []Kind{TimedOut}) || gone != 1 {
				t.Errorf("taken %v: events %v of the request, %d of the query", take, events.events, gone)
			}
			if len(b.conns)+len(b.asked)+guests(b) != 0 {
				t.Errorf("taken %v: the request stays", take)
			}
		})
	}
}

// TestOutboxIsShort receives MADs on one goroutine while another one runs the functions of
// the service, each of which takes its time. Receive must wait for it.
func TestOutboxIsShort(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, _, b *Service) {
		x := &stranger{s: b, addr: forged}
		longest, flooding := 0, false
		listen(t, b, ListenConfig{ServiceID: testService, Conn: func(c *Conn) Handler {
			if !flooding {
				flooding = true
				go func() {
					for i := range 1000 {
						x.req(i, 1, mad.RC)
					}
				}()
			}
			time.Sleep(time.Millisecond)
			b.mu.Lock()
			longest = max(longest, len(b.outbox))
			b.mu.Unlock()
			return nil
		}})
		begin := time.Now()
		x.req(1<<22, 1, mad.RC)
		if d := time.Since(begin); d > 10*time.Millisecond { // virtual time
			t.Errorf("the call that came first returned after %v: it ran the functions of later ones", d)
		}
		n.settle(time.Minute)
		if longest > 16 {
			t.Errorf("%d functions wait", longest)
		}
	})
}
