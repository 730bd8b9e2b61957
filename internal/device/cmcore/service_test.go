package cmcore

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/net/mad"
)

// inBubble runs a test in virtual time with two services on a network.
func inBubble(t *testing.T, f func(t *testing.T, n *network, a, b *Service)) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		a, b := n.add(addrA, Options{GUID: 0xa}), n.add(addrB, Options{GUID: 0xb})
		defer a.Close()
		defer b.Close()
		f(t, n, a, b)
	})
}

func TestConnect(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *Service) {
		sides := accepting(t, b)
		x := connect(t, a, pathA, request(0))
		n.settle(time.Second)
		y := (*sides)[0]
		if x.c.State() != StateEstablished || y.c.State() != StateEstablished {
			t.Fatalf("states %v and %v", x.c.State(), y.c.State())
		}
		r := y.c.Request()
		if r.IP != (mad.IPHeader{Port: 40000, Src: addrA, Dst: addrB}) || !bytes.HasPrefix(r.Data, []byte("hello\x00")) || r.CAGUID != 0xa {
			t.Errorf("request %+v", r)
		}
		if got := x.events[0]; got.Kind != Replied || !bytes.HasPrefix(got.Private, []byte("welcome\x00")) {
			t.Errorf("reply %+v", got)
		}
		rx, ry := x.c.Attr().RQPSN, y.c.Attr().RQPSN
		if rx == ry || r.PSN != rx || x.events[0].Reply.PSN != ry {
			t.Errorf("PSNs %#x and %#x, the messages say %#x and %#x", rx, ry, r.PSN, x.events[0].Reply.PSN)
		}
		wantX := QPAttr{Path: Path{Local: addrA, Remote: addrB, TrafficClass: 0x68}, TrafficClass: 0x68, DestQPN: 0x201, RQPSN: rx, SQPSN: ry, MTU: 3, MaxRdAtomic: 8, MaxDestRdAtomic: 4, Timeout: DefaultAckTimeout, RetryCount: 7, RNRRetry: 5}
		wantY := QPAttr{Path: Path{Local: addrB, Remote: addrA, TrafficClass: 0x68}, TrafficClass: 0x68, DestQPN: 0x100, RQPSN: ry, SQPSN: rx, MTU: 3, MaxRdAtomic: 4, MaxDestRdAtomic: 8, Timeout: DefaultAckTimeout, RetryCount: 7, RNRRetry: 6}
		if x.c.Attr() != wantX || y.c.Attr() != wantY {
			t.Errorf("attributes\n%+v, want\n%+v;\n%+v, want\n%+v", x.c.Attr(), wantX, y.c.Attr(), wantY)
		}
		fatal.If(t, x.c.Disconnect([]byte("bye")))
		n.settle(time.Minute)
		x.got(t, Replied, Disconnected, Ended)
		y.got(t, Established, Disconnected, Ended)
		if !bytes.HasPrefix(y.events[1].Private, []byte("bye\x00")) {
			t.Errorf("private data of the DREQ %q", y.events[1].Private)
		}
		if want := []mad.Attr{mad.AttrREQ, mad.AttrREP, mad.AttrRTU, mad.AttrDREQ, mad.AttrDREP}; !slices.Equal(n.sent, want) {
			t.Errorf("sent %v", n.sent)
		}
		if n.plain != 0 {
			t.Errorf("%d MADs without the connection's traffic class", n.plain)
		}
		if len(a.conns)+len(b.conns)+len(a.remote)+len(b.remote)+len(a.qpns)+len(b.qpns)+guests(a)+guests(b) != 0 {
			t.Error("the services remember a connection that is over")
		}
	})
}

// TestEveryLoss drops the first message of each kind in turn, and the first two.
func TestEveryLoss(t *testing.T) {
	for _, lost := range []mad.Attr{mad.AttrREQ, mad.AttrREP, mad.AttrRTU, mad.AttrDREQ, mad.AttrDREP} {
		for times := 1; times <= 2; times++ {
			t.Run(lost.String(), func(t *testing.T) {
				inBubble(t, func(t *testing.T, n *network, a, b *Service) {
					left := times
					n.drop = func(_ netip.Addr, m mad.Message) bool {
						if m.Attr() == lost && left > 0 {
							left--
							return true
						}
						return false
					}
					sides := accepting(t, b)
					x := connect(t, a, pathA, request(0))
					n.settle(10 * time.Second)
					y := (*sides)[0]
					if x.c.State() != StateEstablished || y.c.State() != StateEstablished || len(*sides) != 1 {
						t.Fatalf("states %v and %v, %d requests", x.c.State(), y.c.State(), len(*sides))
					}
					x.c.Disconnect(nil)
					n.settle(10 * time.Second)
					x.got(t, Replied, Disconnected, Ended)
					y.got(t, Established, Disconnected, Ended)
					if err := x.events[1].Err; err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// TestSlowApplication checks that an MRA covers an application that takes longer than all
// retries, on both sides.
func TestSlowApplication(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *Service) {
		var y *Conn
		listen(t, b, ListenConfig{ServiceID: testService, Conn: func(c *Conn) Handler {
			y = c
			return func(Event) {}
		}})
		var x recorder
		c, err := a.Connect(pathA, request(0), x.handle)
		fatal.If(t, err)
		n.settle(time.Minute)
		fatal.If(t, y.Accept(reply(1)))
		n.settle(time.Minute)
		x.got(t, Replied)
		fatal.If(t, c.Ready(nil))
		n.settle(time.Second)
		if y.State() != StateEstablished {
			t.Errorf("a second after Ready the listening side is in state %v, want %v", y.State(), StateEstablished)
		}
	})
}

// TestVanishedPeer disconnects the peer in each state. The other side must end within the
// retries, and no state may remain.
func TestVanishedPeer(t *testing.T) {
	for _, last := range []mad.Attr{0, mad.AttrREQ, mad.AttrREP, mad.AttrRTU, mad.AttrDREQ} {
		t.Run(last.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *network, a, b *Service) {
				dead := last == 0
				n.drop = func(_ netip.Addr, m mad.Message) bool {
					if dead {
						return true
					}
					dead = m.Attr() == last // this message arrives and no later one
					return false
				}
				sides := accepting(t, b)
				x := connect(t, a, pathA, request(0))
				n.settle(30 * time.Second)
				switch last {
				case 0, mad.AttrREQ:
					if !slices.Equal(x.kinds(), []Kind{TimedOut}) || !errors.Is(x.events[0].Err, syscall.ETIMEDOUT) {
						t.Errorf("events %v", x.events)
					}
				case mad.AttrREP:
					(*sides)[0].got(t, TimedOut)
				case mad.AttrRTU, mad.AttrDREQ:
					dead = last == mad.AttrRTU
					x.c.Disconnect(nil)
					n.settle(30 * time.Second)
					if !slices.Equal(x.kinds(), []Kind{Replied, Disconnected, Ended}) || x.events[1].Err == nil {
						t.Errorf("events %v", x.events)
					}
				}
				for _, s := range *sides {
					s.c.Close()
				}
				x.c.Close()
				n.settle(time.Minute)
				if len(a.conns)+len(b.conns)+len(a.remote)+len(b.remote) != 0 {
					t.Error("a connection with a peer that has vanished stays")
				}
			})
		})
	}
}

func TestReject(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *Service) {
		l := listen(t, b, ListenConfig{ServiceID: testService, Conn: func(c *Conn) Handler {
			if err := c.Reject(mad.ReasonConsumer, []byte{1}, []byte("no")); err != nil {
				t.Error(err)
			}
			if err := c.Accept(reply(1)); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("accept after reject: %v", err)
			}
			return nil
		}})
		x := connect(t, a, pathA, request(0))
		n.settle(time.Second)
		if len(x.events) != 1 || x.events[0].Kind != Rejected || x.events[0].Reason != mad.ReasonConsumer ||
			!bytes.HasPrefix(x.events[0].Private, []byte("no\x00")) || !bytes.Equal(x.events[0].ARI, []byte{1}) {
			t.Errorf("events %+v", x.events)
		}
		l.Close()
		x = connect(t, a, pathA, request(0))
		n.settle(time.Second)
		x.refused(t, mad.ReasonInvalidServiceID)
	})
}

// TestBadRequests checks the reasons for requests that no listener sees.
func TestBadRequests(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*ConnectParams)
		want   mad.Reason
	}{
		{"no IP header", func(o *ConnectParams) { o.Private = nil }, mad.ReasonUnsupported},
		{"another source", func(o *ConnectParams) {
			o.Private = mad.AppendIPHeader(nil, mad.IPHeader{Port: 1, Src: netip.MustParseAddr("192.0.2.9"), Dst: addrB})
		}, mad.ReasonPrimaryGID},
		{"MTU 0", func(o *ConnectParams) { o.MTU = 0 }, mad.ReasonInvalidMTU},
		{"MTU 6", func(o *ConnectParams) { o.MTU = 6 }, mad.ReasonInvalidMTU},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *network, a, b *Service) {
				sides := accepting(t, b)
				o := request(0)
				test.change(&o)
				x := connect(t, a, pathA, o)
				n.settle(time.Second)
				x.refused(t, test.want)
				if len(*sides) != 0 {
					t.Error("the listener saw the request")
				}
			})
		})
	}
}

// TestStaleConnection connects a QP number with which the other side still has a connection. The
// request must be refused, the old connection must end, and the next attempt must work.
func TestStaleConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *Service) {
		sides := accepting(t, b)
		connect(t, a, pathA, request(0))
		n.settle(time.Second)
		a.Close() // ends without a message
		a = n.add(addrA, Options{Rand: rand.New(rand.NewPCG(5, 5)).Uint32})
		defer a.Close()
		x := connect(t, a, pathA, request(0))
		n.settle(10 * time.Second)
		x.refused(t, mad.ReasonStale)
		(*sides)[0].got(t, Established, Disconnected, Ended) // the old connection
		x = connect(t, a, pathA, request(0))
		n.settle(time.Second)
		if x.c.State() != StateEstablished {
			t.Errorf("state %v", x.c.State())
		}
	})
}

// TestSameID restarts a peer whose new connection gets the communication id of
// the old one.
func TestSameID(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *Service) {
		sides := accepting(t, b)
		connect(t, a, pathA, request(0))
		n.settle(time.Second)
		a.Close()
		a = n.add(addrA, Options{}) // with the same random numbers
		defer a.Close()
		x := connect(t, a, pathA, request(1))
		n.settle(10 * time.Second)
		x.refused(t, mad.ReasonStale)
		(*sides)[0].got(t, Established, Disconnected, Ended) // the old connection
	})
}

func TestBothDisconnect(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *Service) {
		sides := accepting(t, b)
		x := connect(t, a, pathA, request(0))
		n.settle(time.Second)
		y := (*sides)[0]
		x.c.Disconnect(nil)
		y.c.Disconnect(nil)
		n.settle(time.Minute)
		x.got(t, Replied, Disconnected, Ended)
		y.got(t, Established, Disconnected, Ended)
	})
}

// TestCloseInEveryState closes one side at a random moment. The other side must be
// notified, and no state may remain.
func TestCloseInEveryState(t *testing.T) {
	for ms := range 8 {
		for _, closeA := range []bool{false, true} {
			inBubble(t, func(t *testing.T, n *network, a, b *Service) {
				sides := accepting(t, b)
				x := connect(t, a, pathA, request(0))
				n.settle(time.Duration(ms)*time.Millisecond + time.Microsecond)
				other := x
				if closeA {
					x.c.Close()
					other = nil
				}
				if len(*sides) > 0 {
					if closeA {
						other = (*sides)[0]
					} else {
						(*sides)[0].c.Close()
					}
				} else if !closeA {
					x.c.Close()
					other = nil
				}
				n.settle(time.Minute)
				if len(a.conns)+len(b.conns)+len(a.remote)+len(b.remote)+len(a.qpns)+len(b.qpns)+guests(a)+guests(b) != 0 {
					t.Errorf("%d ms: a connection stays", ms)
				}
				if other != nil && len(other.events) == 0 {
					t.Errorf("%d ms: the other side heard nothing", ms)
				}
			})
		}
	}
}

// TestBacklog checks that a request beyond the backlog displaces the oldest of its peer. The
// peer repeats that request, which is served once the application has answered others.
func TestBacklog(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *Service) {
		var waiting []*Conn
		listen(t, b, ListenConfig{ServiceID: testService, Backlog: 2, Conn: func(c *Conn) Handler {
			waiting = append(waiting, c)
			return nil
		}})
		var xs []*side
		for i := range 5 {
			xs = append(xs, connect(t, a, pathA, request(uint32(i))))
		}
		n.settle(100 * time.Millisecond)
		for i, c := range waiting {
			if want := map[bool]State{true: StateReqRcvd, false: StateClosed}[i == len(waiting)-1]; c.State() != want {
				t.Errorf("request %d of %d is in state %v, want %v", i, len(waiting), c.State(), want)
			}
		}
		if len(waiting) != 5 || len(b.conns) != 1 {
			t.Fatalf("%d requests, %d waiting: a peer has half of a backlog of 2", len(waiting), len(b.conns))
		}
		accepted := uint32(0)
		for range 100 {
			for _, c := range waiting {
				if c.State() == StateReqRcvd {
					if err := c.Accept(reply(accepted)); err != nil {
						t.Error(err)
					}
					accepted++
				}
			}
			n.settle(50 * time.Millisecond)
		}
		for i, x := range xs {
			if x.c.State() != StateEstablished {
				t.Errorf("connection %d is in state %v: %+v", i, x.c.State(), x.events)
			}
		}
	})
}

// TestMaxConns checks the limit on the state that peers can add to a service.
func TestMaxConns(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, _ *Service) {
		b := n.add(addrB, Options{MaxConns: 3})
		defer b.Close()
		sides := accepting(t, b)
		c := n.add(addrC, Options{})
		defer c.Close()
		for i := range 10 {
			connect(t, a, pathA, request(uint32(i)))
			n.settle(time.Second)
		}
		if len(*sides) != 1 || len(b.conns) != 1 {
			t.Errorf("%d requests, %d connections: a peer has half of 3", len(*sides), len(b.conns))
		}
		for i := range 10 {
			connect(t, c, Path{Local: addrC, Remote: addrB}, requestFrom(addrC, uint32(i)))
			n.settle(time.Second)
		}
		if len(*sides) != 2 || len(b.conns) != 2 {
			t.Errorf("%d requests, %d connections of two peers", len(*sides), len(b.conns))
		}
	})
}

func TestQuery(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *Service) {
		id := mad.ServiceID(mad.PortSpaceUDP, 7174)
		asked := 0
		listen(t, b, ListenConfig{ServiceID: id, Query: func(q *Query) func() {
			asked++
			if !bytes.HasPrefix(q.Data, []byte("who")) || q.IP.Port != 5 {
				t.Errorf("query %+v", q)
			}
			if err := q.Reply(Answer{QPN: 0x77, QKey: 0x01234567, Private: []byte("me")}); err != nil {
				t.Error(err)
			}
			return nil
		}})
		lost := 0
		n.drop = func(_ netip.Addr, m mad.Message) bool { lost++; return lost <= 3 }
		private := append(mad.AppendIPHeader(nil, mad.IPHeader{Port: 5, Src: addrA, Dst: addrB}), "who"...)
		var answers []Answer
		done := func(a Answer, err error) {
			if err != nil {
				t.Error(err)
			}
			answers = append(answers, a)
		}
		if _, err := a.Query(pathA, id, private, done); err != nil {
			t.Fatal(err)
		}
		n.settle(5 * time.Second)
		if len(answers) != 1 || answers[0].QPN != 0x77 || answers[0].QKey != 0x01234567 || !bytes.HasPrefix(answers[0].Private, []byte("me\x00")) || asked != 1 {
			t.Fatalf("%d times asked: %+v", asked, answers)
		}
		if _, err := a.Query(pathA, id+1, private, done); err != nil {
			t.Fatal(err)
		}
		n.settle(time.Second)
		if len(answers) != 2 || answers[1].Status != mad.SIDRUnsupported {
			t.Errorf("without a listener: %+v", answers)
		}
		n.drop = func(netip.Addr, mad.Message) bool { return true }
		var failed error
		if _, err := a.Query(pathA, id, private, func(_ Answer, err error) { failed = err }); err != nil {
			t.Fatal(err)
		}
		n.settle(time.Minute)
		if !errors.Is(failed, syscall.ETIMEDOUT) || len(a.queries)+len(b.asked) != 0 {
			t.Errorf("a peer that has vanished: %v", failed)
		}
	})
}

func TestBindPorts(t *testing.T) {
	s := New(nil, Options{})
	p, err := s.Bind(mad.PortSpaceTCP, netip.Addr{}, 0, false)
	if err != nil || p.Num() < firstEphemeral || p.Num() > lastEphemeral {
		t.Fatal(p, err)
	}
	if _, err := s.Bind(mad.PortSpaceTCP, addrA, p.Num(), false); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a port that is bound for all addresses: %v", err)
	}
	if _, err := s.Bind(mad.PortSpaceUDP, addrA, p.Num(), false); err != nil {
		t.Errorf("the same port of another space: %v", err)
	}
	p.Close()
	p.Close()
	q, err := s.Bind(mad.PortSpaceTCP, addrA, p.Num(), true)
	fatal.If(t, err)
	if _, err := s.Bind(mad.PortSpaceTCP, addrB, p.Num(), false); err != nil {
		t.Errorf("another address: %v", err)
	}
	if _, err := s.Bind(mad.PortSpaceTCP, addrA, q.Num(), true); err != nil {
		t.Errorf("both with reuse: %v", err)
	}
}

// TestEmptyAfterTimeWait checks that Empty is called when the last connection has left time wait,
// and not earlier.
func TestEmptyAfterTimeWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		empty := 0
		a, b := n.add(addrA, Options{Empty: func() { empty++ }}), n.add(addrB, Options{})
		defer b.Close()
		accepting(t, b)
		x := connect(t, a, pathA, request(0))
		n.settle(time.Second)
		x.c.Close()
		n.settle(10 * time.Millisecond)
		if empty != 0 {
			t.Error("empty in time wait")
		}
		n.settle(time.Minute)
		if empty != 1 {
			t.Errorf("empty %d times", empty)
		}
	})
}

// TestRandomNetworks connects and disconnects over networks that drop, duplicate and
// reorder, by seed. Both sides must agree on the result of each connection, and no state
// may remain.
func TestRandomNetworks(t *testing.T) {
	seeds := 300
	if testing.Short() {
		seeds = 60
	}
	for seed := range seeds {
		inBubble(t, func(t *testing.T, n *network, a, b *Service) {
			r, choices := rand.New(rand.NewPCG(uint64(seed), 2)), rand.New(rand.NewPCG(uint64(seed), 3))
			loss, dup, jitter := r.Float64()*0.25, r.Float64()*0.3, 1+r.IntN(800)
			n.drop = func(netip.Addr, mad.Message) bool { return r.Float64() < loss }
			n.twice = func() bool { return r.Float64() < dup }
			n.delay = func() time.Duration { return time.Duration(r.IntN(jitter)) * time.Millisecond }
			sides := accepting(t, b)
			var xs []*side
			for i := range 8 {
				xs = append(xs, connect(t, a, pathA, request(uint32(i))))
			}
			n.settle(2 * time.Minute)
			for i, x := range xs {
				if x.c.State() != StateEstablished {
					t.Errorf("seed %d: connection %d in state %v: %+v", seed, i, x.c.State(), x.events)
				}
			}
			for i, y := range *sides {
				if y.c.State() != StateEstablished {
					t.Errorf("seed %d: accepted %d in state %v: %+v", seed, i, y.c.State(), y.events)
				}
				if choices.IntN(2) == 0 {
					y.c.Disconnect(nil)
				}
			}
			for _, x := range xs {
				if choices.IntN(2) == 0 {
					x.c.Disconnect(nil)
				} else {
					x.c.Close()
				}
			}
			n.settle(5 * time.Minute)
			for _, y := range *sides {
				if !slices.Equal(y.kinds(), []Kind{Established, Disconnected, Ended}) {
					t.Errorf("seed %d: events %v", seed, y.kinds())
				}
			}
			if len(a.conns)+len(b.conns)+len(a.remote)+len(b.remote)+len(a.qpns)+len(b.qpns)+guests(a)+guests(b) != 0 {
				t.Errorf("seed %d: a connection stays", seed)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// TestDrain closes connections whose DREQ is lost twice, and ends the service as soon as
// Drain returns. The peer must get the event Disconnected of each connection.
func TestDrain(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *Service) {
		sides := accepting(t, b)
		x, y := connect(t, a, pathA, request(0)), connect(t, a, pathA, request(1))
		n.settle(time.Second)
		lost := 0
		n.drop = func(_ netip.Addr, m mad.Message) bool {
			if m.Attr() == mad.AttrDREQ && lost < 4 {
				lost++
				return true
			}
			return false
		}
		x.c.Close()
		y.c.Close()
		a.Drain(t.Context())
		a.Close()
		n.settle(time.Minute)
		for _, s := range *sides {
			s.got(t, Established, Disconnected, Ended)
		}
		if len(*sides) != 2 || lost != 4 {
			t.Errorf("%d connections, %d DREQs lost", len(*sides), lost)
		}
		b.Drain(t.Context()) // returns at once
		a.Drain(t.Context())
	})
}

// TestDrainRepeatsDREP ends a service that has answered the DREQ of its peer. The first
// transmission of the DREP is lost, and the peer repeats its DREQ so late that nobody is left
// to answer. Drain may have to wait for another connection, for longer than the time wait.
func TestDrainRepeatsDREP(t *testing.T) {
	for _, waits := range []bool{false, true} {
		inBubble(t, func(t *testing.T, n *network, a, b *Service) {
			sides := accepting(t, b)
			x := connect(t, a, pathA, request(0))
			n.settle(time.Second)
			connect(t, a, pathA, request(1))
			n.settle(time.Second)
			asked, lost := false, false
			n.drop = func(from netip.Addr, m mad.Message) (drop bool) {
				switch {
				case m.Attr() == mad.AttrDREP:
					drop, lost = !lost, true
				case m.Attr() == mad.AttrDREQ:
					drop = from == addrB || asked
					asked = asked || from == addrA
				}
				return drop
			}
			if waits {
				(*sides)[1].c.Close()
			}
			if err := x.c.Disconnect(nil); err != nil {
				t.Error(err)
			}
			n.settle(10 * time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			b.Drain(ctx)
			b.Close()
			n.settle(100 * time.Millisecond)
			i := slices.IndexFunc(x.events, func(e Event) bool { return e.Kind == Disconnected })
			if !lost || i < 0 || x.events[i].Err != nil {
				t.Errorf("waits %v: DREP lost %v, events %v", waits, lost, x.kinds())
			}
		})
	}
}

// TestDrainLimit drains a service whose peer has vanished: the context ends the wait.
func TestDrainLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *Service) {
		accepting(t, b)
		x := connect(t, a, pathA, request(0))
		n.settle(time.Second)
		n.drop = func(netip.Addr, mad.Message) bool { return true }
		x.c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begin := time.Now()
		a.Drain(ctx)
		if d := time.Since(begin); d != 3*time.Second { // virtual time
			t.Errorf("Drain returned after %v", d)
		}
	})
}
